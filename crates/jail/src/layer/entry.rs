//! One entry as a view shows it.

use super::Layer;
use fractal_model::EntryKind;
use rustix::fs::{FileType, Stat};

/// Where an entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the view's layer of this index, 0 being the top.
    Layer(usize),
    /// In the host's live tree.
    Host,
}

/// What stands at a path of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits. Those that give rights to whoever runs a file are never
    /// given out; of a directory the set-gid and the sticky bit are.
    pub mode: u32,
    /// Bytes of content (of the target, for a symlink).
    pub size: u64,
    /// Owner, as seen inside.
    pub uid: u32,
    /// Group, as seen inside.
    pub gid: u32,
    /// Last change of the content, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last change of content or attributes, in nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Target of a symlink, as bytes.
    pub target: Option<Vec<u8>>,
    /// Where it was found.
    pub source: Source,
    pub(super) raw: Raw,
}

/// What comparing needs and nobody outside gets to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    pub kind: FileType,
    pub rdev: u64,
    pub dev: u64,
    pub ino: u64,
    /// Whether the owner says something.
    pub owned: bool,
}

impl Entry {
    pub(super) fn new(
        stat: &Stat,
        target: Option<Vec<u8>>,
        source: Source,
        layer: &Layer,
    ) -> Entry {
        let raw_kind = FileType::from_raw_mode(stat.st_mode);
        Entry {
            kind: kind_of(raw_kind),
            mode: stat.st_mode & mode_mask(raw_kind),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            uid: layer.inside_id(stat.st_uid),
            gid: layer.inside_id(stat.st_gid),
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            target,
            source,
            raw: Raw {
                kind: raw_kind,
                rdev: stat.st_rdev,
                dev: stat.st_dev,
                ino: stat.st_ino,
                owned: layer.marks != super::Marks::User,
            },
        }
    }

    /// Filesystem and inode: what names a file for as long as it exists.
    pub fn inode(&self) -> (u64, u64) {
        (self.raw.dev, self.raw.ino)
    }

    /// Whether it is a named pipe.
    pub fn is_fifo(&self) -> bool {
        self.raw.kind == FileType::Fifo
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind == EntryKind::Directory
    }

    /// Whether everything but a regular file's content is the same. Times do
    /// not count, and neither do bits that are never given out.
    pub fn same_but_content(&self, other: &Entry) -> bool {
        let same_mode = self.kind == EntryKind::Symlink || self.mode == other.mode;
        // In layers of an unprivileged user everything is theirs.
        let meaningful = self.raw.owned && other.raw.owned;
        let same_owner = !meaningful || (self.uid, self.gid) == (other.uid, other.gid);
        let same_device = self.kind != EntryKind::Special || self.raw.rdev == other.raw.rdev;
        let same_size = self.kind != EntryKind::File || self.size == other.size;
        self.raw.kind == other.raw.kind
            && same_mode
            && same_owner
            && same_device
            && same_size
            && self.target == other.target
    }

    /// Whether both are one inode, whose content needs no comparing.
    pub(super) fn same_inode(&self, other: &Entry) -> bool {
        (self.raw.dev, self.raw.ino) == (other.raw.dev, other.raw.ino)
    }
}

/// The bits of a mode that are given out. On a directory set-gid hands down its
/// group and sticky guards its entries: neither runs anything.
pub(super) fn mode_mask(kind: FileType) -> u32 {
    match kind {
        FileType::Directory => 0o3777,
        _ => 0o777,
    }
}

fn kind_of(kind: FileType) -> EntryKind {
    match kind {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Special,
    }
}

/// A time of a file. Saturates: a program may set times that no 64-bit count of
/// nanoseconds holds.
pub fn nanoseconds(seconds: impl Into<i64>, nanoseconds: impl TryInto<i64>) -> i64 {
    let part = nanoseconds.try_into().unwrap_or(0);
    seconds.into().saturating_mul(1_000_000_000).saturating_add(part)
}
