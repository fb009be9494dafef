//! Comparing contents without reading more than needed.
//!
//! Sizes are claims: a program can make a file of 8 EiB that occupies no
//! disk. Holes are skipped, not read, and the number of bytes read is bounded
//! by a budget the caller hands down.

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

const CHUNK_BYTES: usize = 128 * 1024;

/// Whether two regular files of the same length have the same content.
/// `None` when `budget_bytes` ran out first; what was read is taken off it.
pub fn same_content(a: &File, b: &File, budget_bytes: &mut u64) -> io::Result<Option<bool>> {
    same_content_while(a, b, budget_bytes, &|| true)
}

/// The same, given up when nobody wants to know any more, as when the budget
/// ran out.
pub fn same_content_while(
    a: &File,
    b: &File,
    budget_bytes: &mut u64,
    is_wanted: &dyn Fn() -> bool,
) -> io::Result<Option<bool>> {
    let (a_meta, b_meta) = (a.metadata()?, b.metadata()?);
    if a_meta.len() != b_meta.len() {
        return Ok(Some(false));
    }
    let size = a_meta.len();
    let sparse =
        a_meta.blocks().saturating_mul(512) < size && b_meta.blocks().saturating_mul(512) < size;
    let chunk = CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES));
    let (mut left, mut right) = (vec![0; chunk], vec![0; chunk]);
    let mut at = 0;
    while at < size {
        if sparse {
            at = next_data(a, at, size)?.min(next_data(b, at, size)?);
            if at >= size {
                break;
            }
        }
        let length = chunk.min(usize::try_from(size - at).unwrap_or(chunk));
        if !is_wanted() {
            return Ok(None);
        }
        let Some(rest) = budget_bytes.checked_sub(length as u64) else { return Ok(None) };
        *budget_bytes = rest;
        // A file that shrank meanwhile is a different one.
        if !filled(a, &mut left[..length], at)? || !filled(b, &mut right[..length], at)? {
            return Ok(Some(false));
        }
        if left[..length] != right[..length] {
            return Ok(Some(false));
        }
        at += length as u64;
    }
    Ok(Some(true))
}

fn filled(file: &File, buffer: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(buffer, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where the next bytes that are no hole start; `size` when there are none.
pub(super) fn next_data(file: &File, at: u64, size: u64) -> io::Result<u64> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(data.min(size)),
        Err(Errno::NXIO) => Ok(size),
        // The filesystem cannot tell: everything is data.
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(at),
        Err(errno) => Err(errno.into()),
    }
}

/// Where the next hole starts; `size` when there is none.
pub(super) fn next_hole(file: &File, at: u64, size: u64) -> io::Result<u64> {
    match rustix::fs::seek(file, SeekFrom::Hole(at)) {
        Ok(hole) => Ok(hole.min(size)),
        Err(Errno::NXIO | Errno::INVAL | Errno::NOTSUP) => Ok(size),
        Err(errno) => Err(errno.into()),
    }
}
