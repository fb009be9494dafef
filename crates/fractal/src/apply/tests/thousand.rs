//! A change of a thousand paths, and what must hold after anything went wrong.

use super::world::{Want, World};
use crate::apply::Job;
use fractal_store::Reads;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

type Tree = BTreeMap<Vec<u8>, String>;

/// One such write: how many changes of the disk it makes, and the trees before
/// and after.
pub struct Ends {
    pub steps: usize,
    pub calls: u64,
    pub old: Tree,
    pub new: Tree,
}

/// Files, directories and links that are added, changed, removed and turned
/// into each other: `count` steps in all, beside as many that stay.
fn changes(count: usize) -> Vec<(String, Want)> {
    let kinds = |at: usize| match at % 10 {
        0 => Want::Dir,
        1..=3 => Want::Gone,
        4 => Want::Mode(0o600),
        6 => Want::Link("somewhere else"),
        5 => Want::File("it was a link"),
        _ => Want::File("new content"),
    };
    (0..count).map(|at| (name(at), kinds(at))).collect()
}

pub fn name(at: usize) -> String {
    // Each tenth is a new directory that holds the nine after it which are new.
    match at % 10 {
        0 => format!("dir{:02}/made{at}", at % 7),
        8 | 9 => format!("dir{:02}/made{}/new{at}", (at - at % 10) % 7, at - at % 10),
        _ => format!("dir{:02}/file{at}", at % 7),
    }
}

/// The tree that those changes are made to, the same every time.
fn fill(world: &World, count: usize) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    let write = |name: &str, text: &str| {
        let file = File::create(world.root.join(name)).unwrap();
        (&file).write_all(text.as_bytes()).unwrap();
        file.set_modified(time).unwrap();
    };
    let link = |first: usize, second: usize| {
        let [first, second] = [first, second].map(|at| world.root.join(name(at)));
        std::fs::hard_link(first, second).unwrap();
    };
    for at in 0..7 {
        std::fs::create_dir(world.root.join(format!("dir{at:02}"))).unwrap();
    }
    for at in 0..count {
        match at % 10 {
            0 | 8 | 9 => {}
            5 => {
                write(&format!("dir{:02}/stays{at}", at % 7), "stays");
                std::os::unix::fs::symlink("old", world.root.join(name(at))).unwrap();
            }
            // Some are further names of others: one that goes and two that are
            // replaced are one file.
            7 if at % 50 == 27 => link(at - 5, at),
            7 if at % 50 == 37 => link(at - 10, at),
            _ => write(&name(at), "old content"),
        }
    }
}

pub fn apply(world: &World, count: usize) -> fractal_model::Result<()> {
    crate::apply::apply(&world.engine, job(world, count)).map(drop)
}

pub fn job(world: &World, count: usize) -> Job<'static> {
    let changes = changes(count);
    let list: Vec<(&str, Want)> =
        changes.iter().map(|(name, want)| (name.as_str(), want.clone())).collect();
    world.wants(&list)
}

/// Fills a tree, writes once and takes it back.
pub fn measure(world: &mut World, count: usize) -> Ends {
    fill(world, count);
    let old = world.tree();
    let calls = Arc::new(AtomicU64::new(0));
    let seen = calls.clone();
    world.reopen();
    world.engine.set_fault_hook(move |_, number| {
        seen.fetch_max(number, Ordering::Relaxed);
        Ok(())
    });
    apply(world, count).unwrap();
    let calls = calls.load(Ordering::Relaxed);
    let new = world.tree();
    world.reopen();
    world.undo(None).unwrap();
    assert_eq!(world.tree(), old);
    forget(world);
    Ends { steps: count, calls, old, new }
}

/// Throws away what was kept, so that thousands of rounds fit into memory.
pub fn forget(world: &World) {
    for row in world.engine.store.applies().unwrap() {
        world.engine.store.discard_undo(row.id).unwrap();
        world.engine.store.transact(|tx| tx.delete_apply(row.id)).unwrap();
    }
    let left: Vec<_> = std::fs::read_dir(world.home().join("undo")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// After a crash: old or new and nothing else in the tree, no row that waits,
/// and the way back works (`undo`; otherwise the tree is only laid out anew).
/// The tree is old again afterwards.
pub fn check(world: &mut World, ends: &Ends, undo: bool, when: &str) {
    world.reopen();
    assert!(world.engine.store.unfinished_applies().unwrap().is_empty(), "{when}");
    let now = world.tree();
    if now != ends.old {
        let odd = || difference(&now, &ends.old);
        assert!(now == ends.new, "{when}: neither old nor new: {:?}", odd());
        if undo {
            world.undo(None).unwrap_or_else(|error| panic!("{when}: {error}"));
            assert!(world.tree() == ends.old, "{when}: the way back");
        } else {
            lay_out(world, ends.steps);
        }
    }
    forget(world);
}

/// Makes the old tree anew.
pub fn lay_out(world: &World, count: usize) {
    std::fs::remove_dir_all(&world.root).unwrap();
    std::fs::create_dir(&world.root).unwrap();
    fill(world, count);
}

fn difference(now: &Tree, old: &Tree) -> Vec<String> {
    let names = now.keys().chain(old.keys());
    let odd = names.filter(|name| now.get(*name) != old.get(*name));
    odd.take(5)
        .map(|name| format!("{}: {:?}", String::from_utf8_lossy(name), now.get(name)))
        .collect()
}
