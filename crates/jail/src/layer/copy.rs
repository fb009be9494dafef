//! Copying out of a view into a directory of the host.
//!
//! The source is hostile and the destination may hold anything, so neither is
//! ever followed: the destination is a descriptor that the caller opened once,
//! new files appear under a temporary name and are renamed into place, and
//! what cannot safely exist on the host (devices, fifos, set-uid bits) stays
//! behind and is counted. Of attributes only what programs noted themselves
//! comes along.

use super::compare::{next_data, next_hole};
use super::dir::{Dir, Found};
use super::error::is_fatal;
use super::open::{self, Scope};
use super::view::{View, split};
use super::walk::join;
use super::{Attributes, Bounds, Entry, LayerError, Result};
use fractal_model::{EntryKind, SandboxPath};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::collections::HashMap;
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
    /// The copy stands in for the original: times and hard links are kept,
    /// fifos and sockets leave an inert entry of their kind, and an entry that
    /// cannot be copied is an error, since its absence would look deleted.
    pub exact: bool,
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
    let mut copy = Copy {
        view,
        options,
        done: Copied::default(),
        entries: 0,
        target: to,
        links: HashMap::new(),
    };
    if entry.is_dir() {
        copy.tree(from, &entry, to, &name)?;
    } else {
        let missing = || LayerError::NotFound { path: from.clone() };
        let (parent, leaf) = split(from).ok_or_else(missing)?;
        let dir = view.dir(&parent).map_err(|errno| fail(from, errno))?.ok_or_else(missing)?;
        let Ok(Found::Entry(entry, at)) = dir.find(view, &leaf, 0) else { return Err(missing()) };
        copy.leaf(&dir, &leaf, at, &entry, Place { dir: to, name: &name, above: b"" })?;
    }
    Ok(copy.done)
}

struct Copy<'a> {
    view: &'a View,
    options: &'a CopyOptions,
    done: Copied,
    entries: u64,
    /// The directory that the copy is made in.
    target: BorrowedFd<'a>,
    /// Copies of files with several names: where the first one is, from
    /// `target`.
    links: HashMap<(u64, u64), CString>,
}

