//! The ground that is written to: the root and the stages beside the targets.
//!
//! The root is opened once. Every other directory is reached from it by one
//! `openat2` that neither leaves it nor follows a link, so a directory that
//! somebody swaps for a link ends the write instead of leading it elsewhere.

use super::disk::At;
use fractal_model::Id;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// The root, open.
pub(super) struct Root {
    fd: OwnedFd,
    /// The directory that was needed last: steps come in the order of a walk.
    last: RefCell<Option<(Vec<u8>, Rc<OwnedFd>)>>,
}

/// A directory and a name in it.
pub(super) struct Place {
    pub dir: Rc<OwnedFd>,
    pub name: CString,
}

impl Place {
    pub fn at(&self) -> At<'_> {
        At { dir: &self.dir, name: &self.name }
    }
}

impl Root {
    /// Opens the root; no part of the way to it may be a link.
    pub fn open(path: &Path) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(CWD, c"/", flags, Mode::empty())?;
        let bytes = path.as_os_str().as_bytes();
        let below = bytes.strip_prefix(b"/").ok_or(Errno::INVAL)?;
        let below = below.strip_suffix(b"/").unwrap_or(below);
        Ok(Root { fd: open_beneath(&top, below)?, last: RefCell::new(None) })
    }

    /// A directory below it, by its path from there.
    pub fn dir(&self, relative: &[u8]) -> io::Result<Rc<OwnedFd>> {
        if let Some((path, fd)) = &*self.last.borrow()
            && path == relative
        {
            return Ok(fd.clone());
        }
        let fd = Rc::new(open_beneath(&self.fd, relative)?);
        *self.last.borrow_mut() = Some((relative.to_vec(), fd.clone()));
        Ok(fd)
    }

    /// The directory that holds a path, and the name there.
    pub fn place(&self, relative: &[u8]) -> io::Result<Place> {
        let (parent, name) = split(relative);
        Ok(Place { dir: self.dir(parent)?, name: c_name(name) })
    }

    /// To be called when a directory was put where something else was, or
    /// taken away: what is remembered may be another one now.
    pub fn forget(&self) {
        *self.last.borrow_mut() = None;
    }
}

/// The path of the parent and the name; the root itself is called `.`.
pub(super) fn split(relative: &[u8]) -> (&[u8], &[u8]) {
    match relative.iter().rposition(|byte| *byte == b'/') {
        Some(cut) => (&relative[..cut], &relative[cut + 1..]),
        None if relative.is_empty() => (b"", b"."),
        None => (b"", relative),
    }
}

/// Opens a directory below another without leaving it or following a link.
pub(super) fn open_beneath(at: impl AsFd, relative: &[u8]) -> Result<OwnedFd, Errno> {
    open_there(at, relative, OFlags::PATH | OFlags::DIRECTORY)
}

/// The same for anything, with other flags. It never waits for a fifo.
pub(super) fn open_there(at: impl AsFd, relative: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    // A rename anywhere on the way makes the kernel ask for another try.
    const RETRIES_MAX: u32 = 64;
    let fence = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let path: &[u8] = if relative.is_empty() { b"." } else { relative };
    let mut left = RETRIES_MAX;
    loop {
        match rustix::fs::openat2(&at, path, flags, Mode::empty(), fence) {
            Err(Errno::AGAIN | Errno::INTR) if left > 0 => left -= 1,
            answer => return answer,
        }
    }
}

/// Opens a directory of ours for listing.
pub(super) fn open_listed(at: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    open_there(at, name.to_bytes(), OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Which filesystem, through which mount: entries can only be renamed within.
pub(super) fn filesystem(dir: &OwnedFd) -> io::Result<(u64, u64)> {
    use rustix::fs::{AtFlags, StatxFlags};
    let device = rustix::fs::fstat(dir)?.st_dev;
    let mount = rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    Ok((device, mount.map_or(0, |status| status.stx_mnt_id)))
}

/// The name of a stage: the end of the id is where the dice are.
pub(super) fn stage_name(id: Id) -> CString {
    c_name(format!(".fractal-{}", &id.as_str()[16..]).as_bytes())
}

pub(super) fn c_name(name: &[u8]) -> CString {
    CString::new(name).expect("a path holds no NUL")
}

/// Whether a directory holds nothing.
pub(super) fn is_empty(dir: &OwnedFd, name: &CStr) -> io::Result<bool> {
    let listed = open_listed(dir, name)?;
    for entry in rustix::fs::Dir::read_from(&listed)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}
