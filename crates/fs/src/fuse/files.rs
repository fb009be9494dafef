//! Sizes, owners, holes and seeking.

use super::attr::errno_of;
use super::server::Server;
use crate::error::Kind;
use crate::{Fault, NewMeta, Vfs};
use fractal_model::EntryKind;
use fuser::Errno;
use std::ops::Range;

// Numbers of Linux.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

impl Server {
    pub(super) fn set(&self, inode: u64, size: Option<u64>, new: NewMeta) -> Result<(), Errno> {
        if let Some(size) = size {
            self.on(inode, |view, path| view.truncate(path, size))?;
        }
        if new == NewMeta::default() {
            return Ok(());
        }
        self.on(inode, |view, path| view.set_meta(path, without_rights(view, path, new)))
    }

    pub(super) fn allocate(&self, inode: u64, range: Range<u64>, mode: i32) -> Result<(), Errno> {
        if !matches!(mode & !KEEP_SIZE, 0 | ZERO_RANGE | PUNCH_HOLE) || mode == PUNCH_HOLE {
            return Err(Errno::EOPNOTSUPP);
        }
        self.on(inode, |view, path| {
            if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
                view.punch(path, range.clone())?;
            }
            let grows = mode & KEEP_SIZE == 0 && view.lstat(path)?.size < range.end;
            // Nothing is set aside, but what could never be written is said
            // now.
            if mode & PUNCH_HOLE == 0 && range.end - range.start > view.limits().bytes_max {
                return Err(Fault::new(Kind::Full).at(path));
            }
            if grows { view.truncate(path, range.end) } else { Ok(()) }
        })
    }

    pub(super) fn seek(&self, inode: u64, offset: i64, whence: i32) -> Result<u64, Errno> {
        let (size, extents) =
            self.on(inode, |view, path| Ok((view.lstat(path)?.size, view.extents(path)?)))?;
        let offset = u64::try_from(offset).ok().filter(|offset| *offset < size);
        let offset = offset.ok_or(Errno::ENXIO)?;
        let next = extents.into_iter().find(|extent| extent.end > offset);
        match (whence, next) {
            (SEEK_DATA, Some(extent)) => Ok(extent.start.max(offset)),
            (SEEK_DATA, None) => Err(Errno::ENXIO),
            (SEEK_HOLE, Some(extent)) if extent.start <= offset => Ok(extent.end.min(size)),
            (SEEK_HOLE, _) => Ok(offset),
            _ => Err(errno_of(Kind::Invalid)),
        }
    }
}

/// A file that gets another owner loses its set-uid and set-gid bits, as the
/// kernel expects of us.
fn without_rights(view: &Vfs, path: &[u8], new: NewMeta) -> NewMeta {
    if new.mode.is_some() || (new.uid.is_none() && new.gid.is_none()) {
        return new;
    }
    match view.lstat(path) {
        Ok(stat) if stat.kind == EntryKind::File => {
            let set_gid = if stat.meta.mode & 0o010 != 0 { 0o2000 } else { 0 };
            let mode = stat.meta.mode & !(0o4000 | set_gid);
            NewMeta { mode: Some(mode), ..new }
        }
        _ => new,
    }
}
