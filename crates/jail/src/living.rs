//! Reaching a run that another process supervises.
//!
//! While a run lives, its monitor listens on a socket in the directory of the
//! layer that the run writes. Through it a second run gets the namespaces to
//! join, a snapshot freezes the processes, and a rollback ends them. Nobody
//! has to read `/proc` of a stranger for it, and a process that dies in the
//! middle leaves nothing behind: its socket closes, and the monitor sees it.

use crate::sys::{Errno, fd, local, socket};
use crate::wire::{self, Message, SIZE};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How long a monitor may take to answer. It never waits for anything but
/// events, and init gives up freezing after two seconds.
const ANSWER_MS_MAX: u32 = 8000;

/// Names and kinds of the namespaces that runs can share.
pub const NAMESPACES: [(&str, i32); 5] = [
    ("user", libc::CLONE_NEWUSER),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("net", libc::CLONE_NEWNET),
    ("mnt", libc::CLONE_NEWNS),
];

/// The namespaces in [`NAMESPACES`] of a living run. Holding them keeps its
/// mounts alive, also when the run itself ends meanwhile.
#[derive(Clone, Debug)]
pub struct Living(pub(crate) Arc<[OwnedFd; 5]>);

impl From<[OwnedFd; 5]> for Living {
    fn from(fds: [OwnedFd; 5]) -> Living {
        Living(Arc::new(fds))
    }
}

impl Living {
    pub(crate) fn raw(&self) -> [RawFd; 5] {
        self.0.each_ref().map(AsRawFd::as_raw_fd)
    }

    /// Takes hold of a living run's namespaces; `None` when it is not there
    /// yet, or no longer.
    pub fn open(layers_dir: &Path, layer: &str, label: &str) -> Option<Living> {
        let monitor = call(layers_dir, layer, label, wire::JOIN).ok()?;
        let mut bytes = [0u8; SIZE];
        let (_, carried) = socket::receive(monitor.as_raw_fd(), &mut bytes, 0).ok()?;
        let fds: Vec<OwnedFd> = carried.into_iter().flatten().map(fd::own).collect();
        Some(Living(Arc::new(fds.try_into().ok()?)))
    }
}

/// A living run whose processes stand still. They go on when it is dropped,
/// or when this process ends.
#[derive(Debug)]
pub struct Frozen(OwnedFd);

/// Why a run was not frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFrozen {
    /// It does not listen: it is about to start, or over.
    Absent,
    /// Its processes did not stand still in time, or did not stay so.
    Restless(Errno),
}

impl Frozen {
    /// Stops all processes of a living run.
    pub fn freeze(layers_dir: &Path, layer: &str, label: &str) -> Result<Frozen, NotFrozen> {
        let monitor =
            call(layers_dir, layer, label, wire::FREEZE).map_err(|_| NotFrozen::Absent)?;
        answer(&monitor, wire::FROZEN).map(|()| Frozen(monitor))
    }

    /// Whether they still stand still: the monitor ends what takes too long.
    pub fn holds(&self) -> bool {
        let mut polled =
            [libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        fd::poll(&mut polled, 0) == Ok(0)
    }

    /// Lets them go on. An error says that they did not stand still all the
    /// time, so what was read meanwhile may not fit together.
    pub fn thaw(self) -> Result<(), NotFrozen> {
        let sent = Message::of(wire::THAW).send(self.0.as_raw_fd(), None);
        sent.map_err(NotFrozen::Restless)?;
        answer(&self.0, wire::THAWED)
    }
}

/// Ends a living run as its caller could: it gets its reply. False when it
/// does not listen.
pub fn end(layers_dir: &Path, layer: &str, label: &str) -> bool {
    let Ok(monitor) = call(layers_dir, layer, label, wire::END) else { return false };
    // The monitor closes when it has heard it.
    let _ = local::receive_plain(monitor.as_raw_fd(), &mut [0u8; SIZE]);
    true
}

/// Connects and says one thing.
fn call(layers_dir: &Path, layer: &str, label: &str, wish: u32) -> Result<OwnedFd, Errno> {
    let path = living_file(layers_dir, layer, label);
    let c = |bytes: &[u8]| CString::new(bytes).map_err(|_| libc::EINVAL);
    let dir = c(path.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes())?;
    let name = c(path.file_name().unwrap_or_default().as_bytes())?;
    let dir = fd::own(fd::open(&dir, libc::O_PATH | libc::O_DIRECTORY, 0)?);
    let socket = fd::own(local::connect_in(dir.as_raw_fd(), &name, ANSWER_MS_MAX)?);
    Message::of(wish).send(socket.as_raw_fd(), None)?;
    Ok(socket)
}

fn answer(monitor: &OwnedFd, expected: u32) -> Result<(), NotFrozen> {
    let mut bytes = [0u8; SIZE];
    match local::receive_plain(monitor.as_raw_fd(), &mut bytes) {
        Ok(SIZE) => match Message::from_bytes(&bytes) {
            Message { kind, b: 0, .. } if kind == expected => Ok(()),
            message => Err(NotFrozen::Restless(message.b)),
        },
        // The run ended meanwhile.
        Ok(_) => Err(NotFrozen::Absent),
        Err(errno) => Err(NotFrozen::Restless(errno)),
    }
}

/// Where a run can be reached while it lives.
pub(crate) fn living_file(layers_dir: &Path, layer: &str, label: &str) -> PathBuf {
    layers_dir.join(layer).join(format!("living-{label}"))
}
