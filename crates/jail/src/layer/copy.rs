//! Copying out of a view into a directory of the host.
//!
//! The source is hostile and the destination may hold anything, so neither is
//! ever followed: the destination is a descriptor that the caller opened once,
//! new files appear under a temporary name and are renamed into place, and
//! what cannot safely exist on the host (devices, fifos, set-uid bits, xattrs)
//! stays behind and is counted.

use super::compare::{next_data, next_hole};
use super::dir::{Dir, Found};
use super::error::is_fatal;
use super::open::{self, Scope};
use super::view::{View, split};
use super::walk::join;
use super::{Bounds, Entry, LayerError, Result};
use fractal_model::{EntryKind, SandboxPath};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};

const CHUNK_BYTES: usize = 256 * 1024;

/// Descriptors held at once; a process may usually have 1024.
const OPEN_MAX: usize = 768;

/// How to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Give the copies the owner seen inside instead of the caller.
    pub keep_owner: bool,
    /// How far to go; `bytes_max` bounds the claimed sizes of what is copied.
    pub bounds: Bounds,
}

/// What was copied and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Directories, including those that existed.
    pub directories: u64,
    /// Symlinks.
    pub symlinks: u64,
    /// Bytes of content, holes included.
    pub bytes: u64,
    /// Fifos, sockets and devices, which stay behind.
    pub skipped: u64,
    /// Entries that could not be read, or vanished meanwhile.
    pub unreadable: u64,
    /// Whether a bound cut it short.
    pub truncated: bool,
}

/// Copies what stands at `from` to `name` in the directory `to`. Files and
/// symlinks there are replaced, directories are filled.
pub fn copy_out(
    view: &View,
    from: &SandboxPath,
    to: BorrowedFd<'_>,
    name: &OsStr,
    options: &CopyOptions,
) -> Result<Copied> {
    let target = SandboxPath::root().join(name.as_bytes()).map_err(|_| LayerError::Io {
        verb: "copy to",
        path: name.display().to_string(),
        source: io::ErrorKind::InvalidInput.into(),
    })?;
    let entry = view.lookup(from)?.ok_or_else(|| LayerError::NotFound { path: from.clone() })?;
    let name = super::view::c_name(target.relative());
    let mut copy = Copy { view, options, done: Copied::default(), entries: 0 };
    if entry.is_dir() {
        copy.tree(from, &entry, to, &name)?;
    } else {
        let missing = || LayerError::NotFound { path: from.clone() };
        let (parent, leaf) = split(from).ok_or_else(missing)?;
        let dir = view.dir(&parent).map_err(|errno| fail(from, errno))?.ok_or_else(missing)?;
        let Ok(Found::Entry(entry, at)) = dir.find(view, &leaf, 0) else { return Err(missing()) };
        copy.leaf(&dir, &leaf, at, &entry, to, &name)?;
    }
    Ok(copy.done)
}

struct Copy<'a> {
    view: &'a View,
    options: &'a CopyOptions,
    done: Copied,
    entries: u64,
}

struct Frame {
    from: Dir,
    to: OwnedFd,
    todo: Vec<(CString, usize, Entry)>,
    /// Set on the way out, so that a read-only directory can be filled.
    finish: Option<Entry>,
}

