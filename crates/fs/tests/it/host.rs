//! A directory of the host: shown as it is, never followed out of, never
//! written unless it was opened for that.

use crate::common::{kind, mount, mounted, path, text};
use fractal_fs::{Access, Freshness, Host, Kind, Vfs, Volume, WriteBack};
use fractal_model::EntryKind;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LIVE: Freshness = Freshness::Live(Duration::ZERO);

/// Long enough for the host's clock of changes to move on.
fn tick() {
    std::thread::sleep(Duration::from_millis(30));
}

fn sample() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("sub")).unwrap();
    fs::write(at("a.txt"), "hello").unwrap();
    fs::write(at("sub/b"), "bee").unwrap();
    fs::set_permissions(at("sub/b"), fs::Permissions::from_mode(0o751)).unwrap();
    symlink("sub/b", at("near")).unwrap();
    symlink("/etc/passwd", at("far")).unwrap();
    symlink("../../../../../../etc/passwd", at("up")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe odd\n");
    fs::write(dir.path().join(odd), "odd").unwrap();
    tick();
    dir
}

fn host(dir: &Path, freshness: Freshness) -> Vfs {
    mounted(Arc::new(Host::open(dir).unwrap()), freshness)
}

#[test]
fn it_shows_files_directories_and_links_and_nothing_else() {
    let dir = sample();
    let view = host(dir.path(), Freshness::Frozen);
    let names: Vec<_> = view.list("/m").unwrap().into_iter().map(|l| l.name).collect();
    let names: Vec<_> = names.iter().map(|name| name.bytes()).collect();
    let expect: [&[u8]; 6] = [b"a.txt", b"far", b"near", b"sub", b"up", b"\xff\xfe odd\n"];
    assert_eq!(names, expect, "no fifo");
    assert_eq!(text(&view, "/m/near"), "bee");
    assert_eq!(view.read(b"/m/\xff\xfe odd\n").unwrap(), "odd");
    let (there, here) =
        (fs::metadata(dir.path().join("sub/b")).unwrap(), view.stat("/m/sub/b").unwrap());
    assert_eq!((here.size, here.meta.mode), (3, 0o751));
    assert_eq!((here.meta.uid, here.meta.gid), (there.uid(), there.gid()));
    assert_eq!(here.meta.modified_ns, there.mtime() * 1_000_000_000 + there.mtime_nsec());
    // Links lead to wherever they lead in the view.
    assert_eq!(kind(view.read("/m/far")), Kind::NotFound);
    assert_eq!(kind(view.read("/m/up")), Kind::NotFound);
    view.write_all("/etc/passwd", "the view's own").unwrap();
    assert_eq!(text(&view, "/m/far"), "the view's own");
    assert_eq!(text(&view, "/m/up"), "the view's own");
}

#[test]
fn what_a_view_writes_stays_in_the_view() {
    let dir = sample();
    let view = host(dir.path(), Freshness::Frozen);
    view.append("/m/a.txt", b" world").unwrap();
    view.remove_all("/m/sub").unwrap();
    view.write("/m/new", "n").unwrap();
    assert_eq!(text(&view, "/m/a.txt"), "hello world");
    assert_eq!(fs::read_to_string(dir.path().join("a.txt")).unwrap(), "hello");
    assert!(dir.path().join("sub/b").exists() && !dir.path().join("new").exists());
    assert_eq!(kind(view.write_back(&path("/m"))), Kind::ReadOnly);
    assert!(dir.path().join("sub/b").exists());
}

#[test]
fn a_frozen_mount_refuses_what_changed_on_the_host() {
    let dir = sample();
    let at = |name: &str| dir.path().join(name);
    let view = host(dir.path(), Freshness::Frozen);
    view.list("/m").unwrap();
    tick();
    fs::write(at("a.txt"), "other").unwrap();
    let error = view.read("/m/a.txt").unwrap_err();
    assert_eq!(error.kind, Kind::Changed);
    assert!(error.to_string().contains("changed on the host"), "{error}");
    assert_eq!(kind(view.read_range("/m/a.txt", 0..2)), Kind::Changed);
    // Not looked at before the host changed it.
    fs::write(at("sub/late"), "x").unwrap();
    assert_eq!(kind(view.list("/m/sub")), Kind::Changed);
    // Gone, or swapped for something that hangs or leads out.
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe odd\n");
    fs::remove_file(dir.path().join(odd)).unwrap();
    assert_eq!(kind(view.read(b"/m/\xff\xfe odd\n")), Kind::Changed);
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join(odd), rustix::fs::Mode::RWXU).unwrap();
    assert_eq!(kind(view.read(b"/m/\xff\xfe odd\n")), Kind::Changed);
    fs::remove_file(dir.path().join(odd)).unwrap();
    symlink("/etc/passwd", dir.path().join(odd)).unwrap();
    assert_eq!(kind(view.read(b"/m/\xff\xfe odd\n")), Kind::Changed);
    fs::rename(at("sub"), at("moved")).unwrap();
    symlink("/etc", at("sub")).unwrap();
    assert_eq!(kind(view.list("/m/sub")), Kind::Changed);
}

