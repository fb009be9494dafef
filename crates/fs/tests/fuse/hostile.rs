//! Odd sizes, offsets, names and orders, by system calls: the server goes on,
//! keeps to its limits, and shows afterwards what the view holds.

use crate::dice::{Dice, seeds};
use crate::mounted::show;
use fractal_fs::{Limits, Vfs};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const BYTES_MAX: u64 = 8 << 20;
const ENTRIES_MAX: u64 = 500;

fn odd(dice: &mut Dice) -> u64 {
    let odds = [
        0,
        1,
        511,
        4095,
        4096,
        65_535,
        65_537,
        1 << 20,
        1 << 31,
        (1 << 43) - 1,
        1 << 43,
        i64::MAX as u64,
    ];
    let near = dice.below(3);
    odds[dice.below(odds.len() as u64) as usize].saturating_add(near).min(i64::MAX as u64)
        - near.min(1)
}

fn path(root: &Path, dice: &mut Dice) -> PathBuf {
    let mut path = root.to_owned();
    for _ in 0..=dice.below(4) {
        let name = match dice.below(8) {
            0 => vec![0xff, dice.below(4) as u8 + 1],
            1 => vec![b'x'; 250 + dice.below(10) as usize],
            2 => b"..\n".to_vec(),
            _ => vec![b'a' + dice.below(5) as u8],
        };
        path.push(OsString::from_vec(name));
    }
    path
}

fn step(root: &Path, dice: &mut Dice, open: &mut Vec<OwnedFd>) -> Result<(), Errno> {
    let (one, two) = (path(root, dice), path(root, dice));
    let (at, len) = (odd(dice), odd(dice));
    let data = vec![7; dice.below(100_000) as usize];
    let mode = Mode::from_raw_mode(dice.below(0o10000) as u32 | 0o600);
    let which = dice.below(open.len().max(1) as u64) as usize;
    let file = open.get(which);
    match (dice.below(20), file) {
        (0..=3, _) => {
            let flags = [
                OFlags::CREATE,
                OFlags::EXCL | OFlags::CREATE,
                OFlags::TRUNC,
                OFlags::APPEND,
                OFlags::DIRECTORY,
            ][dice.below(5) as usize];
            open.push(rustix::fs::open(&one, OFlags::RDWR | OFlags::CLOEXEC | flags, mode)?);
            if open.len() > 20 {
                open.swap_remove(which);
            }
        }
        (4, _) => rustix::fs::mkdir(&one, mode)?,
        (5, _) => rustix::fs::unlink(&one)?,
        (6, _) => rustix::fs::rmdir(&one)?,
        (7, _) => rustix::fs::rename(&one, &two)?,
        (8, _) => rustix::fs::renameat_with(
            CWD,
            &one,
            CWD,
            &two,
            RenameFlags::from_bits_retain(dice.below(8) as u32),
        )?,
        (9, _) => rustix::fs::link(&one, &two)?,
        (10, _) => rustix::fs::symlink(&one, &two)?,
        (11, Some(file)) => drop(rustix::io::pwrite(file, &data, at)?),
        (12, Some(file)) => drop(rustix::io::pread(file, &mut vec![0; data.len()][..], at)?),
        (13, Some(file)) => rustix::fs::ftruncate(file, at)?,
        (14, Some(file)) => {
            let how = FallocateFlags::from_bits_retain(dice.below(128) as u32);
            rustix::fs::fallocate(file, how, at, len)?;
        }
        (15, Some(file)) => {
            let to = if dice.below(2) == 0 { SeekFrom::Data(at) } else { SeekFrom::Hole(at) };
            rustix::fs::seek(file, to)?;
        }
        (16, Some(file)) => {
            let name = format!("user.{}", "n".repeat(dice.below(255) as usize));
            let value = vec![1; dice.below(70_000) as usize];
            rustix::fs::fsetxattr(
                file,
                &name,
                &value,
                XattrFlags::from_bits_retain(dice.below(4) as u32),
            )?;
        }
        (17, Some(file)) => rustix::fs::fchmod(file, mode)?,
        (18, _) => drop(rustix::fs::statat(CWD, &one, AtFlags::SYMLINK_NOFOLLOW)?),
        _ => {
            let dir = rustix::fs::open(&one, OFlags::RDONLY | OFlags::DIRECTORY, mode)?;
            rustix::fs::seek(&dir, SeekFrom::Start(at))?;
            rustix::fs::Dir::read_from(&dir)?.take(1000).for_each(drop);
        }
    }
    Ok(())
}

/// What the kernel shows is what the view holds.
fn same(root: &Path, view: &Vfs, path: &[u8]) {
    for listed in view.list(path).unwrap() {
        let path = [path, b"/", listed.name.bytes()].concat();
        let real = root.join(OsString::from_vec(path[1..].to_vec()));
        let (meta, stat) = (std::fs::symlink_metadata(&real).unwrap(), view.lstat(&path).unwrap());
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&meta), stat.inode);
        if meta.is_dir() {
            same(root, view, &path);
        } else {
            assert_eq!(meta.len(), stat.size, "{}", real.display());
        }
    }
}

/// A fuzz target: see CONTRIBUTING.md.
#[test]
fn odd_requests_in_many_threads_break_nothing() {
    for round in seeds("requests", 1) {
        odd_requests(round * 4);
    }
}

fn odd_requests(first: u64) {
    let vfs = Vfs::new(Limits { bytes_max: BYTES_MAX, entries_max: ENTRIES_MAX });
    let Some(view) = show(&vfs) else { return };
    std::thread::scope(|scope| {
        for seed in first..first + 4 {
            let root = view.path();
            scope.spawn(move || {
                let (mut dice, mut open) = (Dice::new(seed), Vec::new());
                for number in 0..3000 {
                    let done = step(root, &mut dice, &mut open);
                    // A dead mount, a broken answer, something not found again.
                    let broken = [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO, Errno::STALE];
                    let broken = done.err().filter(|error| broken.contains(error));
                    assert_eq!(broken, None, "seed {seed} step {number}");
                }
            });
        }
    });
    let used = vfs.usage();
    assert!(used.entries <= ENTRIES_MAX && used.bytes <= BYTES_MAX, "{used:?}");
    same(view.path(), &vfs, b"");
    std::fs::write(view.at("alive"), "").unwrap_or_default();
}
