//! Every kind of entry becomes every other, and comes back.

use super::world::{Want, World};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// Makes one of the kinds at `x` and says which further paths it has.
fn make(world: &World, kind: &str) {
    match kind {
        "absent" => {}
        "file" => world.write("x", "file"),
        "link" => symlink("elsewhere", world.root.join("x")).unwrap(),
        "empty" => fs::create_dir(world.root.join("x")).unwrap(),
        "full" => {
            world.write("x/a", "a");
            world.write("x/b/c", "c");
        }
        other => panic!("{other}"),
    }
}

fn wants(from: &str, to: &str) -> Vec<(&'static str, Want)> {
    let inside = ["x/a", "x/b", "x/b/c"];
    let mut list: Vec<(&'static str, Want)> = match to {
        "absent" => vec![("x", Want::Gone)],
        "file" => vec![("x", Want::File("new"))],
        "link" => vec![("x", Want::Link("new"))],
        "empty" => vec![("x", Want::Dir)],
        "full" => vec![
            ("x", Want::Dir),
            ("x/a", Want::File("new a")),
            ("x/b", Want::Dir),
            ("x/b/c", Want::File("new c")),
        ],
        other => panic!("{other}"),
    };
    if from == "full" && to != "full" {
        list.extend(inside.map(|name| (name, Want::Gone)));
    }
    list
}

fn check(from: &str, to: &str) {
    let world = World::fast();
    let beside = World::fast();
    make(&world, from);
    make(&beside, from);
    let old = world.tree();
    world.apply(&wants(from, to)).unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
    let new = world.tree();
    let is = |kind: &str| new.get(b"x".as_slice()).is_some_and(|text| text.starts_with(kind));
    let count = new.len();
    match to {
        "absent" => assert_eq!(count, 0, "{from}: {new:?}"),
        "file" => assert!(is("file") && count == 1, "{from}: {new:?}"),
        "link" => assert!(is("link") && count == 1, "{from}: {new:?}"),
        "empty" => assert!(is("dir") && count == 1, "{from}: {new:?}"),
        _ => assert!(is("dir") && count == 4, "{from}: {new:?}"),
    }
    world.undo(None).unwrap_or_else(|error| panic!("{to} back to {from}: {error}"));
    assert_eq!(world.tree(), old, "{from} to {to} and back");
}

#[test]
fn every_kind_becomes_every_other_and_comes_back() {
    let kinds = ["absent", "file", "link", "empty", "full"];
    for from in kinds {
        for to in kinds {
            check(from, to);
        }
    }
}

#[test]
fn a_mode_changes_in_place_and_bits_that_no_sandbox_gives_stay() {
    let world = World::new();
    world.write("tool", "x");
    world.write("dir/in", "x");
    let set = |name: &str, mode| {
        fs::set_permissions(world.root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let mode = |name: &str| {
        fs::symlink_metadata(world.root.join(name)).unwrap().permissions().mode() & 0o7777
    };
    set("tool", 0o4755);
    set("dir", 0o6775);
    let inode = world.see("tool").unwrap().inode;
    let changes =
        [("tool", Want::Mode(0o700)), ("dir", Want::Mode(0o3750)), ("", Want::Mode(0o711))];
    world.apply(&changes).unwrap();
    assert_eq!((mode("tool"), mode("dir"), mode("")), (0o4700, 0o7750, 0o711));
    assert_eq!(world.see("tool").unwrap().inode, inode);
    world.undo(None).unwrap();
    assert_eq!((mode("tool"), mode("dir")), (0o4755, 0o6775));
    assert_eq!(world.see("tool").unwrap().inode, inode);
}

#[test]
fn a_fifo_that_was_replaced_or_removed_comes_back() {
    use std::os::unix::fs::FileTypeExt;
    let worlds = [Some((World::new(), None)), World::split().map(|(world, at)| (world, Some(at)))];
    for (world, _at) in worlds.into_iter().flatten() {
        for name in ["replaced", "removed"] {
            let kind = rustix::fs::FileType::Fifo;
            let (at, mode) = (world.root.join(name), rustix::fs::Mode::from_raw_mode(0o640));
            rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, 0).unwrap();
        }
        let before = world.see("replaced").unwrap().mode;
        world.apply(&[("replaced", Want::File("x")), ("removed", Want::Gone)]).unwrap();
        let undone = world.undo(None).unwrap();
        for name in ["replaced", "removed"] {
            let meta = fs::symlink_metadata(world.root.join(name)).unwrap();
            assert!(meta.file_type().is_fifo(), "{name}");
            assert_eq!(world.see(name).unwrap().mode, before);
        }
        let again = world.undo(undone.undo.map(|id| id.to_string()).as_deref()).unwrap();
        assert!(again.conflicts.is_empty(), "{again:?}");
        assert_eq!(fs::read(world.root.join("replaced")).unwrap(), b"x");
        assert!(!world.root.join("removed").exists());
    }
}
