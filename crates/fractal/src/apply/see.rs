//! What stands at a path of the host, read without following a link.

use super::Seen;
use fractal_jail::layer::nanoseconds;
use fractal_model::EntryKind;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;

/// What stands at a name of an open directory.
pub(super) fn seen_at(dir: impl AsFd, name: &CStr) -> io::Result<Option<Seen>> {
    Ok(stat_at(dir, name)?.map(|stat| Seen::of(&stat)))
}

pub(super) fn stat_at(dir: impl AsFd, name: &CStr) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

impl Seen {
    /// Reads a status.
    pub(super) fn of(stat: &Stat) -> Seen {
        Seen {
            kind: kind_of(stat),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            inode: (stat.st_dev, stat.st_ino),
        }
    }

    /// Whether nobody touched it since. Of a directory only what it is counts:
    /// its size and times follow its entries, which are looked at themselves.
    pub(super) fn is_untouched(&self, now: &Seen) -> bool {
        self.is_same_but_moved(now)
            && (self.kind == EntryKind::Directory || self.ctime_ns == now.ctime_ns)
    }

    /// The same after a rename, which changes `ctime`. Bits that a view does
    /// not give out cannot be expected of whoever looked through one.
    pub(super) fn is_same_but_moved(&self, now: &Seen) -> bool {
        let content = (self.size, self.mtime_ns) == (now.size, now.mtime_ns);
        self.inode == now.inode
            && self.kind == now.kind
            && self.mode & self.mode_mask() == now.mode & self.mode_mask()
            && (self.uid, self.gid) == (now.uid, now.gid)
            && (self.kind == EntryKind::Directory || content)
    }

    /// The bits that a view gives out.
    pub(super) fn mode_mask(&self) -> u32 {
        if self.kind == EntryKind::Directory { 0o3777 } else { 0o777 }
    }
}

fn kind_of(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Special,
    }
}