#[test]
fn an_edit_before_the_first_look_is_seen_too() {
    let dir = sample();
    let view = host(dir.path(), Freshness::Frozen);
    tick();
    // Same size, same time of modification: only the change time tells.
    let file = dir.path().join("a.txt");
    let before = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "HELLO").unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
    assert_eq!(kind(view.read("/m/a.txt")), Kind::Changed);
}

#[test]
fn a_live_mount_follows_the_host() {
    let dir = sample();
    let view = host(dir.path(), LIVE);
    assert_eq!(text(&view, "/m/a.txt"), "hello");
    fs::write(dir.path().join("a.txt"), "longer than before").unwrap();
    fs::write(dir.path().join("fresh"), "f").unwrap();
    assert_eq!(text(&view, "/m/a.txt"), "longer than before");
    assert_eq!(view.stat("/m/a.txt").unwrap().size, 18);
    assert_eq!(text(&view, "/m/fresh"), "f");
    fs::remove_file(dir.path().join("a.txt")).unwrap();
    assert_eq!(kind(view.read("/m/a.txt")), Kind::NotFound);
    assert_eq!(kind(view.write("/m/a.txt", "")), Kind::ReadOnly);
}

#[test]
fn a_part_of_a_huge_file_is_read_without_the_rest() {
    let dir = sample();
    let file = fs::File::create(dir.path().join("huge")).unwrap();
    let size = 1 << 40;
    if file.set_len(size).is_err() {
        println!("skipped: no sparse files of a terabyte here");
        return;
    }
    std::os::unix::fs::FileExt::write_at(&file, b"end", size - 3).unwrap();
    tick();
    let view = host(dir.path(), Freshness::Frozen);
    assert_eq!(view.stat("/m/huge").unwrap().size, size);
    assert_eq!(view.read_range("/m/huge", size - 3..u64::MAX).unwrap(), "end");
    assert_eq!(view.read_range("/m/huge", size..u64::MAX).unwrap(), "");
    assert_eq!(kind(view.read("/m/huge")), Kind::TooLarge);
    assert_eq!(view.usage().bytes, 0);
}

#[test]
fn what_is_written_back_stands_on_the_host() {
    let dir = sample();
    let policy = WriteBack::to(dir.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let refused = Host::open_for_writing(elsewhere.path(), &policy).err().unwrap();
    assert_eq!(refused.kind, Kind::Denied);
    let view =
        mounted(Arc::new(Host::open_for_writing(dir.path(), &policy).unwrap()), Freshness::Frozen);
    let fork = view.fork();
    view.append("/m/a.txt", b" world").unwrap();
    view.make_dir("/m/dir", 0o750).unwrap();
    view.write("/m/dir/x", "x").unwrap();
    view.symlink("/m/dir/l", "/etc/passwd").unwrap();
    view.remove_all("/m/sub").unwrap();
    view.remove_file("/m/near").unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("a.txt")).unwrap(), "hello");
    let written = view.write_back(&path("/m")).unwrap();
    let written: Vec<_> = written.iter().map(|change| change.path.to_string()).collect();
    assert_eq!(written, ["/a.txt", "/dir", "/dir/l", "/dir/x", "/near", "/sub", "/sub/b"]);
    assert_eq!(fs::read_to_string(dir.path().join("a.txt")).unwrap(), "hello world");
    assert_eq!(fs::read_to_string(dir.path().join("dir/x")).unwrap(), "x");
    assert_eq!(fs::metadata(dir.path().join("dir")).unwrap().mode() & 0o777, 0o750);
    assert_eq!(fs::read_link(dir.path().join("dir/l")).unwrap(), Path::new("/etc/passwd"));
    assert!(!dir.path().join("sub").exists());
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".fractal")), "{left:?}");
    assert!(view.changes().unwrap().is_empty() && view.write_back(&path("/m")).unwrap().is_empty());
    assert_eq!(text(&view, "/m/a.txt"), "hello world");
    // The fork was made from what stands there no longer.
    assert_eq!(kind(fork.read("/m/a.txt")), Kind::Changed);
}

#[test]
fn a_file_that_became_a_directory_and_back_is_written_back() {
    let dir = sample();
    let policy = WriteBack::to(dir.path());
    let host = Host::open_for_writing(dir.path(), &policy).unwrap();
    let view = mounted(Arc::new(host), Freshness::Frozen);
    view.remove_file("/m/a.txt").unwrap();
    view.write_all("/m/a.txt/inside", "now a directory").unwrap();
    view.remove_all("/m/sub").unwrap();
    view.write("/m/sub", "now a file").unwrap();
    view.remove_file("/m/near").unwrap();
    view.write("/m/near", "now a file").unwrap();
    view.write_back(&path("/m")).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("a.txt/inside")).unwrap(), "now a directory");
    assert_eq!(fs::read_to_string(dir.path().join("sub")).unwrap(), "now a file");
    assert!(dir.path().join("near").symlink_metadata().unwrap().is_file());
    view.remove_all("/m/a.txt").unwrap();
    view.symlink("/m/a.txt", "sub").unwrap();
    view.write_back(&path("/m")).unwrap();
    assert_eq!(fs::read_link(dir.path().join("a.txt")).unwrap(), Path::new("sub"));
}

