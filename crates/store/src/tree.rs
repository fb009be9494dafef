//! Walking and deleting directory trees that a hostile program made.
//!
//! Such a tree may be thousands of levels deep, longer than any path the
//! kernel takes, full of symlinks, fifos and directories nobody may enter.
//! Every step is relative to an open directory, nothing is followed, nothing
//! but directories is opened, and the number of open files does not grow with
//! depth.

use crate::new_id;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, Result};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How often one directory is read again because entries appeared meanwhile.
const PASSES_MAX: usize = 16;

/// Deletes what stands at `trash/name`, as much of it as can be deleted.
///
/// A directory inside another is first moved up into the trash, so every tree
/// becomes a row of flat directories: depth costs neither memory, stack nor
/// open files, and an interrupted deletion leaves only more trash.
pub(crate) fn remove(trash: &Path, name: CString) -> Result<()> {
    let root = rustix::fs::open(trash, DIRECTORY, Mode::empty())?;
    let mut work = Removal { root, prefix: new_id().to_string(), moved: 0, pending: vec![name] };
    let mut first_error = None;
    while let Some(name) = work.pending.pop() {
        if let Err(error) = work.remove_flat(&name) {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

struct Removal {
    root: OwnedFd,
    prefix: String,
    moved: u64,
    pending: Vec<CString>,
}

impl Removal {
    /// Deletes one entry of the trash; directories in it become pending.
    fn remove_flat(&mut self, name: &CStr) -> Result<()> {
        let directory = match open_unlocked(&self.root, name) {
            Err(Errno::NOTDIR | Errno::LOOP) => return unlink(&self.root, name),
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        for _ in 0..PASSES_MAX {
            self.clear(&directory)?;
            match rustix::fs::unlinkat(&self.root, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(Errno::NOENT) => return Ok(()),
                other => return other,
            }
        }
        Err(Errno::NOTEMPTY)
    }

    fn clear(&mut self, directory: &OwnedFd) -> Result<()> {
        let mut first_error = None;
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let done = match entry.file_type() {
                FileType::Directory => self.take_out(directory, name),
                FileType::Unknown => match unlink(directory, name) {
                    Err(Errno::ISDIR | Errno::PERM) => self.take_out(directory, name),
                    other => other,
                },
                _ => unlink(directory, name),
            };
            if let Err(error) = done {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Removes an empty directory, or moves a full one up into the trash.
    fn take_out(&mut self, directory: &OwnedFd, name: &CStr) -> Result<()> {
        match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(()),
            other => return other,
        }
        self.moved += 1;
        let flat = CString::new(format!("{}-{}", self.prefix, self.moved))
            .expect("ids and numbers hold no NUL");
        let rename = || rustix::fs::renameat(directory, name, &self.root, flat.as_c_str());
        match rename() {
            // Moving a directory rewrites its `..`, for which an ordinary
            // user needs the right to write into it.
            Err(Errno::ACCESS) => {
                open_unlocked(directory, name)?;
                rename()?;
            }
            other => other?,
        }
        self.pending.push(flat);
        Ok(())
    }
}

fn unlink(directory: &OwnedFd, name: &CStr) -> Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Opens a directory for deleting, giving its owner the rights if need be.
fn open_unlocked(parent: impl AsFd, name: &CStr) -> Result<OwnedFd> {
    let handle = rustix::fs::openat(
        parent,
        name,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        // A handle without read access takes no fchmod, and a chmod by name
        // would follow a symlink put there meanwhile; this name cannot move.
        let fixed = format!("/proc/self/fd/{}", handle.as_raw_fd());
        rustix::fs::chmodat(CWD, fixed, Mode::RWXU, AtFlags::empty())?;
    }
    rustix::fs::openat(&handle, c".", DIRECTORY, Mode::empty())
}

/// Disk space below a directory in bytes, hard links counted once. What
/// cannot be read, or moves away during the walk, is left out.
pub(crate) fn measure(path: &Path) -> Result<u64> {
    let mut sum = Sum { bytes: 0, linked: HashMap::new(), only_whole: false };
    add_tree(path, &mut sum)?;
    Ok(sum.bytes)
}

/// Disk space that deleting all these would free: a file with further names
/// elsewhere (in a layer that was flattened from it) stays.
pub(crate) fn measure_freed<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> u64 {
    let mut sum = Sum { bytes: 0, linked: HashMap::new(), only_whole: true };
    for path in paths {
        let _ = add_tree(path, &mut sum);
    }
    sum.bytes
}

fn add_tree(path: &Path, sum: &mut Sum) -> Result<()> {
    let mut at = rustix::fs::open(path, DIRECTORY, Mode::empty())?;
    let mut levels = vec![sum.add_directory(&at)?];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.pending.pop() {
            let child = rustix::fs::openat(&at, name.as_c_str(), DIRECTORY, Mode::empty());
            // One that can be listed but not entered has no way back up.
            let entered = child.and_then(|fd| Ok((sum.add_directory(&fd)?, fd)));
            if let Ok((level, fd)) = entered {
                at = fd;
                levels.push(level);
            }
            continue;
        }
        levels.pop();
        let Some(parent) = levels.last() else { break };
        at = rustix::fs::openat(&at, c"..", DIRECTORY, Mode::empty())?;
        if identity(&rustix::fs::fstat(&at)?) != parent.identity {
            break;
        }
    }
    Ok(())
}

struct Level {
    identity: (u64, u64),
    pending: Vec<CString>,
}

struct Sum {
    bytes: u64,
    /// Names seen of files that have several.
    linked: HashMap<(u64, u64), i64>,
    /// Count a file at its last name instead of its first.
    only_whole: bool,
}

impl Sum {
    /// Counts a directory and its files; its directories are left to visit.
    fn add_directory(&mut self, directory: &OwnedFd) -> Result<Level> {
        let own = rustix::fs::statat(directory, c".", AtFlags::SYMLINK_NOFOLLOW)?;
        self.add(&own);
        let mut level = Level { identity: identity(&own), pending: Vec::new() };
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    level.pending.push(name.to_owned());
                }
                Ok(stat) => self.add(&stat),
                Err(_) => {}
            }
        }
        Ok(level)
    }

    fn add(&mut self, stat: &Stat) {
        let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if directory || stat.st_nlink <= 1 || self.counts(stat) {
            self.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        }
    }
}

impl Sum {
    // The link count has other widths on other machines.
    #[allow(clippy::useless_conversion)]
    fn counts(&mut self, stat: &Stat) -> bool {
        let seen = self.linked.entry(identity(stat)).or_default();
        *seen += 1;
        *seen == if self.only_whole { i64::try_from(stat.st_nlink).unwrap_or(i64::MAX) } else { 1 }
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn hard_links_are_measured_once() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let empty = measure(home.path()).expect("it can be read");
        let file = home.path().join("f");
        fs::write(&file, vec![1u8; 100_000]).expect("it can be written");
        fs::hard_link(&file, home.path().join("g")).expect("links work here");
        let full = measure(home.path()).expect("it can be read");
        assert!((100_000..150_000).contains(&(full - empty)), "{}", full - empty);
    }

    #[test]
    fn what_has_a_name_elsewhere_is_not_freed() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let [one, two] = ["one", "two"].map(|name| home.path().join(name));
        for path in [&one, &two] {
            fs::create_dir(path).expect("it can be made");
        }
        fs::write(one.join("f"), vec![1u8; 100_000]).expect("it can be written");
        fs::hard_link(one.join("f"), two.join("g")).expect("links work here");
        assert!(measure_freed([&one]) < 50_000);
        assert!((100_000..150_000).contains(&measure_freed([&one, &two])));
    }

    #[test]
    fn a_plain_file_in_the_trash_is_removed_too() {
        let trash = tempfile::tempdir().expect("a temporary directory");
        fs::write(trash.path().join("f"), "x").expect("it can be written");
        remove(trash.path(), c"f".to_owned()).expect("it can be removed");
        remove(trash.path(), c"f".to_owned()).expect("a second time is no error");
        assert!(!trash.path().join("f").exists());
    }
}
