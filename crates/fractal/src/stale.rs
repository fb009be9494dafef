//! How far reality moved under a live base.
//!
//! A path changed if its `ctime` is not before the marker taken at the fork.
//! `ctime` cannot be set by programs, so a file with an old date copied over
//! a newer one still counts. Walks are bounded and can be cut short.

use fractal_model::Staleness;
use fractal_store::{SandboxRow, now_ms};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LISTED_MAX: usize = 100;
const TIME_MAX: Duration = Duration::from_secs(2);

/// A moment of the host's file clock: what was written before has a smaller
/// `ctime`, what is written from now on the same or a larger one.
///
/// That clock ticks coarsely, so a fresh file may carry the time of one that
/// was written milliseconds ago. Since Linux 6.13 a file that changes after
/// somebody looked at it gets a time of its own, which no later one falls
/// behind; on older kernels we wait for the next tick.
pub fn file_clock_ns(dir: &Path) -> i64 {
    let marker = dir.join(format!("clock-{}", fractal_store::new_id()));
    let time = tick(&marker).unwrap_or_else(|_| now_ms() as i64 * 1_000_000);
    let _ = fs::remove_file(&marker);
    time
}

fn tick(marker: &Path) -> std::io::Result<i64> {
    const TICK_MAX: Duration = Duration::from_millis(20);
    let file = fs::File::create(marker)?;
    let (start, before) = (Instant::now(), ctime_ns(&file.metadata()?));
    loop {
        let now = step_clock(&file)?;
        if now > before || start.elapsed() > TICK_MAX {
            return Ok(now);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Gives a file a time of its own, see [`file_clock_ns`], and returns it.
pub fn step_clock(file: &fs::File) -> std::io::Result<i64> {
    file.metadata()?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(ctime_ns(&file.metadata()?))
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
    /// What it finds within this time.
    pub fn within(self, patience: Duration) -> Option<Staleness> {
        let start = Instant::now();
        while !self.thread.is_finished() && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.take()
    }

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
                } else if ctime_ns(&meta) >= self.marker_ns {
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
