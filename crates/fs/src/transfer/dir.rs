//! A view from and to a directory of the host.

use super::{Coming, Leaving, Out, OutKind};
use crate::about::NewMeta;
use crate::error::{Fault, FsError, Kind, shown};
use crate::source::host::{Beneath, fault, modified_ns, read_range, times, write_at};
use crate::view::Vfs;
use fractal_model::SandboxPath;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use std::collections::BTreeMap;
use std::path::Path;

impl Vfs {
    /// Copies a directory of the host to a path where nothing is yet: files,
    /// directories, links, hard links, holes and `user.` attributes. Links are
    /// copied, never followed. Returns how many entries there were.
    pub fn import_dir(&self, at: &SandboxPath, host: impl AsRef<Path>) -> Result<u64, FsError> {
        let root = Beneath::open(host.as_ref()).map_err(|fault| fault.at(&shown(at)))?;
        let mut arriving =
            Arriving { root, coming: Coming::new(self.limits()), seen: BTreeMap::new() };
        arriving.dir(&SandboxPath::root())?;
        arriving.coming.arrive(self, at)
    }

    /// Copies all below a path into a directory of the host that is made for
    /// it. Permission bits, links, hard links, times, holes and attributes
    /// stay; owners do not, nor do set-uid and set-gid bits. An error leaves
    /// what was made so far.
    pub fn export_dir(&self, at: &SandboxPath, host: impl AsRef<Path>) -> Result<(), FsError> {
        let (host, leaving) = (host.as_ref(), Leaving::new(self, at));
        let entries = leaving.entries()?;
        let made = std::fs::create_dir(host).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::AlreadyExists => Kind::Exists,
                std::io::ErrorKind::NotFound => Kind::NotFound,
                std::io::ErrorKind::PermissionDenied => Kind::Denied,
                _ => Kind::Source,
            };
            Fault::because(kind, format!("{}: {error}", host.display()))
        });
        let made = made.and_then(|()| Beneath::open(host));
        let root = made.map_err(|fault| fault.at(&shown(at)))?;
        for out in &entries {
            put(&root, &leaving, out)?;
        }
        // What directories hold is made by now, and changes them no more.
        for out in entries.iter().rev().filter(|out| matches!(out.kind, OutKind::Dir)) {
            let set = root.dir(&out.path).and_then(|dir| finish(&dir, out));
            set.map_err(|fault| fault.at(&leaving.path(&out.path)))?;
        }
        Ok(())
    }
}

struct Arriving {
    root: Beneath,
    coming: Coming,
    /// Files with several names by device and inode.
    seen: BTreeMap<(u64, u64), SandboxPath>,
}

