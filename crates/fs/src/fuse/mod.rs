//! A view as a real directory, through FUSE.
//!
//! [`mount`] shows a view at a directory of the host, where any program can
//! read and write it; what it writes is in the view at once. The kernel
//! remembers what it was told, and is told when the view is changed by others.
//!
//! ```no_run
//! let vfs = fractal_fs::Vfs::default();
//! let mounted = fractal_fs::fuse::mount(&vfs, "/mnt/view".as_ref(), Default::default())?;
//! std::fs::write("/mnt/view/a.txt", "hello")?;
//! assert_eq!(vfs.read("/a.txt")?, "hello");
//! mounted.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A server that dies leaves a directory behind that says `ENOTCONN` to
//! everyone and keeps nobody waiting; [`clean`] takes it away.

mod attr;
mod calls;
mod files;
mod names;
mod outside;
mod server;
mod system;
mod table;

use crate::Vfs;
use fractal_model::{Code, EntryKind, Error, SandboxPath};
use outside::Outside;
use server::Server;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use table::{Table, Top};

/// How a view is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What `mount` and `df` call it.
    pub name: String,
    /// Nothing can be written through the mount.
    pub read_only: bool,
    /// Which directory of the view is shown.
    pub top: SandboxPath,
}

impl Default for Options {
    fn default() -> Options {
        Options { name: "fractal".to_owned(), read_only: false, top: SandboxPath::root() }
    }
}

/// Why a view could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE, or this user may not use it.
    #[error("cannot open /dev/fuse: {0}")]
    NoDevice(#[source] io::Error),
    /// A user without root's rights needs a helper, which is not there.
    #[error("mounting as a user needs fusermount3: {0}")]
    NoHelper(#[source] io::Error),
    /// The place is missing or no directory.
    #[error("{}: {cause}", dir.display())]
    Place {
        /// Where it was to be mounted.
        dir: PathBuf,
        /// What is wrong with it.
        cause: io::Error,
    },
    /// What was to be shown is missing or no directory.
    #[error("{top} of the view: {cause}")]
    Top {
        /// What was to be shown.
        top: SandboxPath,
        /// What is wrong with it.
        cause: io::Error,
    },
    /// The kernel refused.
    #[error("cannot {doing} {}: {cause}", dir.display())]
    Refused {
        /// `mount` or `unmount`.
        doing: &'static str,
        /// Where.
        dir: PathBuf,
        /// What it said.
        cause: io::Error,
    },
    /// Someone still serves it.
    #[error("{} is in use: its server is alive", dir.display())]
    Alive {
        /// Where.
        dir: PathBuf,
    },
    /// The thread that served it ended with an error.
    #[error("the mount ended: {0}")]
    Ended(#[source] io::Error),
}

impl From<MountError> for Error {
    fn from(error: MountError) -> Error {
        let message = error.to_string();
        match &error {
            MountError::NoDevice(_) => {
                Error::new(Code::Unsupported, message).hint("modprobe fuse, then run it again")
            }
            MountError::NoHelper(_) => {
                Error::new(Code::Unsupported, message).hint("install the package fuse3")
            }
            MountError::Place { dir, .. } => {
                Error::new(Code::Invalid, message).hint(format!("mkdir -p {}", dir.display()))
            }
            MountError::Top { .. } => {
                Error::new(Code::NotFound, message).hint("name a directory of the sandbox")
            }
            MountError::Alive { dir } => {
                Error::new(Code::Busy, message).hint(format!("umount {}", dir.display()))
            }
            MountError::Refused { .. } => Error::new(Code::Unsupported, message),
            MountError::Ended(_) => Error::new(Code::Internal, message),
        }
    }
}

/// A view that is mounted; dropping it unmounts.
pub struct Mounted {
    dir: PathBuf,
    mount: system::Mount,
    server: Option<JoinHandle<io::Result<()>>>,
    outside: Arc<Outside>,
}

type Bell = Arc<dyn Fn() + Send + Sync>;

/// Shows a view at a directory, whose own contents are out of sight until it
/// is unmounted.
pub fn mount(view: &Vfs, dir: &Path, options: Options) -> Result<Mounted, MountError> {
    let place = |cause| MountError::Place { dir: dir.to_owned(), cause };
    let dir = dir.canonicalize().map_err(place)?;
    if !dir.is_dir() {
        return Err(place(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    let table = Arc::new(Table::new(top(view, &options)?));
    let outside = Arc::new(Outside::default());
    let bell: Bell = Arc::new({
        let outside = outside.clone();
        move || outside.ring()
    });
    let own = view.watched(&bell);
    let server = Server::new(own.clone(), table.clone(), outside.clone());
    let (session, mut mount) = system::mount(server, &dir, &options)?;
    let kernel = session.notifier();
    let serving = outside.clone();
    let serve = move || {
        // The view tells for as long as this is held.
        let _bell = bell;
        let outside = serving;
        // Both end with the mount: the session when the kernel lets go of it,
        // the bell's thread right after.
        std::thread::scope(|scope| {
            scope.spawn(|| outside.serve(&own, &table, &kernel));
            let done = session.run();
            outside.end();
            done
        })
    };
    let server = std::thread::Builder::new().name("fuse".to_owned()).spawn(serve);
    let server =
        server.map_err(|cause| MountError::Refused { doing: "mount", dir: dir.clone(), cause })?;
    system::settle(&mut mount, &dir);
    Ok(Mounted { dir, mount, server: Some(server), outside })
}

/// The directory to show, which is there: without a slash at its end.
fn top(view: &Vfs, options: &Options) -> Result<Top, MountError> {
    let path = [b"/", options.top.relative()].concat();
    let missing = |kind: io::ErrorKind| MountError::Top {
        top: options.top.clone(),
        cause: io::Error::from(kind),
    };
    match view.stat(&path) {
        Ok(stat) if stat.kind == EntryKind::Directory => {}
        Ok(_) => return Err(missing(io::ErrorKind::NotADirectory)),
        Err(_) => return Err(missing(io::ErrorKind::NotFound)),
    }
    Ok(if options.top.relative().is_empty() { Top::default() } else { path.into() })
}

/// Takes away what a server that died left at a directory. Does nothing where
/// nothing is left, and refuses where one is alive.
pub fn clean(dir: &Path) -> Result<(), MountError> {
    system::clean(dir)
}

impl Mounted {
    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns when the kernel knows of everything that was written into the
    /// view by other ways than the mount until now. It gets to know by itself
    /// a moment later; this is for whoever cannot wait. Not to be called by a
    /// source, for which the mount may be waiting.
    pub fn sync(&self) {
        self.outside.sync();
    }

    /// Whether someone unmounted it.
    pub fn is_over(&self) -> bool {
        self.server.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until someone unmounts it.
    pub fn wait(mut self) -> Result<(), MountError> {
        self.join()
    }

    /// Unmounts it, whoever uses it.
    pub fn unmount(mut self) -> Result<(), MountError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), MountError> {
        let alive = |server: &JoinHandle<_>| !server.is_finished();
        if self.server.as_ref().is_some_and(alive) {
            // One that cannot be ended is not waited for.
            system::unmount(&mut self.mount, &self.dir).inspect_err(|_| self.server = None)?;
        }
        self.join()
    }

    fn join(&mut self) -> Result<(), MountError> {
        let Some(server) = self.server.take() else { return Ok(()) };
        let ended = server.join();
        let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a thread of it panicked")));
        ended.map_err(MountError::Ended)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // There is nobody to tell: the server goes on, if at all, until this
        // process ends.
        self.end().unwrap_or_default();
    }
}