#[test]
fn somebody_elses_edit_is_not_written_over() {
    let dir = sample();
    let host = Host::open_for_writing(dir.path(), &WriteBack::to(dir.path())).unwrap();
    let view = mounted(Arc::new(host), Freshness::Frozen);
    view.write("/m/a.txt", "ours").unwrap();
    view.write("/m/new", "ours").unwrap();
    fs::write(dir.path().join("a.txt"), "theirs").unwrap();
    assert_eq!(kind(view.write_back(&path("/m"))), Kind::Changed);
    assert_eq!(fs::read_to_string(dir.path().join("a.txt")).unwrap(), "theirs");
    assert_eq!(text(&view, "/m/a.txt"), "ours", "the view keeps its own");
    fs::write(dir.path().join("a.txt"), "ours").unwrap();
    fs::write(dir.path().join("new"), "theirs").unwrap();
    assert_eq!(kind(view.write_back(&path("/m"))), Kind::Changed);
    fs::remove_file(dir.path().join("new")).unwrap();
    view.write_back(&path("/m")).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("new")).unwrap(), "ours");
    // A directory that became a link is not written through.
    let out = tempfile::tempdir().unwrap();
    view.write("/m/sub/c", "c").unwrap();
    fs::rename(dir.path().join("sub"), dir.path().join("old")).unwrap();
    symlink(out.path(), dir.path().join("sub")).unwrap();
    assert!(view.write_back(&path("/m")).is_err());
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
}

/// Whatever a path says, it stays in the view.
#[test]
fn random_paths_never_reach_the_host() {
    let dir = sample();
    let secret = dir.path().parent().unwrap().join(dir.path().file_name().unwrap()).join("sub/b");
    fs::create_dir(dir.path().join("inner")).unwrap();
    symlink(&secret, dir.path().join("inner/absolute")).unwrap();
    symlink("../sub/b", dir.path().join("inner/above")).unwrap();
    symlink("loop", dir.path().join("inner/loop")).unwrap();
    symlink("..", dir.path().join("inner/dots")).unwrap();
    fs::write(dir.path().join("inner/file"), "inside").unwrap();
    tick();
    let view = host(&dir.path().join("inner"), Freshness::Frozen);
    let names: [&[u8]; 14] = [
        b"..",
        b".",
        b"",
        b"m",
        b"file",
        b"absolute",
        b"above",
        b"loop",
        b"dots",
        b"\xff\xfe",
        b"new",
        b"..\\",
        b"a\0b",
        &[b'x'; 300],
    ];
    let mut dice = crate::dice::Dice::new(5);
    for round in 0..20_000 {
        let count = 1 + dice.below(8);
        let parts: Vec<&[u8]> = (0..count).map(|_| dice.of(&names)).collect();
        let path = [&b"/m/"[..], &parts.join(&b'/')].concat();
        if let Ok(bytes) = view.read(&path) {
            assert!(bytes == "inside" || bytes == "mine", "{round}: {}", path.escape_ascii());
        }
        match dice.below(5) {
            0 => drop(view.write(&path, "mine")),
            1 => drop(view.make_dir(&path, 0o755)),
            2 => drop(view.remove_file(&path)),
            3 => drop(view.resolve(&path).map(|at| assert!(at.starts_with(b"/")))),
            _ => drop(view.list(&path)),
        }
        if let Ok(clean) = fractal_model::SandboxPath::parse(&path) {
            assert!(clean.components().all(|name| name != b".." && !name.contains(&0)));
        }
    }
    assert_eq!(fs::read_to_string(dir.path().join("sub/b")).unwrap(), "bee");
    assert_eq!(fs::read_dir(dir.path().join("inner")).unwrap().count(), 5);
}

#[test]
fn a_volume_outlives_the_views_that_write_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("volumes/notes");
    let first = mounted(Arc::new(Volume::open(&data).unwrap()), Freshness::Frozen);
    first.write_all("/m/memory/today.md", "learned").unwrap();
    first.write_back(&path("/m")).unwrap();
    drop(first);
    let second = Vfs::default();
    let volume = Arc::new(Volume::open(&data).unwrap());
    mount(&second, "/data", volume, Access::Writable, Freshness::Frozen);
    assert_eq!(text(&second, "/data/memory/today.md"), "learned");
    assert_eq!(second.stat("/data/memory").unwrap().kind, EntryKind::Directory);
    assert_eq!(second.mounts()[0].source.kind(), "volume");
}
