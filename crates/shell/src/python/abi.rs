//! WASI preview 1 as numbers and layouts: what the guest was compiled against.

use fractal_fs::{FsError, Kind, Stat};
use fractal_model::EntryKind;

/// The names of the imports' two modules.
pub(super) const WASI: &str = "wasi_snapshot_preview1";
pub(super) const BASHKIT: &str = "bashkit";

/// Why a call was refused, as WASI numbers it; they are not Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Errno(pub(super) u16);

impl Errno {
    pub(super) const BADF: Errno = Errno(8);
    pub(super) const EXIST: Errno = Errno(20);
    pub(super) const FAULT: Errno = Errno(21);
    pub(super) const INVAL: Errno = Errno(28);
    pub(super) const IO: Errno = Errno(29);
    pub(super) const ISDIR: Errno = Errno(31);
    pub(super) const LOOP: Errno = Errno(32);
    pub(super) const MFILE: Errno = Errno(33);
    pub(super) const NAMETOOLONG: Errno = Errno(37);
    pub(super) const NOENT: Errno = Errno(44);
    pub(super) const NOSPC: Errno = Errno(51);
    pub(super) const NOTDIR: Errno = Errno(54);
    pub(super) const NOTSUP: Errno = Errno(58);
    pub(super) const ROFS: Errno = Errno(69);
    pub(super) const SPIPE: Errno = Errno(70);
}

impl From<FsError> for Errno {
    fn from(error: FsError) -> Errno {
        Errno(match error.kind {
            Kind::Denied => 2,
            Kind::Busy => 10,
            Kind::Exists => 20,
            Kind::TooLarge => 22,
            Kind::Invalid => 28,
            Kind::Source => 29,
            Kind::IsADirectory => 31,
            Kind::Loop => 32,
            Kind::NameTooLong => 37,
            Kind::NotFound => 44,
            Kind::Full => 51,
            Kind::NotADirectory => 54,
            Kind::NotEmpty => 55,
            Kind::NoAttribute | Kind::Unsupported => 58,
            Kind::ReadOnly => 69,
            Kind::Changed => 72,
            Kind::Timeout => 73,
        })
    }
}

/// What a call answers.
pub(super) type Done<T = ()> = Result<T, Errno>;

/// Kinds of entries.
pub(super) const UNKNOWN: u8 = 0;
pub(super) const CHARACTERS: u8 = 2;
pub(super) const DIRECTORY: u8 = 3;
pub(super) const REGULAR: u8 = 4;
const SYMLINK: u8 = 7;

/// Flags of `path_open` and of looking something up.
pub(super) const FOLLOW: u32 = 1;
pub(super) const CREATE: u32 = 1;
pub(super) const ONLY_DIRECTORY: u32 = 2;
pub(super) const EXCLUSIVE: u32 = 4;
pub(super) const TRUNCATE: u32 = 8;
pub(super) const APPEND: u32 = 1;

/// Rights that `path_open` asks for.
pub(super) const READ: u64 = 1 << 1;
pub(super) const WRITE: u64 = 1 << 6;
pub(super) const ALL_RIGHTS: u64 = (1 << 30) - 1;

/// Flags of setting times.
pub(super) const MODIFIED: u32 = 4;
pub(super) const MODIFIED_NOW: u32 = 8;

pub(super) fn kind_of(kind: EntryKind) -> u8 {
    match kind {
        EntryKind::Directory => DIRECTORY,
        EntryKind::Symlink => SYMLINK,
        EntryKind::File => REGULAR,
        EntryKind::Special => UNKNOWN,
    }
}

/// What the guest is told about an entry. There is no room for permission
/// bits and owners.
pub(super) struct FileStat {
    pub(super) kind: u8,
    pub(super) inode: u64,
    pub(super) names: u64,
    pub(super) size: u64,
    pub(super) modified_ns: u64,
    pub(super) changed_ns: u64,
}

impl FileStat {
    /// Something that is in no tree.
    pub(super) fn beside(kind: u8, inode: u64, size: u64) -> FileStat {
        FileStat { kind, inode, names: 1, size, modified_ns: 0, changed_ns: 0 }
    }

    pub(super) fn bytes(&self) -> [u8; 64] {
        let mut out = [0; 64];
        let device: u64 = 1;
        out[16] = self.kind;
        for (at, value) in [
            (0, device),
            (8, self.inode),
            (24, self.names),
            (32, self.size),
            (40, self.modified_ns),
            (48, self.modified_ns),
            (56, self.changed_ns),
        ] {
            out[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        out
    }
}

impl From<&Stat> for FileStat {
    fn from(stat: &Stat) -> FileStat {
        let ns = |ns: i64| u64::try_from(ns).unwrap_or(0);
        FileStat {
            kind: kind_of(stat.kind),
            inode: stat.inode,
            names: u64::from(stat.names),
            size: if stat.kind == EntryKind::Directory { 4096 } else { stat.size },
            modified_ns: ns(stat.meta.modified_ns),
            changed_ns: ns(stat.meta.changed_ns),
        }
    }
}

/// What the guest is told about a descriptor.
pub(super) fn descriptor_stat(kind: u8, append: bool, rights: u64) -> [u8; 24] {
    let mut out = [0; 24];
    out[0] = kind;
    out[2] = u8::from(append);
    out[8..16].copy_from_slice(&rights.to_le_bytes());
    out[16..24].copy_from_slice(&rights.to_le_bytes());
    out
}

/// One entry of a directory, without its name.
pub(super) fn listed(next: u64, inode: u64, name_bytes: u32, kind: u8) -> [u8; 24] {
    let mut out = [0; 24];
    out[0..8].copy_from_slice(&next.to_le_bytes());
    out[8..16].copy_from_slice(&inode.to_le_bytes());
    out[16..20].copy_from_slice(&name_bytes.to_le_bytes());
    out[20] = kind;
    out
}