impl Arriving {
    fn dir(&mut self, path: &SandboxPath) -> Result<(), FsError> {
        let failed = |errno| fault(errno, "on the host").at(&shown(path));
        let dir = self.root.dir(path).map_err(|fault| fault.at(&shown(path)))?;
        let stat = rustix::fs::fstat(&dir).map_err(failed)?;
        self.coming.dir(path, meta_of(&stat))?;
        self.xattrs(path, &dir)?;
        let mut found = Vec::new();
        for entry in Dir::read_from(&dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            // What goes away meanwhile was not there.
            let Ok(stat) = rustix::fs::statat(&dir, &name[..], AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let target = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => rustix::fs::readlinkat(&dir, &name[..], Vec::new())
                    .map_err(failed)?
                    .into_bytes(),
                _ => Vec::new(),
            };
            found.push((name, stat, target));
        }
        // No handle is open while going down: there are fewer of them than
        // levels.
        drop(dir);
        found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (name, stat, target) in found {
            let below = path.join(&name).map_err(|_| Fault::new(Kind::NameTooLong));
            let below = below.map_err(|fault| fault.at(&shown(path)))?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => self.dir(&below)?,
                FileType::RegularFile => self.file(&below)?,
                FileType::Symlink => self.coming.link(&below, &target, meta_of(&stat))?,
                _ => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &SandboxPath) -> Result<(), FsError> {
        let opened = self.root.file(path).map_err(|fault| fault.at(&shown(path)));
        let (file, stat) = opened?;
        let key = (stat.st_dev, stat.st_ino);
        if let Some(first) = self.seen.get(&key) {
            return self.coming.same(path, &first.clone());
        }
        if stat.st_nlink > 1 {
            self.seen.insert(key, path.clone());
        }
        let (size, meta) = (stat.st_size as u64, meta_of(&stat));
        let extents = extents(&file, size);
        let held: u64 = extents.iter().map(|extent| extent.end - extent.start).sum();
        match held < size || size > super::CHUNK_BYTES {
            true => self.coming.sparse(path, size, extents, meta, |range| {
                read_range(&file, range.clone(), range.end)
            })?,
            false => {
                let content = read_range(&file, 0..size, size);
                let content = content.map_err(|fault| fault.at(&shown(path)))?;
                self.coming.file(path, content, meta)?;
            }
        }
        self.xattrs(path, &file)
    }

    fn xattrs(&mut self, path: &SandboxPath, file: &OwnedFd) -> Result<(), FsError> {
        // A filesystem without attributes has none.
        let mut names = vec![0; 64 * 1024];
        let Ok(len) = rustix::fs::flistxattr(file, &mut names[..]) else { return Ok(()) };
        for name in names[..len].split(|byte| *byte == 0) {
            if !name.starts_with(b"user.") {
                continue;
            }
            let mut value = vec![0; 64 * 1024];
            if let Ok(len) = rustix::fs::fgetxattr(file, name, &mut value[..]) {
                self.coming.xattr(path, name, &value[..len])?;
            }
        }
        Ok(())
    }
}

fn meta_of(stat: &Stat) -> NewMeta {
    NewMeta {
        mode: Some(stat.st_mode & 0o7777),
        uid: Some(stat.st_uid),
        gid: Some(stat.st_gid),
        modified_ns: Some(modified_ns(stat)),
    }
}

/// Where a file of the host has data; all of it where nobody can tell.
fn extents(file: &OwnedFd, size: u64) -> Vec<std::ops::Range<u64>> {
    use rustix::fs::SeekFrom;
    let mut out = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            // Nothing but a hole up to the end.
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => return std::iter::once(0..size).collect(),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        if start >= end {
            break;
        }
        out.push(start..end);
        at = end;
    }
    out
}

/// Makes one entry beneath a fresh directory; nothing is written over.
fn put(root: &Beneath, leaving: &Leaving, out: &Out) -> Result<(), FsError> {
    let place = leaving.path(&out.path);
    let (Some(parent), Some(name)) = (out.path.parent(), out.path.components().last()) else {
        return Ok(());
    };
    let dir = root.dir(&parent).map_err(|fault| fault.at(&place))?;
    let failed = |errno| fault(errno, "on the host").at(&place);
    match &out.kind {
        // Its own mode comes last: it might forbid what is made in it.
        OutKind::Dir => rustix::fs::mkdirat(&dir, name, Mode::RWXU).map_err(failed),
        OutKind::Link(target) => {
            rustix::fs::symlinkat(target.as_slice(), &dir, name).map_err(failed)?;
            let times = times(out.stat.meta.modified_ns);
            rustix::fs::utimensat(&dir, name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
        }
        OutKind::Same(first) => {
            let above = first.parent().unwrap_or_default();
            let from = root.dir(&above).map_err(|fault| fault.at(&place))?;
            let first = first.components().last().unwrap_or_default();
            rustix::fs::linkat(&from, first, &dir, name, AtFlags::empty()).map_err(failed)
        }
        OutKind::File => {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&dir, name, flags, Mode::RUSR | Mode::WUSR);
            let file = file.map_err(failed)?;
            for extent in leaving.extents(out)? {
                leaving.pieces(out, extent, |at, bytes| {
                    write_at(&file, at, bytes).map_err(|errno| fault(errno, "on the host"))
                })?;
            }
            rustix::fs::ftruncate(&file, out.stat.size).map_err(failed)?;
            finish(&file, out).map_err(|fault| fault.at(&place))
        }
    }
}

/// Attributes, mode and times, in the order in which they do not disturb
/// each other.
fn finish(file: &OwnedFd, out: &Out) -> Result<(), Fault> {
    let failed = |errno| fault(errno, "on the host");
    for (name, value) in out.xattrs.iter().filter(|(name, _)| name.starts_with(b"user.")) {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::fsetxattr(file, &name[..], value, flags).map_err(failed)?;
    }
    let mode = Mode::from_raw_mode((out.stat.meta.mode & 0o1777) as _);
    rustix::fs::fchmod(file, mode).map_err(failed)?;
    rustix::fs::futimens(file, &times(out.stat.meta.modified_ns)).map_err(failed)
}
