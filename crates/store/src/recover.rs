//! After a crash: runs whose supervisor is gone.
//!
//! A process is named by its pid and its start time, so a pid that was used
//! again does not keep a dead run alive. A run without a row is told of by a
//! file that its supervisor leaves when its caller is killed, and work of many
//! runs by one that it wrote when it began.

use crate::{Reads, Result, RunRow, Store, Tx, begun, now_ms};
use fractal_model::{Id, RecordBody};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Last words are a command and little more.
const LAST_WORDS_BYTES_MAX: u64 = 4 << 20;

/// Where the supervisor of a run without a row tells that its caller was
/// killed: a record, as JSON.
pub fn last_words_file(home: &Path, run: Id) -> PathBuf {
    home.join(format!("{LAST_WORDS}{run}{LAST_WORDS_END}"))
}

const LAST_WORDS: &str = "lost-";
const LAST_WORDS_END: &str = ".json";

impl Store {
    /// Records runs whose process is gone as lost and returns them, so that
    /// the caller can clean up their cgroups. One query and one look into the
    /// directory when nothing is wrong.
    pub fn recover(&self) -> Result<Vec<RunRow>> {
        let gone: Vec<RunRow> = self.runs()?.into_iter().filter(|run| !is_alive(run)).collect();
        let (words, begun) = left(self.home());
        if gone.is_empty() && words.is_empty() && begun.is_empty() {
            return Ok(gone);
        }
        self.transact(|tx| {
            let mut lost = Vec::new();
            for path in words {
                if let Some(body) = take_last_words(&path) {
                    tx.append(body)?;
                }
            }
            lose(tx, gone, &mut lost)?;
            // After the runs that it was made of.
            for path in begun {
                if let Some(body) = begun::take(tx, &path)? {
                    tx.append(body)?;
                }
            }
            Ok(lost)
        })
    }

    /// Records these runs as lost, although their process lives: it broke off,
    /// or does nothing. Should it come back to one of them, its row is gone, and
    /// nothing can be committed by it. Returns those that had a row until now.
    pub fn lose(&self, runs: Vec<RunRow>) -> Result<Vec<RunRow>> {
        self.transact(|tx| {
            let mut lost = Vec::new();
            lose(tx, runs, &mut lost)?;
            Ok(lost)
        })
    }
}

fn lose(tx: &Tx<'_>, runs: Vec<RunRow>, lost: &mut Vec<RunRow>) -> Result<()> {
    for run in runs {
        // Another process may have been here since we looked.
        if tx.delete_run(run.id)? {
            record_lost(tx, &run)?;
            lost.push(run);
        }
    }
    Ok(())
}

/// Last words, and what began and came to no end.
fn left(home: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let is_word = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(LAST_WORDS) && name.ends_with(LAST_WORDS_END))
    };
    let entries = fs::read_dir(home).into_iter().flatten().flatten().map(|entry| entry.path());
    let ours = entries.filter(|path| is_word(path) || begun::is_one(path));
    let (mut words, mut begun): (Vec<_>, Vec<_>) = ours.partition(is_word);
    begun.retain(|path| begun::is_over(path));
    // A directory that is read-only can still be looked at.
    if rustix::fs::access(home, rustix::fs::Access::WRITE_OK).is_err() {
        words.clear();
        begun.clear();
    }
    (words, begun)
}

/// Removed first and inside the transaction: told once, even if two processes
/// come across it.
fn take_last_words(path: &Path) -> Option<RecordBody> {
    let small = fs::metadata(path).is_ok_and(|meta| meta.len() <= LAST_WORDS_BYTES_MAX);
    let text = if small { fs::read(path).ok()? } else { Vec::new() };
    fs::remove_file(path).ok()?;
    serde_json::from_slice(&text).ok()
}

fn record_lost(tx: &Tx<'_>, run: &RunRow) -> Result<()> {
    let sandbox = tx.sandbox(run.sandbox)?;
    let top = sandbox.as_ref().map(|sandbox| sandbox.top);
    let directory = sandbox.as_ref().map(|sandbox| sandbox.directory.as_os_str());
    tx.append(RecordBody {
        time_ms: now_ms(),
        who: "owner".to_owned(),
        key: None,
        tenant: sandbox.as_ref().map(|row| row.tenant.clone()).filter(|own| !own.is_empty()),
        action: "run".to_owned(),
        place: directory.map(|directory| RecordBody::place_of(directory.as_bytes())),
        sandbox: Some(run.sandbox),
        name: sandbox.map(|sandbox| sandbox.name),
        before: top,
        after: top,
        error: None,
        detail: serde_json::json!({ "outcome": "lost", "run": run.id }),
    })
    .map(drop)
}

fn is_alive(run: &RunRow) -> bool {
    process_start(run.pid) == Some(run.pid_start)
}

/// Whether the process that supervises a run stands still, by a signal or
/// under a debugger: it writes nothing down until somebody lets it go on.
pub fn is_stopped(run: &RunRow) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", run.pid)).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().next());
    parse_stat(&stat) == Some(run.pid_start) && matches!(state, Some("T" | "t"))
}

/// When a living process started, in clock ticks since boot: what belongs
/// into [`RunRow::pid_start`]. `None` when it is gone or a zombie.
pub fn process_start(pid: i32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields are counted after the last parenthesis: the second one is the
/// program's name, which may hold spaces and parentheses itself.
fn parse_stat(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // Field 22 of proc_pid_stat(5); the state was field 3.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_read_past_any_program_name() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        let check = |stat: String, expect: Option<u64>| {
            assert_eq!(parse_stat(&stat), expect, "{stat}");
        };
        check(format!("42 (sh) S {rest}"), Some(777));
        check(format!("42 (a) b) (c) R {rest}"), Some(777));
        check(format!("42 (sh) Z {rest}"), None);
        check("42 (sh) S 1 2".to_owned(), None);
        check(String::new(), None);
    }

    #[test]
    fn this_process_is_alive_and_pid_zero_is_not() {
        let own = i32::try_from(std::process::id()).expect("pids are small");
        assert!(process_start(own).is_some());
        assert!(process_start(0).is_none());
    }
}
