//! Writing one entry back to a host directory that was opened for it.
//!
//! New content is written beside its place and renamed over it, so that
//! nobody sees half a file. What is not what the view was made from is
//! somebody's edit and stays.

use super::beneath::{Beneath, fault, kind, stamp};
use super::read_range;
use crate::error::{Fault, Kind};
use crate::source::{After, Before, Edit};
use bytes::Bytes;
use fractal_model::SandboxPath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// The policy that lets a host directory be written: it names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBack {
    dir: PathBuf,
}

impl WriteBack {
    /// Lets this directory be written, and all below it.
    pub fn to(dir: impl Into<PathBuf>) -> WriteBack {
        WriteBack { dir: dir.into() }
    }

    /// Whether the directory that was opened is the one it names.
    pub(super) fn check(&self, opened: &Beneath) -> Result<(), Fault> {
        let (named, opened) = (Beneath::open(&self.dir)?.stat()?, opened.stat()?);
        match (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino) {
            true => Ok(()),
            false => {
                let reason = format!("only {} may be written back to", self.dir.display());
                Err(Fault::because(Kind::Denied, reason))
            }
        }
    }
}

pub(super) fn write(root: &Beneath, at: &SandboxPath, edit: &Edit) -> Result<(), Fault> {
    let (Some(parent), Some(name)) = (at.parent(), at.components().last()) else {
        return Err(Fault::because(Kind::Busy, "the directory itself stays"));
    };
    let dir = root.dir(&parent)?;
    let now = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(fault(errno, "on the host")),
    };
    if let Some(stat) = &now
        && is_done(&dir, name, stat, &edit.after)?
    {
        return Ok(());
    }
    check_before(&dir, name, now.as_ref(), &edit.before)?;
    // Nothing but a directory is renamed over one; it is empty by now.
    if now.as_ref().is_some_and(|now| kind(now) == FileType::Directory)
        && matches!(edit.after, After::File(..) | After::Link(_))
    {
        remove(&dir, name, now.as_ref())?;
    }
    // A new name must not replace what comes up meanwhile.
    let new = edit.before == Before::Nothing;
    match &edit.after {
        After::Nothing if now.is_none() => Ok(()),
        After::Nothing => remove(&dir, name, now.as_ref()),
        After::Dir(mode) => put_dir(&dir, name, *mode, now.as_ref()),
        After::Link(target) => put(&dir, name, new, |dir, beside| {
            let made = rustix::fs::symlinkat(target.as_slice(), dir, beside);
            made.map_err(|errno| fault(errno, "making the link"))
        }),
        After::File(content, mode, modified_ns) => put(&dir, name, new, |dir, beside| {
            write_file(dir, beside, content, *mode, *modified_ns)
        }),
    }
}

/// Whether it already is what it is to be: a write-back that failed half way
/// is begun anew.
fn is_done(dir: &OwnedFd, name: &[u8], now: &Stat, after: &After) -> Result<bool, Fault> {
    Ok(match (after, kind(now)) {
        (After::Dir(mode), FileType::Directory) => now.st_mode & 0o777 == mode & 0o777,
        (After::Link(target), FileType::Symlink) => link_at(dir, name) == *target,
        (After::File(content, mode, _), FileType::RegularFile) => {
            now.st_size as u64 == content.len() as u64
                && now.st_mode & 0o777 == mode & 0o777
                && file_at(dir, name, now)? == *content
        }
        _ => false,
    })
}

fn check_before(
    dir: &OwnedFd,
    name: &[u8],
    now: Option<&Stat>,
    before: &Before,
) -> Result<(), Fault> {
    let same = match (before, now) {
        (Before::Nothing, None) => true,
        (_, None) | (Before::Nothing, Some(_)) => false,
        (Before::Dir, Some(now)) => kind(now) == FileType::Directory,
        (Before::Link(target), Some(now)) => {
            kind(now) == FileType::Symlink && link_at(dir, name) == *target
        }
        (Before::File(known), Some(now)) => {
            kind(now) == FileType::RegularFile && known.is_none_or(|known| known == stamp(now))
        }
    };
    match same {
        true => Ok(()),
        false => Err(Fault::because(Kind::Changed, "the host has something else there by now")),
    }
}