struct Frame {
    from: Dir,
    to: OwnedFd,
    /// Where `to` is, from the copy's target.
    at: Vec<u8>,
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
        let first = self.open_pair(dir, entry, to, name, b"")?;
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
                    if let Some(entry) = &done.finish {
                        let attributes = done.from.attributes(c".", 0);
                        let attributes = self.readable(&done.from.path, attributes)?;
                        self.finish(&done.to, entry, &attributes);
                    }
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
                    let next = self.open_pair(dir, &entry, frame.to.as_fd(), &name, &frame.at)?;
                    stack.push(next);
                }
                Err(errno) => self.unreadable(&frame.from.path, &name, errno)?,
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
        above: &[u8],
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
        let at = below(above, name);
        let mut frame = Frame { from, to, at, todo: Vec::new(), finish };
        self.fill(&mut frame)?;
        Ok(frame)
    }

    fn fill(&mut self, frame: &mut Frame) -> Result<()> {
        let path = frame.from.path.clone();
        let room = self.options.bounds.entries_max.saturating_sub(self.entries);
        let listing = frame.from.list(room).map_err(|errno| fail(&path, errno))?;
        self.done.truncated |= listing.truncated;
        if listing.unreadable {
            self.unreadable(&path, c".", Errno::ACCESS)?;
        }
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
                        let to = Place { dir: frame.to.as_fd(), name: &name, above: &frame.at };
                        self.leaf(&frame.from, &name, at, &entry, to)?;
                    }
                }
                Ok(Found::Absent | Found::Whiteout) => {}
                Err(errno) => self.unreadable(&path, &name, errno)?,
            }
        }
        Ok(())
    }

    /// Attributes that cannot be read are left behind; an exact copy without
    /// them is none, unless what had them merely went away meanwhile.
    fn readable(
        &mut self,
        path: &SandboxPath,
        read: std::result::Result<Attributes, Errno>,
    ) -> Result<Attributes> {
        match read {
            Err(Errno::NOENT) => Ok(Attributes::default()),
            Err(errno) if self.options.exact => Err(LayerError::attributes(path, errno)),
            Err(_) => {
                self.done.unreadable += 1;
                Ok(Attributes::default())
            }
            Ok(attributes) => Ok(attributes),
        }
    }

    /// Counts what cannot be read; in an exact copy it is an error, unless the
    /// entry merely went away meanwhile.
    fn unreadable(&mut self, dir: &SandboxPath, name: &CStr, errno: Errno) -> Result<()> {
        let gone = errno == Errno::NOENT;
        if is_fatal(errno) || (self.options.exact && !gone) {
            let path = if name == c"." {
                dir.to_string()
            } else {
                format!("{}/{}", dir.to_string().trim_end_matches('/'), name.to_string_lossy())
            };
            return Err(LayerError::io("copy", path, errno));
        }
        self.done.unreadable += 1;
        Ok(())
    }

    fn leaf(
        &mut self,
        dir: &Dir,
        from: &CStr,
        at: usize,
        entry: &Entry,
        to: Place<'_>,
    ) -> Result<()> {
        let cannot = |error: io::Error| LayerError::Io {
            verb: "write",
            path: format!("{}/{}", dir.path, from.to_string_lossy()),
            source: error,
        };
        match entry.kind {
            EntryKind::File => match dir.open_file(from, at) {
                Ok(source) => {
                    let attributes = self.readable(&dir.path, Attributes::of(&source))?;
                    self.file(&source, entry, &attributes, to).map_err(cannot)?;
                }
                Err(errno) => self.unreadable(&dir.path, from, errno)?,
            },
            EntryKind::Symlink => {
                self.symlink(entry, to).map_err(|errno| cannot(errno.into()))?;
            }
            EntryKind::Special if self.options.exact => {
                let made = stand_in(entry, to).map_err(|errno| cannot(errno.into()))?;
                if !made {
                    self.unreadable(&dir.path, from, Errno::PERM)?;
                }
                self.done.skipped += 1;
            }
            EntryKind::Directory | EntryKind::Special => self.done.skipped += 1,
        }
        Ok(())
    }

    fn symlink(&mut self, entry: &Entry, to: Place<'_>) -> rustix::io::Result<()> {
        let target = entry.target.as_deref().unwrap_or_default();
        let temporary = temporary_name();
        rustix::fs::symlinkat(target, to.dir, &temporary)?;
        if self.options.keep_owner {
            let (uid, gid) = owner(entry);
            let _ = rustix::fs::chownat(to.dir, &temporary, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
        }
        if self.options.exact {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let _ = rustix::fs::utimensat(to.dir, &temporary, &times(entry), flags);
        }
        place(to.dir, &temporary, to.name)?;
        self.done.symlinks += 1;
        Ok(())
    }

    fn file(
        &mut self,
        source: &File,
        entry: &Entry,
        attributes: &Attributes,
        to: Place<'_>,
    ) -> io::Result<()> {
        let meta = source.metadata()?;
        let size = meta.len();
        let linked = (self.options.exact && meta.nlink() > 1).then(|| (meta.dev(), meta.ino()));
        if let Some(first) = linked.and_then(|file| self.links.get(&file)) {
            let flags = AtFlags::empty();
            if rustix::fs::linkat(self.target, first, to.dir, to.name, flags).is_ok() {
                self.done.files += 1;
                return Ok(());
            }
        }
        if self.done.bytes.saturating_add(size) > self.options.bounds.bytes_max {
            self.done.truncated = true;
            return Ok(());
        }
        let temporary = temporary_name();
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Private until it is complete and has its final mode.
        let target =
            File::from(rustix::fs::openat(to.dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
        let written = copy_content(source, &target, size).and_then(|()| {
            self.finish(&target, entry, attributes);
            Ok(place(to.dir, &temporary, to.name)?)
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(to.dir, &temporary, AtFlags::empty());
        }
        written?;
        if let Some(file) = linked {
            self.links.extend(CString::new(below(to.above, to.name)).map(|at| (file, at)));
        }
        self.done.files += 1;
        self.done.bytes += size;
        Ok(())
    }

    /// Owner first: giving a file away clears mode bits on some filesystems.
    /// Not being allowed to is no failure of the copy.
    fn finish(&self, target: impl AsFd, entry: &Entry, attributes: &Attributes) {
        if self.options.keep_owner {
            let (uid, gid) = owner(entry);
            let _ = rustix::fs::fchown(&target, uid, gid);
        }
        let _ = attributes.give(&target);
        let _ = rustix::fs::fchmod(&target, Mode::from_raw_mode(entry.mode));
        if self.options.exact {
            let _ = rustix::fs::futimens(&target, &times(entry));
        }
    }
}

/// Where a leaf goes.
#[derive(Clone, Copy)]
struct Place<'a> {
    dir: BorrowedFd<'a>,
    name: &'a CStr,
    /// Where `dir` is, from the copy's target.
    above: &'a [u8],
}

fn below(above: &[u8], name: &CStr) -> Vec<u8> {
    let slash: &[u8] = if above.is_empty() { b"" } else { b"/" };
    [above, slash, name.to_bytes()].concat()
}

/// A fifo or socket of our own, which nobody listens on. False for devices,
/// which an ordinary user cannot make.
fn stand_in(entry: &Entry, to: Place<'_>) -> rustix::io::Result<bool> {
    let kind = entry.raw.kind;
    if !matches!(kind, FileType::Fifo | FileType::Socket) {
        return Ok(false);
    }
    rustix::fs::mknodat(to.dir, to.name, kind, Mode::RUSR, 0)?;
    let mode = Mode::from_raw_mode(entry.mode & 0o777);
    rustix::fs::chmodat(to.dir, to.name, mode, AtFlags::empty())?;
    Ok(true)
}

fn times(entry: &Entry) -> Timestamps {
    const SECOND_NS: i64 = 1_000_000_000;
    let time = Timespec {
        tv_sec: entry.mtime_ns.div_euclid(SECOND_NS) as _,
        tv_nsec: entry.mtime_ns.rem_euclid(SECOND_NS) as _,
    };
    Timestamps { last_access: time, last_modification: time }
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
/// source grows meanwhile. Blocks are shared where the filesystem can.
pub(super) fn copy_content(source: &File, target: &File, size: u64) -> io::Result<()> {
    // It takes the file as long as it is now, so a file that grew is cut.
    if size > 0 && rustix::fs::ioctl_ficlone(target, source).is_ok() {
        return target.set_len(size.min(target.metadata()?.len()));
    }
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
