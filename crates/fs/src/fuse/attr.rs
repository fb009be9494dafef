//! From what a view says to what the kernel wants to hear.

use crate::error::{FsError, Kind};
use crate::read::Stat;
use fractal_model::EntryKind;
use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the kernel counts in `st_blocks`.
const SECTOR_BYTES: u64 = 512;

const NANOSECONDS: u32 = 1_000_000_000;

/// The size in which programs do well to read and write.
const IO_BYTES: u32 = 64 * 1024;

pub(crate) fn errno(error: &FsError) -> Errno {
    Errno::from_i32(error.kind.errno())
}

pub(crate) fn errno_of(kind: Kind) -> Errno {
    Errno::from_i32(kind.errno())
}

pub(crate) fn kind(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::Directory => FileType::Directory,
        EntryKind::Symlink => FileType::Symlink,
        _ => FileType::RegularFile,
    }
}

/// The attributes of an entry under the number that the kernel calls it by.
pub(crate) fn attr(inode: u64, stat: &Stat) -> FileAttr {
    let modified = time(stat.meta.modified_ns);
    FileAttr {
        ino: INodeNo(inode),
        size: stat.size,
        blocks: stat.held.div_ceil(SECTOR_BYTES),
        // When something was read is not kept.
        atime: modified,
        mtime: modified,
        ctime: time(stat.meta.changed_ns),
        crtime: modified,
        kind: kind(stat.kind),
        perm: (stat.meta.mode & 0o7777) as u16,
        nlink: stat.names,
        uid: stat.meta.uid,
        gid: stat.meta.gid,
        rdev: 0,
        blksize: IO_BYTES,
        flags: 0,
    }
}

/// What tells the kernel that a name is not there: a number that none has.
pub(crate) fn missing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: IO_BYTES,
        flags: 0,
    }
}

fn time(ns: i64) -> SystemTime {
    let since = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since }
}

/// Nanoseconds since 1970; what lies outside of some 292 years is cut.
///
/// fuser 0.18 takes the nanoseconds of a time before 1970 away where they are
/// to be added: whole seconds and the rest are put together anew.
pub(crate) fn nanoseconds(time: TimeOrNow) -> i64 {
    let time = match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => return crate::view::now_ns(),
    };
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => {
            let before = before.duration();
            let ns = i128::from(before.subsec_nanos())
                - i128::from(before.as_secs()) * i128::from(NANOSECONDS);
            i64::try_from(ns).unwrap_or(i64::MIN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        for ns in [0, 1, 1_700_000_000_123_456_789, -62_000_000_000, i64::MAX] {
            assert_eq!(nanoseconds(TimeOrNow::SpecificTime(time(ns))), ns);
        }
        // As fuser reads seconds and nanoseconds of the kernel.
        let read = UNIX_EPOCH - Duration::new(5, 250_000_000);
        assert_eq!(nanoseconds(TimeOrNow::SpecificTime(read)), -4_750_000_000);
    }
}
