//! One test per attack; passing means the attack failed.

use crate::support::{Scene, chmod, fifo, make_dir, path, write};
use fractal_jail::layer::{Bounds, Step, disk_usage};
use fractal_model::{ChangeKind, EntryKind};
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_symlink_out_of_the_layer_leads_nowhere() {
    let scene = Scene::new();
    write(scene.out("f"), "SECRET");
    symlink(scene.out(""), scene.layer("absolute")).expect("symlink");
    symlink("../out", scene.layer("climbing")).expect("symlink");
    symlink(scene.out("f"), scene.layer("file")).expect("symlink");
    let view = scene.top_view();
    for name in ["/absolute/f", "/climbing/f", "/file"] {
        assert!(view.open_file(&path(name)).is_err(), "{name}");
    }
    assert!(view.lookup(&path("/absolute/f")).expect("lookup").is_none());
    assert!(view.read_dir(&path("/climbing")).is_err());
    assert_eq!(scene.lines(), ["A /absolute", "A /climbing", "A /file"]);
}

#[test]
fn a_directory_swapped_for_a_symlink_mid_walk_leads_nowhere() {
    let scene = Scene::new();
    write(scene.out("f"), "SECRET");
    write(scene.out("only-outside"), "SECRET");
    write(scene.layer("d/f"), "inside");
    symlink(scene.out(""), scene.layer("link")).expect("symlink");
    let (a, b) = (scene.layer("d"), scene.layer("link"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let swap = rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE);
                swap.expect("both names exist");
            }
        });
        let view = scene.top_view();
        let until = Instant::now() + Duration::from_millis(700);
        let (mut read, mut walks) = (0, 0);
        while Instant::now() < until {
            for name in ["/d/f", "/link/f"] {
                if let Ok(mut file) = view.open_file(&path(name)) {
                    let mut text = String::new();
                    file.read_to_string(&mut text).expect("readable");
                    assert_eq!(text, "inside");
                    read += 1;
                }
            }
            let walked = view.walk(&path("/"), &Bounds::default(), |at, _| {
                assert!(!at.to_string().contains("only-outside"), "{at}");
                Step::Continue
            });
            walked.expect("a race is no failure");
            let listed = scene.lines();
            assert!(!listed.iter().any(|line| line.contains("only-outside")), "{listed:?}");
            walks += 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(read > 0 && walks > 0);
    });
}

#[test]
fn a_fifo_does_not_make_us_wait() {
    let scene = Scene::new();
    fifo(&scene.layer("pipe"));
    write(scene.base("was-file"), "");
    fifo(&scene.layer("was-file"));
    let started = Instant::now();
    assert!(scene.top_view().open_file(&path("/pipe")).is_err());
    let found = scene.changes();
    let kinds: Vec<_> = found.list.iter().map(|change| (change.kind, change.entry)).collect();
    let special = EntryKind::Special;
    assert_eq!(kinds, [(ChangeKind::Added, special), (ChangeKind::Modified, special)]);
    assert_eq!(found.special, 2);
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_fifo_swapped_in_for_a_file_does_not_make_us_wait() {
    let scene = Scene::new();
    fifo(&scene.layer("a"));
    write(scene.layer("b"), "inside");
    let (a, b) = (scene.layer("a"), scene.layer("b"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE);
            }
        });
        let view = scene.top_view();
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            if let Ok(file) = view.open_file(&path("/a")) {
                assert!(file.metadata().expect("stat").is_file());
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_device_is_listed_and_never_opened() {
    let scene = Scene::new();
    let zero = rustix::fs::makedev(1, 5);
    let at = scene.layer("zero");
    if rustix::fs::mknodat(CWD, &at, FileType::CharacterDevice, Mode::RUSR, zero).is_err() {
        println!("skipped: no right to make devices");
        return;
    }
    assert!(scene.top_view().open_file(&path("/zero")).is_err());
    assert_eq!(scene.changes().list[0].entry, EntryKind::Special);
}

#[test]
fn set_uid_bits_are_not_given_out() {
    let scene = Scene::new();
    write(scene.layer("su"), "");
    chmod(&scene.layer("su"), 0o6755);
    // On a directory two of them give no rights to anybody.
    make_dir(&scene.layer("sticky"));
    chmod(&scene.layer("sticky"), 0o7777);
    let modes: Vec<_> = scene.changes().list.iter().map(|change| change.mode).collect();
    assert_eq!(modes, [0o3777, 0o755]);
    let entry = scene.top_view().lookup(&path("/su")).expect("lookup").expect("there");
    assert_eq!(entry.mode, 0o755);
}

#[test]
fn a_tree_of_3000_levels_is_cut_and_said_to_be() {
    let scene = Scene::new();
    make_deep(&scene.layer(""), 3000);
    let found = scene.changes();
    assert!(found.truncated);
    assert_eq!(found.list.len(), 256);
    assert!(disk_usage(&scene.own(), &Bounds::default()).expect("usage").truncated);
    let walked = scene.top_view().walk(&path("/"), &Bounds::default(), |_, _| Step::Continue);
    assert!(walked.expect("walk").truncated);
    // Deeper than any path may be long.
    let bounds = Bounds { depth_max: 10_000, ..Bounds::default() };
    let found = fractal_jail::layer::changes(&[scene.own()], &scene.base_view(), &bounds);
    let found = found.expect("changes");
    assert!(found.truncated);
    assert_eq!(found.list.len(), 2048);
    let removed = std::process::Command::new("rm").arg("-rf").arg(scene.layer("d")).status();
    assert!(removed.expect("rm").success());
}

fn make_deep(root: &Path, levels: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = rustix::fs::open(root, flags, Mode::empty()).expect("open");
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).expect("mkdir");
        at = rustix::fs::openat(&at, "d", flags, Mode::empty()).expect("open");
    }
}