fn link_at(dir: &OwnedFd, name: &[u8]) -> Vec<u8> {
    rustix::fs::readlinkat(dir, name, Vec::new()).map(|link| link.into_bytes()).unwrap_or_default()
}

fn file_at(dir: &OwnedFd, name: &[u8], now: &Stat) -> Result<Bytes, Fault> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty());
    let file = file.map_err(|errno| fault(errno, "on the host"))?;
    let size = now.st_size as u64;
    read_range(&file, 0..size + 1, size)
}

fn remove(dir: &OwnedFd, name: &[u8], now: Option<&Stat>) -> Result<(), Fault> {
    let flags = match now.map(kind) {
        Some(FileType::Directory) => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    let removed = rustix::fs::unlinkat(dir, name, flags);
    removed.and_then(|()| rustix::fs::fsync(dir)).map_err(|errno| fault(errno, "removing it"))
}

fn put_dir(dir: &OwnedFd, name: &[u8], mode: u32, now: Option<&Stat>) -> Result<(), Fault> {
    let mode = Mode::from_raw_mode((mode & 0o777) as _);
    if now.is_some_and(|now| kind(now) != FileType::Directory) {
        remove(dir, name, now)?;
    }
    let put = || {
        if now.is_none_or(|now| kind(now) != FileType::Directory) {
            rustix::fs::mkdirat(dir, name, mode)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        rustix::fs::fchmod(&made, mode)?;
        rustix::fs::fsync(dir)
    };
    put().map_err(|errno| fault(errno, "making the directory"))
}

/// Makes something beside its place and moves it there.
fn put(
    dir: &OwnedFd,
    name: &[u8],
    new: bool,
    make: impl FnOnce(&OwnedFd, &str) -> Result<(), Fault>,
) -> Result<(), Fault> {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let beside = format!(".fractal-{}-{number}", std::process::id());
    let done = make(dir, &beside).and_then(|()| {
        let moved = match new {
            true => move_new(dir, &beside, name),
            false => rustix::fs::renameat(dir, beside.as_str(), dir, name),
        };
        let moved = moved.map_err(|errno| match errno {
            Errno::EXIST => Fault::because(Kind::Changed, "the host has something there by now"),
            errno => fault(errno, "moving it into its place"),
        });
        moved.and_then(|()| rustix::fs::fsync(dir).map_err(|errno| fault(errno, "the directory")))
    });
    if done.is_err() {
        // There is nothing to say about it that the first error does not say.
        let _ = rustix::fs::unlinkat(dir, beside.as_str(), AtFlags::empty());
    }
    done
}

#[cfg(target_os = "linux")]
fn move_new(dir: &OwnedFd, beside: &str, name: &[u8]) -> Result<(), Errno> {
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(dir, beside, dir, name, flags) {
        // Some filesystems cannot promise it; that nothing was there was
        // looked up a moment ago.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(dir, beside, dir, name),
        moved => moved,
    }
}

#[cfg(not(target_os = "linux"))]
fn move_new(dir: &OwnedFd, beside: &str, name: &[u8]) -> Result<(), Errno> {
    rustix::fs::renameat(dir, beside, dir, name)
}

fn write_file(
    dir: &OwnedFd,
    name: &str,
    content: &Bytes,
    mode: u32,
    modified_ns: i64,
) -> Result<(), Fault> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let write = || {
        let file = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
        write_at(&file, 0, content)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode((mode & 0o777) as _))?;
        rustix::fs::futimens(&file, &times(modified_ns))?;
        rustix::fs::fsync(&file)
    };
    write().map_err(|errno| fault(errno, "writing it"))
}

/// All of it, however many calls it takes.
pub(crate) fn write_at(file: impl AsFd, at: u64, content: &[u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < content.len() {
        match rustix::io::pwrite(&file, &content[done..], at + done as u64) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(0) => return Err(Errno::IO),
            Ok(more) => done += more,
        }
    }
    Ok(())
}

/// The time of modification, for both times that can be set.
pub(crate) fn times(modified_ns: i64) -> Timestamps {
    let time = Timespec {
        tv_sec: modified_ns.div_euclid(1_000_000_000) as _,
        tv_nsec: modified_ns.rem_euclid(1_000_000_000) as _,
    };
    Timestamps { last_access: time, last_modification: time }
}
