//! The only place where something inside a layer is opened.
//!
//! Every open is an `openat2` that cannot leave the directory it starts from,
//! follows no symlink and never waits: a hostile program chose the names and
//! may still be renaming them.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::fs::File;

/// Which fence an open stays behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// A layer's tree: also never onto another filesystem.
    Layer,
    /// The host's tree, which is made of many filesystems.
    Host,
}

/// `openat2` answers EAGAIN while a rename races with it; a racing thread
/// must not be able to keep us here for ever.
const RETRIES_MAX: u32 = 16;

impl Scope {
    fn resolve(self) -> ResolveFlags {
        let fence = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match self {
            Scope::Layer => fence | ResolveFlags::NO_XDEV,
            Scope::Host => fence,
        }
    }
}

fn fenced(
    at: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    scope: Scope,
) -> Result<OwnedFd, Errno> {
    // NONBLOCK: a fifo or device that was swapped in must not make us wait.
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut left = RETRIES_MAX;
    loop {
        match rustix::fs::openat2(&at, path, flags, Mode::empty(), scope.resolve()) {
            Err(Errno::AGAIN | Errno::INTR) if left > 0 => left -= 1,
            answer => return answer,
        }
    }
}

/// Opens a directory for listing and for opening what is in it. On the host
/// a directory that may be entered but not listed is opened all the same.
pub(super) fn directory(
    at: impl AsFd,
    path: impl Arg + Copy,
    scope: Scope,
) -> Result<OwnedFd, Errno> {
    match fenced(&at, path, OFlags::RDONLY | OFlags::DIRECTORY, scope) {
        Err(Errno::ACCESS) if scope == Scope::Host => path_only(at, path, scope),
        answer => answer,
    }
}

fn path_only(at: impl AsFd, path: impl Arg + Copy, scope: Scope) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(at, path, flags, Mode::empty(), scope.resolve())
}

/// Opens a regular file for reading; anything else is refused with EINVAL.
///
/// The look before the open keeps us from touching devices, whose drivers may
/// act on an open; the look after it is the one that counts, since the name
/// may have been swapped between the two.
pub(super) fn file(
    at: impl AsFd,
    path: impl Arg + Copy,
    scope: Scope,
) -> Result<(File, Stat), Errno> {
    if file_type(&status(&at, path)?) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let fd = fenced(at, path, OFlags::RDONLY, scope)?;
    let stat = rustix::fs::fstat(&fd)?;
    match file_type(&stat) {
        FileType::RegularFile => Ok((File::from(fd), stat)),
        _ => Err(Errno::INVAL),
    }
}

/// What stands at a single name, without following or mounting anything.
pub(super) fn status(at: impl AsFd, name: impl Arg) -> Result<Stat, Errno> {
    rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
