//! Files in a directory that was opened once.
//!
//! Nothing here follows a link or waits for the other end of a pipe: what an
//! agent leaves in a bundle cannot lead out of it. A file appears whole under
//! its name or not at all.

use crate::{IndexError, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// An open directory.
pub(super) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

/// What may stand under a name before something is written there.
#[derive(Clone, Copy)]
pub(super) enum Over {
    /// Nothing.
    Nothing,
    /// A file with this mode, which is kept.
    File { mode: Mode },
}

impl Dir {
    /// Opens a directory. Its own name must not be a link.
    pub(super) fn open(path: &Path) -> Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
        let fd = rustix::fs::open(path, flags, Mode::empty());
        Ok(Dir { fd: fd.map_err(|errno| IndexError::io("open", path, errno))?, path: path.into() })
    }

    /// Goes down name by name.
    pub(super) fn beneath(self, relative: &Path) -> Result<Dir> {
        relative.components().try_fold(self, |dir, component| match component {
            Component::Normal(name) => dir.child(name),
            _ => Err(outside(relative)),
        })
    }

    fn child(&self, name: &OsStr) -> Result<Dir> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        Ok(Dir { fd: fd.map_err(|errno| IndexError::io("open", &path, errno))?, path })
    }

    /// A directory within, made if it is missing.
    pub(super) fn made(&self, name: &str) -> Result<Dir> {
        match self.made_new(name) {
            Err(IndexError::Exists { .. }) => self.child(OsStr::new(name)),
            made => made,
        }
    }

    /// A directory within that was not there before.
    pub(super) fn made_new(&self, name: &str) -> Result<Dir> {
        let path = self.path.join(name);
        match rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(IndexError::Exists { path }),
            Err(errno) => return Err(IndexError::io("create", &path, errno)),
        }
        self.sync()?;
        self.child(OsStr::new(name))
    }

    /// Opens a regular file for reading, with its length and mode.
    pub(super) fn file(&self, name: &OsStr) -> Result<(File, u64, Mode)> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::NOCTTY | ALWAYS;
        regular(rustix::fs::openat(&self.fd, name, flags, Mode::empty()), &path)
    }

    /// Writes a file under a name at once, and returns where it lies.
    pub(super) fn write(&self, name: &str, bytes: &[u8], over: Over) -> Result<PathBuf> {
        let path = self.path.join(name);
        let (temporary, file) = self.temporary(over)?;
        let written = fill(file, bytes, over)
            .map_err(|error| IndexError::io("write", &path, error))
            .and_then(|()| self.put(&temporary, name, over));
        if let Err(error) = written {
            // Best effort: what is wrong has been found out already.
            let _ = rustix::fs::unlinkat(&self.fd, &temporary, AtFlags::empty());
            return Err(error);
        }
        self.sync()?;
        Ok(path)
    }

    fn temporary(&self, over: Over) -> Result<(String, File)> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        const TRIES_MAX: usize = 1000;
        let mode = match over {
            Over::Nothing => 0o644,
            // Until it has the mode of the old one nobody else reads it.
            Over::File { .. } => 0o600,
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | ALWAYS;
        let process = std::process::id();
        for _ in 0..TRIES_MAX {
            let name = format!(".new-{process}-{}.tmp", COUNT.fetch_add(1, Ordering::Relaxed));
            match rustix::fs::openat(&self.fd, &name, flags, Mode::from_raw_mode(mode)) {
                Ok(fd) => return Ok((name, File::from(fd))),
                // Left by a process that had the same number and was killed.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(IndexError::io("write in", &self.path, errno)),
            }
        }
        Err(IndexError::io("write in", &self.path, Errno::EXIST))
    }

    fn put(&self, temporary: &str, name: &str, over: Over) -> Result<()> {
        let fd = &self.fd;
        let renamed = match over {
            Over::File { .. } => rustix::fs::renameat(fd, temporary, fd, name),
            Over::Nothing => {
                match rustix::fs::renameat_with(fd, temporary, fd, name, RenameFlags::NOREPLACE) {
                    // A file system that cannot; a second name is as exclusive.
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        rustix::fs::linkat(fd, temporary, fd, name, AtFlags::empty())
                            .and_then(|()| rustix::fs::unlinkat(fd, temporary, AtFlags::empty()))
                    }
                    renamed => renamed,
                }
            }
        };
        let path = self.path.join(name);
        renamed.map_err(|errno| match errno {
            Errno::EXIST => IndexError::Exists { path },
            errno => IndexError::io("rename to", &path, errno),
        })
    }

    fn sync(&self) -> Result<()> {
        match rustix::fs::fsync(&self.fd) {
            // File systems that have no such thing for directories.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
            Err(errno) => Err(IndexError::io("sync", &self.path, errno)),
        }
    }

    /// The handle, for locks.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// Opens a regular file by its path; the last name must not be a link.
pub(super) fn open_file(path: &Path) -> Result<(File, u64, Mode)> {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | ALWAYS;
    regular(rustix::fs::open(path, flags, Mode::empty()), path)
}

/// At most `bytes_max` bytes of a file from its beginning.
pub(super) fn read(file: File, path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max)
        .read_to_end(&mut bytes)
        .map_err(|error| IndexError::io("read", path, error))?;
    Ok(bytes)
}

/// A path that does not lie where it has to.
pub(super) fn outside(path: &Path) -> IndexError {
    IndexError::Invalid(format!("{} does not lie in the bundle", path.display()))
}

fn regular(opened: rustix::io::Result<OwnedFd>, path: &Path) -> Result<(File, u64, Mode)> {
    let fd = opened.map_err(|errno| match errno {
        Errno::LOOP => IndexError::NotAFile { path: path.into() },
        errno => IndexError::io("open", path, errno),
    })?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| IndexError::io("read", path, errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(IndexError::NotAFile { path: path.into() });
    }
    let length = u64::try_from(stat.st_size).unwrap_or(0);
    Ok((File::from(fd), length, Mode::from_raw_mode(stat.st_mode & 0o777)))
}

fn fill(mut file: File, bytes: &[u8], over: Over) -> std::io::Result<()> {
    file.write_all(bytes)?;
    if let Over::File { mode } = over {
        rustix::fs::fchmod(&file, mode)?;
    }
    file.sync_all()
}