impl Copy<'_> {
    fn tree(
        &mut self,
        from: &SandboxPath,
        entry: &Entry,
        to: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<()> {
        let missing = || LayerError::NotFound { path: from.clone() };
        let dir = self.view.dir(from).map_err(|errno| fail(from, errno))?.ok_or_else(missing)?;
        let first = self.open_pair(dir, entry, to, name)?;
        // Both sides stay open on the way down: the destination must not be
        // resolved again by path, since others may rename in it.
        let mut open = first.from.width() + 1;
        let mut stack = vec![first];
        loop {
            let depth = stack.len();
            let Some(frame) = stack.last_mut() else { return Ok(()) };
            let Some((name, at, entry)) = frame.todo.pop() else {
                if let Some(done) = stack.pop() {
                    open -= done.from.width() + 1;
                    self.finish(&done.to, done.finish.as_ref());
                }
                continue;
            };
            match frame.from.descend(self.view, &name, at) {
                Ok(dir) => {
                    let width = dir.width() + 1;
                    if depth >= self.options.bounds.depth_max || open + width > OPEN_MAX {
                        self.done.truncated = true;
                        continue;
                    }
                    open += width;
                    let next = self.open_pair(dir, &entry, frame.to.as_fd(), &name)?;
                    stack.push(next);
                }
                Err(errno) if is_fatal(errno) => return Err(fail(&frame.from.path, errno)),
                Err(_) => self.done.unreadable += 1,
            }
        }
    }

    /// Makes the destination directory and copies everything of the source
    /// directory but its subdirectories.
    fn open_pair(
        &mut self,
        from: Dir,
        entry: &Entry,
        to: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<Frame> {
        let cannot = |errno| LayerError::io("write", &from.path, errno);
        let made = match rustix::fs::mkdirat(to, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(cannot(errno)),
        };
        let to = open::directory(to, name, Scope::Host).map_err(cannot)?;
        self.done.directories += 1;
        let finish = made.then(|| entry.clone());
        let mut frame = Frame { from, to, todo: Vec::new(), finish };
        self.fill(&mut frame)?;
        Ok(frame)
    }

    fn fill(&mut self, frame: &mut Frame) -> Result<()> {
        let path = frame.from.path.clone();
        let room = self.options.bounds.entries_max.saturating_sub(self.entries);
        let listing = frame.from.list(room).map_err(|errno| fail(&path, errno))?;
        self.done.truncated |= listing.truncated;
        self.done.unreadable += u64::from(listing.unreadable);
        for (name, at) in listing.names {
            if self.entries >= self.options.bounds.entries_max || join(&path, &name).is_none() {
                self.done.truncated = true;
                continue;
            }
            match frame.from.find(self.view, &name, at) {
                Ok(Found::Entry(entry, at)) => {
                    self.entries += 1;
                    if entry.is_dir() {
                        frame.todo.push((name, at, entry));
                    } else {
                        self.leaf(&frame.from, &name, at, &entry, frame.to.as_fd(), &name)?;
                    }
                }
                Ok(Found::Absent | Found::Whiteout) => {}
                Err(errno) if is_fatal(errno) => return Err(fail(&path, errno)),
                Err(_) => self.done.unreadable += 1,
            }
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        dir: &Dir,
        from: &CStr,
        at: usize,
        entry: &Entry,
        to: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<()> {
        let cannot = |error: io::Error| LayerError::Io {
            verb: "write",
            path: format!("{}/{}", dir.path, from.to_string_lossy()),
            source: error,
        };
        match entry.kind {
            EntryKind::File => match dir.open_file(from, at) {
                Ok(source) => self.file(&source, entry, to, name).map_err(cannot)?,
                Err(errno) if is_fatal(errno) => return Err(fail(&dir.path, errno)),
                Err(_) => self.done.unreadable += 1,
            },
            EntryKind::Symlink => {
                self.symlink(entry, to, name).map_err(|errno| cannot(errno.into()))?;
            }
            EntryKind::Directory | EntryKind::Special => self.done.skipped += 1,
        }
        Ok(())
    }

    fn symlink(
        &mut self,
        entry: &Entry,
        to: BorrowedFd<'_>,
        name: &CStr,
    ) -> rustix::io::Result<()> {
        let target = entry.target.as_deref().unwrap_or_default();
        let temporary = temporary_name();
        rustix::fs::symlinkat(target, to, &temporary)?;
        if self.options.keep_owner {
            let (uid, gid) = owner(entry);
            let _ = rustix::fs::chownat(to, &temporary, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
        }
        place(to, &temporary, name)?;
        self.done.symlinks += 1;
        Ok(())
    }

    fn file(
        &mut self,
        source: &File,
        entry: &Entry,
        to: BorrowedFd<'_>,
        name: &CStr,
    ) -> io::Result<()> {
        let size = source.metadata()?.len();
        if self.done.bytes.saturating_add(size) > self.options.bounds.bytes_max {
            self.done.truncated = true;
            return Ok(());
        }
        let temporary = temporary_name();
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Private until it is complete and has its final mode.
        let target =
            File::from(rustix::fs::openat(to, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
        let written = copy_content(source, &target, size).and_then(|()| {
            self.finish(&target, Some(entry));
            Ok(place(to, &temporary, name)?)
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(to, &temporary, AtFlags::empty());
        }
        written?;
        self.done.files += 1;
        self.done.bytes += size;
        Ok(())
    }

    /// Owner first: giving a file away clears mode bits on some filesystems.
    /// Not being allowed to is no failure of the copy.
    fn finish(&self, target: impl AsFd, entry: Option<&Entry>) {
        let Some(entry) = entry else { return };
        if self.options.keep_owner {
            let (uid, gid) = owner(entry);
            let _ = rustix::fs::fchown(&target, uid, gid);
        }
        let _ = rustix::fs::fchmod(&target, Mode::from_raw_mode(entry.mode & 0o777));
    }
}

fn owner(entry: &Entry) -> (Option<Uid>, Option<Gid>) {
    // The id -1 means "leave as it is" to the kernel, and panics in rustix.
    let valid = |id: u32| (id != u32::MAX).then_some(id);
    (valid(entry.uid).map(Uid::from_raw), valid(entry.gid).map(Gid::from_raw))
}

fn place(to: BorrowedFd<'_>, temporary: &CStr, name: &CStr) -> rustix::io::Result<()> {
    rustix::fs::renameat(to, temporary, to, name).inspect_err(|_| {
        let _ = rustix::fs::unlinkat(to, temporary, AtFlags::empty());
    })
}

fn temporary_name() -> CString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // EXCL refuses a name that exists; the clock makes that unlikely.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let name = format!(
        ".fractal-{}-{:x}-{count}",
        std::process::id(),
        now.map_or(0, |now| now.as_nanos())
    );
    CString::new(name).expect("digits hold no NUL")
}

/// Copies data and keeps holes. Never writes past `size`, even when the
/// source grows meanwhile.
pub(super) fn copy_content(source: &File, target: &File, size: u64) -> io::Result<()> {
    let sparse = source.metadata()?.blocks().saturating_mul(512) < size;
    let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES))];
    let mut at = 0;
    while at < size {
        let end = if sparse {
            at = next_data(source, at, size)?;
            next_hole(source, at, size)?
        } else {
            size
        };
        while at < end {
            let want = buffer.len().min(usize::try_from(end - at).unwrap_or(buffer.len()));
            let got = source.read_at(&mut buffer[..want], at)?;
            if got == 0 {
                return Ok(());
            }
            target.write_all_at(&buffer[..got], at)?;
            at += got as u64;
        }
    }
    target.set_len(size)
}

fn fail(path: &SandboxPath, errno: Errno) -> LayerError {
    LayerError::io("copy", path, errno)
}
