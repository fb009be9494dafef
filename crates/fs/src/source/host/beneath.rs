//! Paths beneath a directory that was opened once.
//!
//! Nothing here follows a symlink, climbs above the handle or waits for the
//! other end of a fifo.

use crate::error::{Fault, Kind};
use crate::source::Stamp;
use fractal_model::SandboxPath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// What every handle is opened with: a fifo that stands where a file stood
/// does not make anybody wait.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// A directory handle beneath which paths are resolved.
pub(crate) struct Beneath(OwnedFd);

impl Beneath {
    /// Opens the directory itself; its own path may lead through links.
    pub(crate) fn open(dir: &Path) -> Result<Beneath, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(dir, flags, Mode::empty());
        let opened = opened.map_err(|errno| fault(errno, &format!("{}", dir.display())));
        Ok(Beneath(opened?))
    }

    pub(crate) fn stat(&self) -> Result<Stat, Fault> {
        rustix::fs::fstat(&self.0).map_err(|errno| fault(errno, "the directory"))
    }

    /// Opens a directory for listing and for names in it.
    pub(crate) fn dir(&self, at: &SandboxPath) -> Result<OwnedFd, Fault> {
        self.open_at(at, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens a file for reading, if it is a regular one.
    pub(crate) fn file(&self, at: &SandboxPath) -> Result<(OwnedFd, Stat), Fault> {
        let fd = self.open_at(at, OFlags::RDONLY | OFlags::NOCTTY)?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| fault(errno, "on the host"))?;
        match kind(&stat) {
            FileType::RegularFile => Ok((fd, stat)),
            _ => Err(Fault::because(Kind::Changed, "it is no file on the host any more")),
        }
    }

    fn open_at(&self, at: &SandboxPath, flags: OFlags) -> Result<OwnedFd, Fault> {
        let path = at.relative();
        let path = if path.is_empty() { b".".as_slice() } else { path };
        let opened = match whole(&self.0, path, flags | ALWAYS) {
            // An old kernel, or a filter that does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => step_by_step(&self.0, at, flags | ALWAYS),
            opened => opened,
        };
        opened.map_err(|errno| fault(errno, "on the host"))
    }
}

/// In one call, which the kernel keeps beneath the handle.
#[cfg(target_os = "linux")]
fn whole(root: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
            // Something was renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn whole(_: &OwnedFd, _: &[u8], _: OFlags) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// Name by name, each of which must not be a link. There are no dots in a
/// path, so there is no way up.
fn step_by_step(root: &OwnedFd, at: &SandboxPath, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut names: Vec<&[u8]> = at.components().collect();
    let last = names.pop().unwrap_or(b".");
    let between = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
    let mut dir: Option<OwnedFd> = None;
    for name in names {
        let from = dir.as_ref().map_or(root.as_fd(), AsFd::as_fd);
        dir = Some(rustix::fs::openat(from, name, between, Mode::empty())?);
    }
    let from = dir.as_ref().map_or(root.as_fd(), AsFd::as_fd);
    rustix::fs::openat(from, last, flags, Mode::empty())
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// When the content was written.
pub(crate) fn modified_ns(stat: &Stat) -> i64 {
    nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64)
}

/// When anything about it changed; nobody can set this one.
pub(crate) fn changed_ns(stat: &Stat) -> i64 {
    nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64)
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// What it looks like now. Stamps live as long as the process, so the hash
/// need not be the same in another one.
pub(crate) fn stamp(stat: &Stat) -> Stamp {
    let looks = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mode, modified_ns(stat));
    let mut hasher = DefaultHasher::new();
    looks.hash(&mut hasher);
    Stamp(u128::from(hasher.finish()) << 64 | u128::from(changed_ns(stat) as u64))
}

/// An error of the host in our words.
pub(crate) fn fault(errno: Errno, what: &str) -> Fault {
    let kind = match errno {
        Errno::NOENT => Kind::NotFound,
        Errno::NOTDIR => Kind::NotADirectory,
        Errno::ACCESS | Errno::PERM => Kind::Denied,
        Errno::EXIST => Kind::Exists,
        Errno::NOTEMPTY => Kind::NotEmpty,
        Errno::ROFS => Kind::ReadOnly,
        Errno::NOSPC | Errno::DQUOT => Kind::Full,
        Errno::NAMETOOLONG => Kind::NameTooLong,
        // A link stands where none was.
        Errno::LOOP | Errno::XDEV => Kind::Changed,
        _ => Kind::Source,
    };
    Fault::because(kind, format!("{what}: {}", std::io::Error::from(errno)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn both_ways_stay_beneath_and_follow_no_link() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("in/sub")).unwrap();
        std::fs::write(dir.path().join("in/sub/file"), "x").unwrap();
        std::fs::write(dir.path().join("out"), "secret").unwrap();
        symlink("../out", dir.path().join("in/link")).unwrap();
        symlink("sub", dir.path().join("in/dir")).unwrap();
        let root = Beneath::open(&dir.path().join("in")).unwrap();
        let flags = OFlags::RDONLY | ALWAYS;
        for (path, there) in [("sub/file", true), ("link", false), ("dir/file", false)] {
            let at = SandboxPath::parse(path).unwrap();
            assert_eq!(step_by_step(&root.0, &at, flags).is_ok(), there, "{path}");
            assert_eq!(root.open_at(&at, OFlags::RDONLY).is_ok(), there, "{path}");
        }
        let root_itself = SandboxPath::root();
        assert!(step_by_step(&root.0, &root_itself, flags | OFlags::DIRECTORY).is_ok());
    }
}
