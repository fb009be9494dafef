//! What a sandbox stands on, and how far reality moved under it.
//!
//! A path changed if its `ctime` is not before the marker taken at the fork.
//! `ctime` cannot be set by programs, so a file with an old date copied over
//! a newer one still counts. What the sandbox itself brought there by a
//! promotion does not, nor what stands there again as it was. Walks are
//! bounded and can be cut short.

use crate::Engine;
use crate::base::{Count, Notes, digest};
use crate::view::path_of;
use fractal_jail::layer::{View, is_whole};
use fractal_model::{BaseKind, Result, SandboxPath, Staleness};
use fractal_store::{Reads, SandboxRow, now_ms};
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

/// Whether a sandbox has a copy of its directory below it, or the host's own.
pub fn base_kind(engine: &Engine, row: &SandboxRow) -> Result<BaseKind> {
    let Some(base) = row.base else { return Ok(BaseKind::Live) };
    let project = path_of(&row.directory)?;
    for layer in engine.store.stack(base)? {
        if is_whole(&engine.store.layer_dir(layer.id), &project)? {
            return Ok(BaseKind::Frozen);
        }
    }
    Ok(BaseKind::Live)
}

/// Looks below the sandbox's directory; `None` when nothing moved.
pub fn look(engine: &Engine, row: &SandboxRow) -> Option<Staleness> {
    Walk::new(engine, row).finish(&AtomicBool::new(false))
}

/// The same on a thread beside a run; ask it when the run is over.
pub fn watch(engine: &Engine, row: &SandboxRow) -> Watch {
    let stop = Arc::new(AtomicBool::new(false));
    let (walk, flag) = (Walk::new(engine, row), Arc::clone(&stop));
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
    known: Option<Known>,
    marker_ns: i64,
    behind_ms: u64,
}

/// What is known of single files of the base.
struct Known {
    notes: Notes,
    /// The copy that a frozen base is.
    copy: Option<View>,
    host: View,
}

impl Known {
    fn new(engine: &Engine, row: &SandboxRow) -> Result<Known> {
        let copy = match base_kind(engine, row)? {
            BaseKind::Live => None,
            BaseKind::Frozen => Some(engine.views(row, row.base)?.base()),
        };
        let host = engine.host_view(row, Vec::new())?;
        Ok(Known { notes: Notes::read(engine, row.id), copy, host })
    }

    /// Whether the host has at a path what the sandbox stands on.
    fn is_base(&self, path: &Path) -> bool {
        let Ok(path) = path_of(path) else { return false };
        // Reading a file is for those of which something was noted.
        if self.notes.of(&path).is_none() {
            return false;
        }
        let now = self.host.lookup(&path).ok().flatten();
        let count = if self.copy.is_some() { Count::Landed } else { Count::All };
        self.notes.is_base(&path, now.as_ref(), &self.host, count) == Some(true)
            || !self.notes.has_promoted(&path)
                && self.copy.as_ref().is_some_and(|copy| same(copy, &self.host, &path))
    }
}

/// Whether two views have the same file; one that cannot be read differs.
fn same(a: &View, b: &View, path: &SandboxPath) -> bool {
    let (Ok(Some(in_a)), Ok(Some(in_b))) = (a.lookup(path), b.lookup(path)) else { return false };
    let digest_a = || digest(a, path, &in_a);
    in_a.same_but_content(&in_b) && digest_a().is_some_and(|it| Some(it) == digest(b, path, &in_b))
}

/// Whether it is a record that runs and promotions leave in their experiment,
/// or a page made from them: writing down what was done changes nothing that
/// was worked on.
fn is_written_by_us(path: &Path) -> bool {
    const WRITTEN: [&str; 5] = ["experiments", "failures", "decisions", "index.md", "log.md"];
    let name = |path: Option<&Path>| {
        path.and_then(Path::file_name).and_then(|name| name.to_str()).map(str::to_owned)
    };
    name(path.parent()).is_some_and(|dir| dir.ends_with("_skunkworks"))
        && name(Some(path)).is_some_and(|name| WRITTEN.contains(&name.as_str()))
}

impl Walk {
    fn new(engine: &Engine, row: &SandboxRow) -> Walk {
        Walk {
            root: row.directory.clone(),
            state_dir: engine.home().to_path_buf(),
            // Without it the walk is more careful.
            known: Known::new(engine, row).ok(),
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
                if is_written_by_us(&path) {
                    continue;
                }
                if meta.is_dir() {
                    queue.push(path);
                } else if ctime_ns(&meta) >= self.marker_ns && !self.is_base(&path) {
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

    fn is_base(&self, path: &Path) -> bool {
        self.known.as_ref().is_some_and(|known| known.is_base(path))
    }
}