#[test]
fn huge_sparse_files_cost_nothing() {
    let scene = Scene::new();
    let size = 8 << 40;
    for at in [scene.base("huge"), scene.layer("huge"), scene.layer("new"), scene.base("tail")] {
        File::create(at).expect("create").set_len(size).expect("a sparse file");
    }
    let mut tail = File::create(scene.layer("tail")).expect("create");
    tail.set_len(size - 1).expect("a sparse file");
    std::io::Seek::seek(&mut tail, std::io::SeekFrom::End(0)).expect("seek");
    tail.write_all(b"x").expect("write");
    let started = Instant::now();
    assert_eq!(scene.lines(), ["A /new", "M /tail"]);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn names_that_are_no_text_stay_what_they_are() {
    let scene = Scene::new();
    let name = b"\xff\xfe\n\"\x01";
    fs::write(scene.layer("").join(OsStr::from_bytes(name)), "x").expect("write");
    let found = scene.changes();
    assert_eq!(found.list[0].path.relative(), name);
    assert!(scene.top_view().open_file(&path(name)).is_ok());
}

fn note(path: std::path::PathBuf, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

#[test]
fn only_what_programs_note_is_an_attribute() {
    let scene = Scene::new();
    for place in [scene.base("f"), scene.layer("f")] {
        write(place, "same");
    }
    if !note(scene.layer("f"), "user.overlay.origin", b"x") {
        println!("skipped: no user attributes on this filesystem");
        return;
    }
    note(scene.layer("f"), "trusted.note", b"x");
    note(scene.layer("f"), "security.note", b"x");
    assert!(scene.lines().is_empty(), "{:?}", scene.lines());
    note(scene.layer("f"), "user.note", b"x");
    assert_eq!(scene.lines(), ["M /f"]);
    let attributes = scene.top_view().attributes(&path("/f")).expect("few");
    assert_eq!(attributes.iter().collect::<Vec<_>>(), [(&b"user.note"[..], &b"x"[..])]);
}

#[test]
fn more_attributes_than_are_taken_are_listed_and_refused() {
    let scene = Scene::new();
    for place in [scene.base("f"), scene.layer("f")] {
        write(place, "same");
    }
    let set = (0..200).filter(|n| note(scene.layer("f"), &format!("user.{n}"), b"")).count();
    if set <= 128 {
        println!("skipped: this filesystem holds few attributes");
        return;
    }
    assert_eq!(scene.lines(), ["M /f"]);
    let error = scene.top_view().attributes(&path("/f")).expect_err("too many");
    assert!(error.to_string().contains("more extended attributes"), "{error}");
}
