//! A sandbox as a real directory, for as long as it is mounted.
//!
//! What programs do there is in memory first. It is put into the sandbox's top
//! layer again and again, so that `diff` shows it and little is lost if this
//! process is killed, and for good at the end.

use super::keep::Work;
use fractal_fs::{Access, Vfs, fuse};
use fractal_jail::terminal::Signals;
use fractal_model::{Error, Result, SandboxPath};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often it is looked whether the mount is to end.
const NAP: Duration = Duration::from_millis(20);

/// How long what is new waits at least until it is put into the layer.
const PAUSE: Duration = Duration::from_secs(1);

/// At most this part of the time is spent on that: a tenth.
const PAUSE_TIMES: u32 = 9;

/// Where and how a sandbox is mounted.
pub struct Mounting {
    /// The directory.
    pub dir: PathBuf,
    /// What of the sandbox is shown; its project, if nothing is named.
    pub top: Option<SandboxPath>,
    /// Nothing can be written through the mount.
    pub read_only: bool,
    /// Whether signals that end processes end the mount; for command lines.
    pub interactive: bool,
    /// Set by whoever wants it to end; `umount` does as well.
    pub stop: Arc<AtomicBool>,
    /// Is told what happens.
    pub tell: Box<dyn FnMut(Told<'_>)>,
}

/// What happens to a mount.
pub enum Told<'a> {
    /// It can be used.
    Ready(&'a Path),
    /// What is in memory could not be put into the sandbox; it is tried again.
    Stuck(&'a Error),
}

/// Mounts, keeps what is written, and returns when it is over.
pub(super) fn serve(work: &mut Work<'_>, mut mounting: Mounting) -> Result<()> {
    let top = match mounting.top.take() {
        Some(top) => top,
        None => crate::view::path_of(&work.place.row.directory)?,
    };
    fuse::clean(&mounting.dir)?;
    let dir = std::path::absolute(&mounting.dir).unwrap_or_else(|_| mounting.dir.clone());
    let dir = dir.canonicalize().unwrap_or(dir);
    keep_out(work.vfs, &work.place.row.directory, &dir)?;
    keep_off(work.engine.home(), &dir)?;
    let signals = if mounting.interactive { Signals::take() } else { None };
    let options = fuse::Options {
        name: format!("fractal:{}", work.place.row.name),
        read_only: mounting.read_only,
        top,
    };
    let mounted = fuse::mount(work.vfs, &dir, options)?;
    (mounting.tell)(Told::Ready(mounted.dir()));
    let asked = || {
        mounting.stop.load(Ordering::Relaxed)
            || signals.as_ref().is_some_and(|signals| signals.ending().is_some())
    };
    let (mut next, mut stuck) = (Instant::now() + PAUSE, false);
    while !asked() && !mounted.is_over() {
        std::thread::sleep(NAP);
        if Instant::now() < next {
            continue;
        }
        let since = Instant::now();
        let kept = work.keep();
        next = Instant::now() + PAUSE.max(since.elapsed() * PAUSE_TIMES);
        match kept {
            Err(error) if !stuck => {
                (mounting.tell)(Told::Stuck(&error));
                stuck = true;
            }
            kept => stuck = kept.is_err(),
        }
    }
    let ended = mounted.unmount();
    keep_at_last(work, &mut mounting.tell, asked)?;
    if signals.is_some() {
        Signals::unblock();
    }
    ended.map_err(Error::from)
}

/// The last chance for what is in memory: a disk that is full may have room in
/// a moment, and whoever waits can give up.
fn keep_at_last(
    work: &mut Work<'_>,
    tell: &mut dyn FnMut(Told<'_>),
    gave_up: impl Fn() -> bool,
) -> Result<()> {
    let mut told = false;
    loop {
        let Err(error) = work.land() else { return Ok(()) };
        if gave_up() {
            return Err(error);
        }
        if !told {
            tell(Told::Stuck(&error));
            told = true;
        }
        std::thread::sleep(PAUSE);
    }
}

/// What is mounted lives in the state directory: a mount over it would hide
/// every sandbox, and one inside of it would be taken for a part of them.
fn keep_off(home: &Path, dir: &Path) -> Result<()> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let how = match (home.starts_with(dir), dir.starts_with(&home)) {
        (true, _) => "holds",
        (_, true) => "lies in",
        _ => return Ok(()),
    };
    let message = format!("{} {how} the state directory {}", dir.display(), home.display());
    Err(Error::invalid(message).hint("mount it in an empty directory elsewhere"))
}

/// A mount inside of the project would show itself, and one over it would
/// wait for itself.
fn keep_out(vfs: &Vfs, project: &Path, dir: &Path) -> Result<()> {
    if project.starts_with(dir) {
        let message = format!("{} holds the project that is to be shown", dir.display());
        return Err(Error::invalid(message).hint("mount it beside the project"));
    }
    if dir.starts_with(project) {
        vfs.set_access(&crate::view::path_of(dir)?, Some(Access::Hidden));
    }
    Ok(())
}
