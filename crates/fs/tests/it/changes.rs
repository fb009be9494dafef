//! The list of changes against a naive comparison of everything.

use crate::dice::Dice;
use fractal_fs::{Tree, Vfs};
use fractal_model::{ChangeKind, EntryKind};
use std::collections::BTreeMap;

/// Kind, mode and content of one entry.
type Seen = (EntryKind, u32, Vec<u8>);

/// Everything in a view.
fn everything(view: &Vfs) -> BTreeMap<String, Seen> {
    let (mut out, mut todo) = (BTreeMap::new(), vec![String::new()]);
    while let Some(dir) = todo.pop() {
        for listed in view.list(format!("{dir}/")).unwrap() {
            let path = format!("{dir}/{}", listed.name);
            let stat = view.lstat(&path).unwrap();
            let content = match stat.kind {
                EntryKind::File => view.read(&path).unwrap().to_vec(),
                EntryKind::Symlink => view.read_link(&path).unwrap(),
                _ => {
                    todo.push(path.clone());
                    Vec::new()
                }
            };
            out.insert(path, (stat.kind, stat.meta.mode, content));
        }
    }
    out
}

fn naive(old: &Vfs, new: &Vfs) -> Vec<(String, ChangeKind)> {
    let (old, new) = (everything(old), everything(new));
    let mut out = Vec::new();
    for path in old.keys().chain(new.keys()) {
        let kind = match (old.get(path), new.get(path)) {
            (Some(before), Some(after)) if before == after => continue,
            (Some(_), Some(_)) => ChangeKind::Modified,
            (Some(_), None) => ChangeKind::Deleted,
            (None, _) => ChangeKind::Added,
        };
        out.push((path.clone(), kind));
    }
    out.sort();
    out.dedup();
    out
}

fn told(view: &Vfs, old: &Tree) -> Vec<(String, ChangeKind)> {
    let changes = view.changes_since(old).unwrap();
    let mut out: Vec<_> = changes.iter().map(|c| (c.path.to_string(), c.kind)).collect();
    out.sort();
    out
}

fn edit(view: &Vfs, dice: &mut Dice) {
    let names = ["a", "b", "c", "d", "e"];
    let mut path = || {
        let deep = 1 + dice.below(3);
        (0..deep).map(|_| format!("/{}", dice.of(&names))).collect::<String>()
    };
    let (one, two) = (path(), path());
    // Most of them fail now and then, as they should.
    let _ = match dice.below(9) {
        0 | 1 => view.write_all(&one, vec![b'x'; dice.below(5) as usize]).map(drop),
        2 => view.make_dir(&one, 0o755),
        3 => view.remove_all(&one),
        4 => view.rename(&one, &two),
        5 => view.link(&one, &two),
        6 => view.append(&one, b"more"),
        7 => view.symlink(&one, &two),
        _ => view.copy_file(&one, &two),
    };
}

#[test]
fn changes_are_what_comparing_everything_finds() {
    for seed in 0..150 {
        let (view, mut dice) = (Vfs::default(), Dice::new(seed));
        let mut sealed = Vec::new();
        for _ in 0..8 {
            (0..12).for_each(|_| edit(&view, &mut dice));
            sealed.push(view.tree());
        }
        for old in &sealed {
            let expect = naive(&view.at(old), &view);
            assert_eq!(told(&view, old), expect, "history {seed}");
        }
    }
}

#[test]
fn what_is_put_back_is_no_change() {
    let view = Vfs::default();
    view.write_all("/a/b", "one").unwrap();
    let fork = view.fork();
    fork.write("/a/b", "two").unwrap();
    fork.write("/a/c", "new").unwrap();
    assert_eq!(fork.changes().unwrap().len(), 2);
    fork.write("/a/b", "one").unwrap();
    fork.remove_file("/a/c").unwrap();
    assert!(fork.changes().unwrap().is_empty());
}

#[test]
fn a_file_with_several_names_changes_under_all_of_them() {
    let view = Vfs::default();
    view.write_all("/a/one", "x").unwrap();
    view.make_dir("/b", 0o755).unwrap();
    view.link("/a/one", "/b/two").unwrap();
    let fork = view.fork();
    fork.append("/b/two", b"y").unwrap();
    let paths: Vec<_> = fork.changes().unwrap().iter().map(|c| c.path.to_string()).collect();
    assert_eq!(paths, ["/a/one", "/b/two"]);
    assert_eq!(view.read("/a/one").unwrap(), "x");
}

#[test]
fn a_million_entries_do_not_slow_down_one_change() {
    // Counted, not timed: a fork and its one change look at a few nodes, so
    // the comparison of two trees finds the change without walking them.
    let view = Vfs::default();
    for dir in 0..100 {
        view.make_dir(format!("/{dir}"), 0o755).unwrap();
        for file in 0..1000 {
            view.write(format!("/{dir}/{file}"), "").unwrap();
        }
    }
    let fork = view.fork();
    fork.write("/42/7", "changed").unwrap();
    let start = std::time::Instant::now();
    assert_eq!(fork.changes().unwrap().len(), 1);
    let one = start.elapsed();
    let start = std::time::Instant::now();
    assert_eq!(everything(&fork).len(), 100_100);
    let all = start.elapsed();
    assert!(one < all, "a comparison took {one:?}, looking at everything {all:?}");
}
