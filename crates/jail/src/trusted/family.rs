//! A process and all that it started, ended together.
//!
//! No process group of its own: then a key that interrupts us would no longer
//! reach it. Everybody is stopped before anybody is killed, so that nobody
//! starts another one meanwhile or is handed to another parent.

use crate::sys::process::kill;
use std::collections::BTreeSet;
use std::fs;

/// Ends a child of ours that was not waited for yet, and what descends from it.
pub(super) fn end(child: u32) {
    let Ok(child) = i32::try_from(child) else { return };
    let mut family = BTreeSet::new();
    let mut fresh = BTreeSet::from([child]);
    while !fresh.is_empty() {
        for pid in &fresh {
            let _ = kill(*pid, libc::SIGSTOP);
        }
        family.append(&mut fresh);
        fresh =
            parents().filter(|(_, parent)| family.contains(parent)).map(|(pid, _)| pid).collect();
        fresh.retain(|pid| !family.contains(pid));
    }
    for pid in family {
        let _ = kill(pid, libc::SIGKILL);
    }
}

/// Every process and its parent.
fn parents() -> impl Iterator<Item = (i32, i32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read(entry.path().join("stat")).ok()?;
        // The name in parentheses may hold anything, so count from its end.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = String::from_utf8_lossy(&stat[end + 1..]).into_owned();
        Some((pid, rest.split_whitespace().nth(1)?.parse().ok()?))
    })
}
