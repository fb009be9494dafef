//! What POSIX promises about files, names and attributes.

use crate::mounted::{View, empty, show};
use fractal_fs::{Access, Limits, Vfs};
use fractal_model::SandboxPath;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::{Duration, UNIX_EPOCH};

fn errno<T: std::fmt::Debug>(done: std::io::Result<T>) -> Option<i32> {
    done.unwrap_err().raw_os_error()
}

fn rw(view: &View, name: &str) -> File {
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false).open(view.at(name)).unwrap()
}

#[test]
fn a_file_without_a_name_goes_on_until_it_is_closed() {
    let Some(view) = empty() else { return };
    let mut file = rw(&view, "f");
    file.write_all(b"before ").unwrap();
    fs::remove_file(view.at("f")).unwrap();
    assert!(!view.view.exists("/f"));
    file.write_all(b"after").unwrap();
    file.set_len(10).unwrap();
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.nlink(), meta.len(), meta.mode() & 0o777), (0, 10, 0o600));
    // Another one under its name is another one.
    fs::write(view.at("f"), "new").unwrap();
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before aft");
    assert_eq!(view.view.read("/f").unwrap(), "new");
}

#[test]
fn a_file_that_another_is_moved_over_goes_on_too() {
    let Some(view) = empty() else { return };
    let mut old = rw(&view, "old");
    old.write_all(b"old").unwrap();
    fs::write(view.at("new"), "new").unwrap();
    fs::rename(view.at("new"), view.at("old")).unwrap();
    old.write_all(b"er").unwrap();
    let mut bytes = [0; 5];
    old.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"older");
    assert_eq!(fs::read(view.at("old")).unwrap(), b"new");
    assert_eq!(old.metadata().unwrap().nlink(), 0);
}

#[test]
fn one_of_several_names_may_go() {
    let Some(view) = empty() else { return };
    view.view.write("/a", "text").unwrap();
    // A name that the kernel has never heard of.
    view.view.link("/a", "/b").unwrap();
    let mut file = rw(&view, "a");
    fs::remove_file(view.at("a")).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b" more").unwrap();
    assert_eq!(view.view.read("/b").unwrap(), "text more");
    fs::hard_link(view.at("b"), view.at("c")).unwrap();
    let (b, c) = (fs::metadata(view.at("b")).unwrap(), fs::metadata(view.at("c")).unwrap());
    assert_eq!((b.ino(), b.nlink()), (c.ino(), 2));
    assert_eq!(b.ino(), view.view.lstat("/c").unwrap().inode);
}

#[test]
fn a_directory_that_is_gone_is_empty() {
    let Some(view) = empty() else { return };
    fs::create_dir(view.at("d")).unwrap();
    let dir = File::open(view.at("d")).unwrap();
    fs::remove_dir(view.at("d")).unwrap();
    assert_eq!(dir.metadata().unwrap().nlink(), 0);
    let inside = format!("/proc/self/fd/{}/x", std::os::fd::AsRawFd::as_raw_fd(&dir));
    assert_eq!(errno(File::create(inside)), Some(2));
}

#[test]
fn names_are_bytes_of_any_kind_up_to_255() {
    let Some(view) = empty() else { return };
    let long = [b'x'; 255];
    for name in [&b"\xff\xfe"[..], b"two\nlines", b" ", b"...", "\u{1f980}".as_bytes(), &long] {
        let path = view.path().join(OsStr::from_bytes(name));
        fs::write(&path, name).unwrap();
        assert_eq!(fs::read(&path).unwrap(), name);
        assert_eq!(view.view.read([b"/", name].concat()).unwrap(), name);
    }
    assert_eq!(fs::read_dir(view.path()).unwrap().count(), 6);
    let path = view.path().join(OsStr::from_bytes(&[b'x'; 256]));
    assert_eq!(errno(fs::write(path, "x")), Some(36));
}

