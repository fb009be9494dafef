//! Making an entry exactly like another, marks of the overlay included.
//!
//! Elsewhere in this module layers are read with suspicion and little of what
//! they say is believed. Here one layer becomes part of another, which is read
//! with the same suspicion later, so everything is kept: set-uid bits, owners,
//! attributes, times. Nothing is followed, and what is made is made in
//! directories of ours that nobody else has seen yet.

use super::compare::{next_data, next_hole};
use super::copy::copy_content;
use super::open::{self, Scope};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// A name in an open directory; `.` is the directory itself.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: &'a CStr,
}

impl<'a> At<'a> {
    pub fn new(dir: &'a impl AsFd, name: &'a CStr) -> At<'a> {
        At { dir: dir.as_fd(), name }
    }

    /// For calls that take no directory. The last part is never followed by
    /// those used here, and the part before it is a descriptor.
    fn path(self) -> CString {
        let start = format!("/proc/self/fd/{}/", self.dir.as_raw_fd()).into_bytes();
        CString::new([start.as_slice(), self.name.to_bytes()].concat())
            .expect("a name holds no NUL")
    }
}

/// Bytes copied between two looks at whether to go on.
const STRETCH_BYTES: u64 = 64 << 20;

/// Makes a regular file with the content of another; sharing its blocks where
/// the filesystem can. False when it was told to stop.
pub(super) fn copy_file(
    from: At<'_>,
    to: At<'_>,
    go_on: &mut dyn FnMut() -> bool,
) -> io::Result<bool> {
    let source = open_source(from)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let target = File::from(rustix::fs::openat(to.dir, to.name, flags, mode)?);
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok(true);
    }
    let meta = source.metadata()?;
    let size = meta.len();
    let sparse = meta.blocks().saturating_mul(512) < size;
    let mut at = 0;
    while at < size {
        if !go_on() {
            return Ok(false);
        }
        let end = if sparse {
            at = next_data(&source, at, size)?;
            next_hole(&source, at, size)?
        } else {
            size
        };
        at = match copy_stretch(&source, &target, at, end.min(at.saturating_add(STRETCH_BYTES))) {
            Ok(at) => at,
            // Not between these two, not on this filesystem, not on this kernel.
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                copy_content(&source, &target, size)?;
                size
            }
            Err(errno) => return Err(errno.into()),
        };
    }
    target.set_len(size)?;
    Ok(true)
}

/// Copies inside the kernel; returns how far it came, `end` if it shrank.
fn copy_stretch(source: &File, target: &File, mut at: u64, end: u64) -> Result<u64, Errno> {
    while at < end {
        let (mut from, mut to) = (at, at);
        let want = usize::try_from(end - at).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), want)? {
            0 => return Ok(end),
            count => at += count as u64,
        }
    }
    Ok(at)
}

/// Opens a regular file, also one whose mode forbids it to its own owner. For
/// the two calls between, the mode is not what it was; nobody runs meanwhile.
fn open_source(from: At<'_>) -> Result<File, Errno> {
    match open::file(from.dir, from.name, Scope::Layer) {
        Err(Errno::ACCESS) => {}
        answer => return answer.map(|(file, _)| file),
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(from.dir, from.name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode & 0o7777);
    let fixed = format!("/proc/self/fd/{}", handle.as_raw_fd());
    rustix::fs::chmodat(CWD, fixed.as_str(), mode | Mode::RUSR, AtFlags::empty())?;
    let opened = open::file(from.dir, from.name, Scope::Layer);
    rustix::fs::chmodat(CWD, fixed.as_str(), mode, AtFlags::empty())?;
    opened.map(|(file, _)| file)
}

/// Makes what is neither a regular file nor a directory: a deletion, a
/// symlink, a fifo, a socket, a device.
pub(super) fn make_special(from: At<'_>, to: At<'_>, stat: &Stat) -> Result<(), Errno> {
    match open::file_type(stat) {
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from.dir, from.name, Vec::new())?;
            rustix::fs::symlinkat(&target, to.dir, to.name)
        }
        kind => rustix::fs::mknodat(to.dir, to.name, kind, Mode::empty(), stat.st_rdev),
    }
}

/// Gives `to` the owner, attributes, mode and times of `from`; of attributes
/// only those that `keeps` takes.
///
/// In this order: giving a file away clears set-uid bits and capabilities, and
/// a file that may not be written takes no attributes.
pub(super) fn dress(
    from: At<'_>,
    to: At<'_>,
    stat: &Stat,
    keeps: impl Fn(&[u8]) -> bool,
) -> Result<(), Errno> {
    give_away(to, stat)?;
    for (name, value) in attributes(from)?.into_iter().filter(|(name, _)| keeps(name.to_bytes())) {
        let set = rustix::fs::lsetxattr(to.path(), &name, &value, rustix::fs::XattrFlags::empty());
        match set {
            // What only root may set was not set by a program inside.
            Err(Errno::PERM | Errno::NOTSUP) if !is_ours(name.to_bytes()) => {}
            answer => answer?,
        }
    }
    if open::file_type(stat) != FileType::Symlink {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        rustix::fs::chmodat(to.dir, to.name, mode, AtFlags::empty())?;
    }
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as _),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as _),
    };
    rustix::fs::utimensat(to.dir, to.name, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn give_away(to: At<'_>, stat: &Stat) -> Result<(), Errno> {
    let now = open::status(to.dir, to.name)?;
    if (now.st_uid, now.st_gid) == (stat.st_uid, stat.st_gid) {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    match rustix::fs::chownat(to.dir, to.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
        // In layers of an unprivileged user owners say nothing.
        Err(Errno::PERM) if now.st_uid != 0 => Ok(()),
        answer => answer,
    }
}

/// Whether an attribute carries meaning that must not be lost.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"user.")
}

/// The kernel's bound for a value and for a list of names.
const ATTRIBUTE_BYTES_MAX: usize = 64 * 1024;

fn attributes(at: At<'_>) -> Result<Vec<(CString, Vec<u8>)>, Errno> {
    let path = at.path();
    match rustix::fs::llistxattr_query(&path) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        answer => answer?,
    };
    let mut buffer = vec![0u8; ATTRIBUTE_BYTES_MAX];
    let length = rustix::fs::llistxattr(&path, &mut buffer[..])?;
    let names: Vec<CString> = buffer[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| CString::new(name).expect("split at every NUL"))
        .collect();
    let mut list = Vec::with_capacity(names.len());
    for name in names {
        match rustix::fs::lgetxattr(&path, &name, &mut buffer[..]) {
            Ok(length) => list.push((name, buffer[..length].to_vec())),
            Err(Errno::NODATA | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(list)
}
