//! How far reality moved under a live base.
//!
//! A path changed if its `ctime` is later than the marker taken at the fork.
//! `ctime` cannot be set by programs, so a file with an old date copied over
//! a newer one still counts. Walks are bounded and can be cut short.

use fractal_model::Staleness;
use fractal_store::{SandboxRow, now_ms};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LISTED_MAX: usize = 100;
const TIME_MAX: Duration = Duration::from_secs(2);

/// The host's file clock now, read from a file made for it: the kernel's
/// clock for `ctime` ticks more coarsely than the one programs read.
pub fn file_clock_ns(dir: &Path) -> i64 {
    let marker = dir.join(format!("clock-{}", std::process::id()));
    let time = fs::File::create(&marker)
        .and_then(|file| file.metadata())
        .map_or_else(|_| now_ms() as i64 * 1_000_000, |meta| ctime_ns(&meta));
    let _ = fs::remove_file(&marker);
    time
}

fn ctime_ns(meta: &fs::Metadata) -> i64 {
    meta.ctime() * 1_000_000_000 + meta.ctime_nsec()
}

/// Looks below the sandbox's directory; `None` when nothing moved.
pub fn look(row: &SandboxRow, state_dir: &Path) -> Option<Staleness> {
    Walk::new(row, state_dir).finish(&AtomicBool::new(false))
}

/// The same on a thread beside a run; ask it when the run is over.
pub fn watch(row: &SandboxRow, state_dir: &Path) -> Watch {
    let stop = Arc::new(AtomicBool::new(false));
    let (walk, flag) = (Walk::new(row, state_dir), Arc::clone(&stop));
    let thread = std::thread::spawn(move || walk.finish(&flag));
    Watch { stop, thread }
}

/// A walk under way.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Option<Staleness>>,
}

impl Watch {
    /// Stops it and takes what it found so far.
    pub fn take(self) -> Option<Staleness> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().flatten()
    }
}

struct Walk {
    root: PathBuf,
    state_dir: PathBuf,
    marker_ns: i64,
    behind_ms: u64,
}

impl Walk {
    fn new(row: &SandboxRow, state_dir: &Path) -> Walk {
        Walk {
            root: row.directory.clone(),
            state_dir: state_dir.to_path_buf(),
            marker_ns: row.fork_ctime_ns,
            behind_ms: now_ms().saturating_sub(row.fork_ctime_ns.max(0) as u64 / 1_000_000),
        }
    }

    fn finish(self, stop: &AtomicBool) -> Option<Staleness> {
        let start = Instant::now();
        let mut stale = Staleness { behind_ms: self.behind_ms, changed: Vec::new(), more: false };
        let mut queue = vec![self.root.clone()];
        'walk: while let Some(dir) = queue.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if stop.load(Ordering::Relaxed) || start.elapsed() > TIME_MAX {
                    stale.more = true;
                    break 'walk;
                }
                let path = entry.path();
                let skip =
                    path == self.state_dir || path.starts_with("/proc") || path.starts_with("/sys");
                let Some(meta) = entry.metadata().ok().filter(|_| !skip) else { continue };
                if meta.is_dir() {
                    queue.push(path);
                } else if ctime_ns(&meta) > self.marker_ns {
                    if stale.changed.len() == LISTED_MAX {
                        stale.more = true;
                        continue;
                    }
                    stale.changed.push(path.display().to_string());
                }
            }
        }
        stale.changed.sort();
        (!stale.changed.is_empty()).then_some(stale)
    }
}
