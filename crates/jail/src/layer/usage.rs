//! How much disk a layer takes.

use super::open::{self, Scope};
use super::{Bounds, Layer, LayerError, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::CString;
use std::mem::MaybeUninit;

const LIST_BYTES: usize = 32 * 1024;

/// What a layer occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Blocks in use, in bytes; a file with several names counts once.
    pub bytes: u64,
    /// Names in the tree, deletion marks included.
    pub entries: u64,
    /// Whether a bound cut the count short. A disk limit must treat this as
    /// exceeded: depth is a way to hide bytes.
    pub truncated: bool,
    /// Directories that could not be read. An ordinary user's program may shut
    /// one for a moment for reasons of its own.
    pub unreadable: u64,
}

/// Counts what a layer occupies. A tree that changes meanwhile gives a count
/// that is somewhere between before and after.
pub fn disk_usage(layer: &Layer, bounds: &Bounds) -> Result<DiskUsage> {
    let mut usage = DiskUsage::default();
    let mut seen = HashSet::new();
    let fail = |errno| LayerError::io("measure", "the layer", errno);
    let root = layer.open_root(Scope::Layer).map_err(fail)?;
    let mut stack = vec![(list(&root, &mut usage, &mut seen, bounds).map_err(fail)?, root)];
    loop {
        if usage.truncated && usage.entries >= bounds.entries_max {
            return Ok(usage);
        }
        let depth = stack.len();
        let Some((todo, directory)) = stack.last_mut() else { return Ok(usage) };
        let Some(name) = todo.pop() else {
            stack.pop();
            continue;
        };
        if depth >= bounds.depth_max {
            usage.truncated = true;
            continue;
        }
        let opened =
            open::directory(&*directory, name.as_c_str(), Scope::Layer).and_then(|child| {
                let names = list(&child, &mut usage, &mut seen, bounds)?;
                Ok((names, child))
            });
        match opened {
            Ok(frame) => stack.push(frame),
            // Removed or replaced while we counted.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(Errno::NOSYS) => return Err(LayerError::Unsupported),
            Err(_) => usage.unreadable += 1,
        }
    }
}

/// Counts the entries of one directory and names its subdirectories.
fn list(
    directory: &OwnedFd,
    usage: &mut DiskUsage,
    seen: &mut HashSet<u64>,
    bounds: &Bounds,
) -> std::result::Result<Vec<CString>, Errno> {
    let mut subdirectories = Vec::new();
    let mut buffer: Vec<MaybeUninit<u8>> = Vec::new();
    buffer.resize(LIST_BYTES, MaybeUninit::uninit());
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if usage.entries >= bounds.entries_max {
            usage.truncated = true;
            break;
        }
        let Ok(stat) = open::status(directory, name) else { continue };
        usage.entries += 1;
        let is_dir = open::file_type(&stat) == FileType::Directory;
        if is_dir {
            subdirectories.push(name.to_owned());
        }
        // A layer is one filesystem, so the inode number alone identifies.
        if is_dir || stat.st_nlink == 1 || seen.insert(stat.st_ino) {
            usage.bytes += u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        }
    }
    Ok(subdirectories)
}
