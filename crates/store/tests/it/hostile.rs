//! Trees made by someone who wants their deletion to go wrong.

use crate::support::{home, open};
use fractal_store::{Store, new_id};
use rustix::fs::{CWD, Mode, OFlags};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const DEPTH: usize = 5000;

/// Nests directories whose path is far longer than the kernel takes.
fn nest(at: &Path, depth: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(at, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&here, "directory", Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "directory", flags, Mode::empty()).unwrap();
    }
    rustix::fs::symlinkat("/", &here, "root").unwrap();
}

fn poison(tree: &Path, outside: &Path) {
    nest(tree, DEPTH);
    symlink(outside, tree.join("outside")).unwrap();
    symlink("outside", tree.join("relative")).unwrap();
    symlink("loop", tree.join("loop")).unwrap();
    let fifo = tree.join("fifo");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    fs::create_dir_all(tree.join("closed/inner/innermost")).unwrap();
    fs::write(tree.join("closed/inner/f"), "x").unwrap();
    for path in ["closed/inner/innermost", "closed/inner", "closed"] {
        fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o000)).unwrap();
    }
    fs::create_dir(tree.join("read-only")).unwrap();
    fs::write(tree.join("read-only/f"), "x").unwrap();
    fs::set_permissions(tree.join("read-only"), fs::Permissions::from_mode(0o555)).unwrap();
    for index in 0..2000 {
        fs::write(tree.join(format!("wide-{index}")), "x").unwrap();
    }
}

fn is_empty(store: &Store) -> bool {
    let count = |path| fs::read_dir(path).unwrap().count();
    count(store.trash_dir()) == 0 && count(store.layers_dir()) == 0
}

#[test]
fn a_hostile_tree_is_measured_and_deleted_and_nothing_outside_is_touched() {
    let (home, outside) = (home(), home());
    fs::write(outside.path().join("precious"), "x").unwrap();
    let store = open(&home);
    let id = new_id();
    store.new_layer_dir(id).unwrap();
    poison(&store.layer_tree(id), outside.path());
    let size = store.layer_size(id).unwrap();
    assert!(size >= (DEPTH as u64) * 4096, "every level counts: {size}");
    store.discard_layer(id).unwrap();
    store.discard_layer(id).expect("a second time is no error");
    assert!(is_empty(&store));
    assert!(outside.path().join("precious").exists());
}

#[test]
fn what_an_interrupted_deletion_left_is_collected() {
    let (home, outside) = (home(), home());
    fs::write(outside.path().join("precious"), "x").unwrap();
    let store = open(&home);
    let left = store.trash_dir().join("left");
    fs::create_dir(&left).unwrap();
    poison(&left, outside.path());
    symlink(outside.path(), store.trash_dir().join("link")).unwrap();
    let promised = store.gc(true).unwrap();
    assert_eq!(store.gc(false).unwrap(), promised);
    assert!(is_empty(&store));
    assert!(outside.path().join("precious").exists());
}

#[test]
fn two_collectors_at_once_do_not_trip_over_each_other() {
    let (home, outside) = (home(), home());
    let store = open(&home);
    let left = store.trash_dir().join("left");
    fs::create_dir(&left).unwrap();
    poison(&left, outside.path());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| store.gc(false).expect("it finishes"));
        }
    });
    store.gc(false).unwrap();
    assert!(is_empty(&store));
}

#[test]
fn work_directories_that_nobody_may_enter_are_thrown_away() {
    let home = home();
    let store = open(&home);
    let id = new_id();
    store.new_layer_dir(id).unwrap();
    // As a kernel's overlay leaves them, and a copy that was cut off.
    let work = store.layer_work(id).join("run-0/work");
    fs::create_dir_all(work.join("incompat/volatile")).unwrap();
    fs::create_dir_all(work.join("#1/inner")).unwrap();
    for path in ["#1/inner", "#1", "incompat/volatile", "incompat", ""] {
        fs::set_permissions(work.join(path), fs::Permissions::from_mode(0o000)).unwrap();
    }
    store.clear_work(id);
    assert_eq!(fs::read_dir(store.layer_work(id)).unwrap().count(), 0);
    assert_eq!(fs::read_dir(store.trash_dir()).unwrap().count(), 0);
    let beside = store.layer_dir(id).join("next");
    fs::create_dir_all(beside.join("closed/inner")).unwrap();
    fs::set_permissions(beside.join("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    store.discard_beside(id, "next").unwrap();
    assert!(!beside.exists());
    assert_eq!(fs::read_dir(store.trash_dir()).unwrap().count(), 0);
}