#[test]
fn modes_owners_and_times_are_kept_to_the_nanosecond() {
    let Some(view) = empty() else { return };
    let file = rw(&view, "f");
    let time = UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    file.set_modified(time).unwrap();
    file.set_permissions(Permissions::from_mode(0o4751)).unwrap();
    let meta = fs::metadata(view.at("f")).unwrap();
    assert_eq!((meta.modified().unwrap(), meta.mode() & 0o7777), (time, 0o4751));
    let stat = view.view.lstat("/f").unwrap();
    assert_eq!(stat.meta.modified_ns, 1_234_567_890_123_456_789);
    let early = UNIX_EPOCH - Duration::new(4, 750_000_000);
    file.set_modified(early).unwrap();
    assert_eq!(fs::metadata(view.at("f")).unwrap().modified().unwrap(), early);
    assert_eq!(view.view.lstat("/f").unwrap().meta.modified_ns, -4_750_000_000);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(view.at("f"), Some(7), Some(8)).unwrap();
        let meta = fs::metadata(view.at("f")).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (7, 8, 0o751));
        // A group is handed down by its directory.
        fs::create_dir(view.at("d")).unwrap();
        std::os::unix::fs::chown(view.at("d"), None, Some(42)).unwrap();
        fs::set_permissions(view.at("d"), Permissions::from_mode(0o2755)).unwrap();
        fs::create_dir(view.at("d/e")).unwrap();
        let meta = fs::metadata(view.at("d/e")).unwrap();
        assert_eq!((meta.gid(), meta.mode() & 0o7000), (42, 0o2000));
    }
    // A program that is written into is no longer run as its owner.
    fs::set_permissions(view.at("f"), Permissions::from_mode(0o4755)).unwrap();
    fs::write(view.at("f"), "x").unwrap();
    assert_eq!(fs::metadata(view.at("f")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn attributes_of_users_are_kept_and_those_of_the_kernel_are_not() {
    let Some(view) = empty() else { return };
    rw(&view, "f");
    let path = view.at("f");
    setxattr(&path, "user.a", b"one", XattrFlags::CREATE).unwrap();
    assert!(setxattr(&path, "user.a", b"two", XattrFlags::CREATE).is_err());
    setxattr(&path, "user.a", b"three", XattrFlags::REPLACE).unwrap();
    assert!(setxattr(&path, "user.b", b"x", XattrFlags::REPLACE).is_err());
    let mut buffer = [0; 100];
    assert_eq!(getxattr(&path, "user.a", &mut buffer[..]).unwrap(), 5);
    assert_eq!(listxattr(&path, &mut buffer[..]).unwrap(), 7);
    assert_eq!(view.view.xattr("/f", b"user.a").unwrap(), b"three");
    removexattr(&path, "user.a").unwrap();
    assert!(getxattr(&path, "user.a", &mut buffer[..]).is_err());
    assert!(setxattr(&path, "security.capability", b"x", XattrFlags::empty()).is_err());
}

#[test]
fn pipes_and_devices_are_refused() {
    let Some(view) = empty() else { return };
    for kind in [rustix::fs::FileType::Fifo, rustix::fs::FileType::CharacterDevice] {
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            view.at("x"),
            kind,
            rustix::fs::Mode::from_raw_mode(0o600),
            0x103,
        );
        assert_eq!(made, Err(rustix::io::Errno::PERM));
    }
    assert_eq!(view.view.usage().entries, 0);
}

#[test]
fn limits_are_what_df_says_and_the_end_of_writing() {
    let limits = Limits { bytes_max: 1 << 20, entries_max: 10 };
    let Some(view) = show(&Vfs::new(limits)) else { return };
    let size = rustix::fs::statvfs(view.path()).unwrap();
    assert_eq!((size.f_blocks * size.f_bsize, size.f_files), (1 << 20, 10));
    assert_eq!(errno(fs::write(view.at("big"), vec![1; 2 << 20])), Some(28));
    for number in 0..9 {
        fs::write(view.at(&number.to_string()), "").unwrap();
    }
    assert_eq!(errno(fs::write(view.at("x"), "")), Some(28));
}

#[test]
fn rules_of_the_view_hold_in_the_mount() {
    let vfs = Vfs::default();
    for dir in ["ro", "log", "secret"] {
        vfs.write_all(format!("/{dir}/f"), "x").unwrap();
    }
    let rule = |path: &str, access| {
        vfs.set_access(&SandboxPath::parse(path.as_bytes()).unwrap(), Some(access));
    };
    rule("/ro", Access::ReadOnly);
    rule("/log", Access::AppendOnly);
    rule("/secret", Access::Hidden);
    let Some(view) = show(&vfs) else { return };
    assert_eq!(errno(fs::write(view.at("ro/f"), "y")), Some(30));
    assert_eq!(errno(fs::remove_file(view.at("ro/f"))), Some(30));
    assert_eq!(errno(fs::read(view.at("secret/f"))), Some(2));
    let mut log = OpenOptions::new().append(true).open(view.at("log/f")).unwrap();
    log.write_all(b"yz").unwrap();
    assert_eq!(errno(fs::remove_file(view.at("log/f"))), Some(13));
    fs::write(view.at("log/new"), "").unwrap();
    assert_eq!(fs::read(view.at("log/f")).unwrap(), b"xyz");
    let mut names: Vec<_> =
        fs::read_dir(view.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["log", "ro"]);
}

#[test]
fn a_read_only_mount_is_read_only() {
    let vfs = Vfs::default();
    vfs.write("/f", "x").unwrap();
    let Some(view) = show(&vfs) else { return };
    drop(view);
    let dir = tempfile::tempdir().unwrap();
    let options =
        fractal_fs::fuse::Options { read_only: true, ..fractal_fs::fuse::Options::default() };
    let mounted = fractal_fs::fuse::mount(&vfs, dir.path(), options).unwrap();
    assert_eq!(errno(fs::write(dir.path().join("f"), "y")), Some(30));
    assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"x");
    mounted.unmount().unwrap();
}

#[test]
fn a_hundred_thousand_names_are_listed_once_each() {
    let vfs = Vfs::default();
    for number in 0..100_000 {
        vfs.write(format!("/{number}"), "").unwrap();
    }
    let Some(view) = show(&vfs) else { return };
    let names = fs::read_dir(view.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 100_000);
}
