//! What is written into the view by other ways than the mount is seen there,
//! however much the kernel remembers.

use crate::mounted::{View, empty, show};
use fractal_fs::{Access, Ask, Fault, Freshness, Item, Mount, Source, Vfs};
use fractal_model::SandboxPath;
use std::fs;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn sync(view: &View) {
    view.mounted.as_ref().unwrap().sync();
}

fn names(view: &View, dir: &str) -> Vec<String> {
    let names = fs::read_dir(view.at(dir)).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn contents_names_and_what_was_missing_are_seen_anew() {
    let Some(view) = empty() else { return };
    let vfs = &view.view;
    vfs.write_all("/d/f", "one").unwrap();
    let mut open = fs::File::open(view.at("d/f")).unwrap();
    assert_eq!(fs::read(view.at("d/f")).unwrap(), b"one");
    assert_eq!(names(&view, "d"), ["f"]);
    assert!(!view.at("d/new").exists());
    vfs.write("/d/f", "another and longer").unwrap();
    vfs.write("/d/new", "x").unwrap();
    sync(&view);
    assert_eq!(fs::read(view.at("d/f")).unwrap(), b"another and longer");
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "another and longer");
    assert_eq!(fs::read(view.at("d/new")).unwrap(), b"x");
    assert_eq!(names(&view, "d"), ["f", "new"]);
    vfs.rename("/d", "/e").unwrap();
    vfs.remove_file("/e/f").unwrap();
    sync(&view);
    assert!(!view.at("d").exists());
    assert_eq!(names(&view, "e"), ["new"]);
    assert_eq!(names(&view, ""), ["e"]);
}

#[test]
fn going_back_to_a_snapshot_is_seen() {
    let Some(view) = empty() else { return };
    fs::create_dir(view.at("d")).unwrap();
    fs::write(view.at("d/f"), "first").unwrap();
    let snapshot = view.view.tree();
    fs::write(view.at("d/f"), "second, which is longer").unwrap();
    fs::write(view.at("d/g"), "x").unwrap();
    fs::rename(view.at("d"), view.at("e")).unwrap();
    view.view.restore(&snapshot).unwrap();
    sync(&view);
    assert_eq!(fs::read(view.at("d/f")).unwrap(), b"first");
    assert_eq!(names(&view, "d"), ["f"]);
    assert!(!view.at("e").exists());
    fs::write(view.at("d/f"), "third").unwrap();
    assert_eq!(view.view.read("/d/f").unwrap(), "third");
}

#[test]
fn it_is_seen_without_being_asked_for() {
    let Some(view) = empty() else { return };
    view.view.write("/f", "one").unwrap();
    assert!(!view.at("g").exists());
    view.view.write("/g", "two").unwrap();
    let since = Instant::now();
    while !view.at("g").exists() {
        assert!(since.elapsed() < Duration::from_secs(60), "it is never seen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn two_mounts_of_one_view_see_each_other() {
    let Some(one) = empty() else { return };
    let Some(two) = show(&one.view) else { return };
    assert!(!two.at("f").exists());
    fs::write(one.at("f"), "x").unwrap();
    sync(&two);
    assert_eq!(fs::read(two.at("f")).unwrap(), b"x");
    fs::write(two.at("f"), "longer").unwrap();
    sync(&one);
    assert_eq!(fs::read(one.at("f")).unwrap(), b"longer");
}

/// Another content at every reading, of the same size.
struct Counter(AtomicU64);

impl Source for Counter {
    fn kind(&self) -> &str {
        "counter"
    }

    fn list(&self, _: &SandboxPath, _: &Ask) -> Result<Vec<Item>, Fault> {
        Ok(vec![Item::file("now")])
    }

    fn read(&self, _: &SandboxPath, _: &Ask) -> Result<bytes::Bytes, Fault> {
        Ok(format!("{:05}", self.0.fetch_add(1, Ordering::SeqCst)).into())
    }
}

#[test]
fn a_live_source_is_asked_at_every_opening() {
    let vfs = Vfs::default();
    let source = Arc::new(Counter(AtomicU64::new(0)));
    let mount = Mount {
        path: SandboxPath::parse(b"/live").unwrap(),
        source: source.clone(),
        access: Access::ReadOnly,
        freshness: Freshness::Live(Duration::ZERO),
    };
    vfs.mount(mount).unwrap();
    let Some(view) = show(&vfs) else { return };
    let read = || fs::read_to_string(view.at("live/now")).unwrap();
    let (one, two) = (read(), read());
    assert!(one < two && two.len() == 5, "{one} {two}");
    assert!(fs::write(view.at("live/now"), "x").is_err());
    // Not for what others do elsewhere.
    let asked = source.0.load(Ordering::SeqCst);
    vfs.write("/elsewhere", "x").unwrap();
    sync(&view);
    assert_eq!(source.0.load(Ordering::SeqCst), asked);
    fs::write(view.at("f"), "beside it").unwrap();
    assert_eq!(fs::read(view.at("f")).unwrap(), b"beside it");
}

#[test]
fn a_frozen_source_can_be_written_over_and_listed_without_being_made() {
    let source = Arc::new(Counter(AtomicU64::new(0)));
    let vfs = Vfs::default();
    let mount = Mount {
        path: SandboxPath::parse(b"/frozen").unwrap(),
        source: source.clone(),
        access: Access::Writable,
        freshness: Freshness::Frozen,
    };
    vfs.mount(mount).unwrap();
    let Some(view) = show(&vfs) else { return };
    assert_eq!(names(&view, "frozen"), ["now"]);
    // Nor is it made to see whether it changed.
    vfs.write("/elsewhere", "x").unwrap();
    sync(&view);
    assert_eq!(source.0.load(Ordering::SeqCst), 0);
    assert_eq!(fs::metadata(view.at("frozen/now")).unwrap().len(), 5);
    assert_eq!(fs::read(view.at("frozen/now")).unwrap(), b"00000");
    fs::write(view.at("frozen/now"), "mine").unwrap();
    assert_eq!(vfs.read("/frozen/now").unwrap(), "mine");
    assert_eq!(source.0.load(Ordering::SeqCst), 1);
}
