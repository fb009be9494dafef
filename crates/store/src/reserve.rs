//! Space that is set aside for the day the disk is full.
//!
//! SQLite needs pages even to delete: a disk without any would keep whoever
//! wants to make room from doing so. So a file of blocks that nobody uses
//! lies in the state directory. It is given up when looking or making room
//! found no space, and made again as soon as there is some. Nothing depends
//! on it: where it cannot be made, things are as they would be without it.

use crate::Store;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Some hundred pages: what forgetting a few sandboxes writes.
const BYTES: u64 = 1 << 20;

/// Less than this is not worth a file.
const BYTES_MIN: u64 = 64 << 10;

/// It is no use to fill a disk up to its end for the sake of a full disk.
const FREE_BYTES_MIN: u64 = 2 * BYTES;

impl Store {
    /// Gives what was set aside back to the disk; false when there was
    /// nothing. For those who look or make room, and found no space.
    pub fn spend_reserve(home: &Path) -> bool {
        let path = path(home);
        let held = fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 0);
        held && fs::remove_file(&path).is_ok()
    }

    /// Sets space aside again, when there is enough, or all that is left when
    /// it was `spent` a moment ago: otherwise the next run would have it.
    pub fn keep_reserve(home: &Path, spent: bool) {
        let path = path(home);
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() >= BYTES) {
            return;
        }
        let free = rustix::fs::statvfs(home).map_or(0, |disk| disk.f_bavail * disk.f_frsize);
        let bytes = match free {
            FREE_BYTES_MIN.. => BYTES,
            BYTES_MIN.. if spent => free.min(BYTES),
            _ => return,
        };
        // What cannot be set aside is missed by nobody until the disk is full.
        let _ = set_aside(&path, bytes);
    }
}

fn path(home: &Path) -> PathBuf {
    home.join("reserve")
}

/// Two at once do the same to one file.
fn set_aside(path: &Path, bytes: u64) -> std::io::Result<()> {
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    let made = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    made.inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_spent_once_and_made_again() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let length = || fs::metadata(path(home.path())).map_or(0, |metadata| metadata.len());
        assert!(!Store::spend_reserve(home.path()), "there is none");
        Store::keep_reserve(home.path(), false);
        if length() == 0 {
            eprintln!("skipped: no space, or no way to set it aside");
            return;
        }
        assert_eq!(length(), BYTES);
        assert!(Store::spend_reserve(home.path()));
        assert!(!Store::spend_reserve(home.path()));
        Store::keep_reserve(home.path(), true);
        assert_eq!(length(), BYTES);
        fs::write(path(home.path()), "less").expect("it is ours");
        Store::keep_reserve(home.path(), false);
        assert_eq!(length(), BYTES, "a smaller one grows");
    }
}
