//! A process and all that it started, ended together.
//!
//! No process group of its own: then a key that interrupts us would no longer
//! reach it. Everybody is stopped before anybody is killed, so that nobody
//! starts another one meanwhile or is handed to another parent.

use crate::sys::process::kill;
use crate::watch::{descends, each_process};
use std::collections::BTreeSet;

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
        each_process(&mut |_, _, pid| {
            if !family.contains(&pid) && descends(pid, child) {
                fresh.insert(pid);
            }
        });
    }
    for pid in family {
        let _ = kill(pid, libc::SIGKILL);
    }
}
