//! Forks, sealed trees and what they cost.

use fractal_fs::{Kind, Limits, Vfs};

#[test]
fn a_fork_sees_what_was_there_and_nothing_later() {
    let view = Vfs::default();
    view.write_all("/a/b", "old").unwrap();
    let fork = view.fork();
    view.write("/a/b", "new").unwrap();
    fork.write("/a/c", "mine").unwrap();
    assert_eq!(fork.read("/a/b").unwrap(), "old");
    assert!(!view.exists("/a/c"));
    let deeper = fork.fork();
    deeper.remove_all("/a").unwrap();
    assert_eq!(fork.read("/a/c").unwrap(), "mine");
}

#[test]
fn a_view_and_its_fork_part_at_the_first_write_of_either() {
    let told = |view: &Vfs| -> Vec<String> {
        view.changes().unwrap().iter().map(|change| change.path.to_string()).collect()
    };
    let view = Vfs::default();
    view.write("/a", "1").unwrap();
    let (first, second) = (view.fork(), view.fork());
    assert!(first.tree().is(&first.base()) && told(&first).is_empty());
    view.write("/b", "later").unwrap();
    first.write("/c", "mine").unwrap();
    assert_eq!((told(&view), told(&first)), (vec!["/a".into(), "/b".into()], vec!["/c".into()]));
    assert!(told(&second).is_empty() && !second.exists("/b"));
    // Limits and restored trees are no new beginning; a new base is.
    second.set_limits(Limits { bytes_max: 10, entries_max: 10 });
    assert!(told(&second).is_empty() && view.limits() == Limits::default());
    second.restore(&first.tree()).unwrap();
    assert_eq!(told(&second), ["/c"]);
    second.rebase();
    assert!(told(&second).is_empty() && second.base().is(&first.tree()));
}

#[test]
fn many_forks_of_one_directory_each_keep_their_own_names() {
    let base = Vfs::default();
    for at in 0..100 {
        base.write_all(format!("/d/{at}"), "old").unwrap();
    }
    let names = |view: &Vfs| view.list("/d").unwrap().len();
    // As many as lie beside a shared directory, and more than that.
    for count in [1, 7, 8, 9, 30] {
        let fork = base.fork();
        for at in 0..count {
            fork.write(format!("/d/{at}"), "new").unwrap();
            fork.write(format!("/d/new-{at}"), "new").unwrap();
            fork.remove_file(format!("/d/{}", 99 - at)).unwrap();
        }
        let deeper = fork.fork();
        deeper.remove_file("/d/0").unwrap();
        assert_eq!((names(&base), names(&fork), names(&deeper)), (100, 100, 99));
        assert_eq!(fork.changes().unwrap().len(), 3 * count);
        assert_eq!(deeper.changes().unwrap().len(), 1);
        assert_eq!(base.changes_since(&deeper.tree()).unwrap().len(), 3 * count);
        let paged = fork.page("/d", 0, 1000).unwrap();
        assert!(paged.is_sorted_by_key(|paged| paged.next) && paged.len() == 100);
        assert_eq!(fork.usage().entries, 101);
        assert_eq!(fork.read("/d/0").unwrap(), "new");
    }
    assert!(
        base.list("/d")
            .unwrap()
            .iter()
            .all(|it| base.read(format!("/d/{}", it.name)).unwrap() == "old")
    );
}

#[test]
fn a_link_with_a_slash_behind_it_is_no_directory_to_be_removed() {
    let view = Vfs::default();
    view.write_all("/real/file", "kept").unwrap();
    view.symlink("/link", "real").unwrap();
    for path in ["/link/", "/link//"] {
        assert_eq!(view.remove_all(path).unwrap_err().kind, Kind::NotADirectory);
        assert_eq!(view.remove_file(path).unwrap_err().kind, Kind::NotADirectory);
        assert_eq!(view.remove_dir(path).unwrap_err().kind, Kind::NotADirectory);
    }
    assert_eq!(view.read("/link/file").unwrap(), "kept");
}

#[test]
fn a_sealed_tree_comes_back() {
    let view = Vfs::default();
    view.write("/a", "1").unwrap();
    let sealed = view.tree();
    view.write("/a", "2").unwrap();
    view.write("/b", "2").unwrap();
    view.restore(&sealed).unwrap();
    assert_eq!(view.read("/a").unwrap(), "1");
    assert!(!view.exists("/b"));
    assert!(view.tree().is(&sealed));
}

#[test]
fn a_write_is_refused_when_someone_else_was_there() {
    let view = Vfs::default();
    let first = view.write_if("/a", "1", 0).unwrap();
    assert_eq!(view.write_if("/a", "2", 0).unwrap_err().kind, Kind::Changed);
    let second = view.write_if("/a", "2", first).unwrap();
    assert_ne!(first, second);
    assert_eq!(view.write_if("/a", "3", first).unwrap_err().kind, Kind::Changed);
    assert_eq!(view.read_version("/a").unwrap(), ("2".into(), second));
    // A fork that wrote the same has another version.
    let fork = view.fork();
    assert_ne!(fork.write("/a", "4").unwrap(), view.write("/a", "4").unwrap());
}

#[test]
fn limits_hold_for_bytes_and_entries_and_give_back() {
    let view = Vfs::new(Limits { bytes_max: 100_000, entries_max: 5 });
    view.write("/a", vec![0; 90_000]).unwrap();
    assert_eq!(view.write("/b", vec![0; 20_000]).unwrap_err().kind, Kind::Full);
    assert_eq!(view.append("/a", &[0; 20_000]).unwrap_err().kind, Kind::Full);
    view.write("/a", vec![0; 1000]).unwrap();
    view.write("/b", vec![0; 20_000]).unwrap();
    for name in ["/c", "/d", "/e"] {
        view.write(name, "").unwrap();
    }
    assert_eq!(view.write("/f", "").unwrap_err().kind, Kind::Full);
    assert_eq!(view.make_dir("/f", 0o755).unwrap_err().kind, Kind::Full);
    assert_eq!(view.symlink("/f", "x").unwrap_err().kind, Kind::Full);
    assert_eq!(view.link("/a", "/f").unwrap_err().kind, Kind::Full);
    let held = view.usage();
    assert_eq!((held.entries, held.bytes), (5, 21_000));
    view.remove_all("/b").unwrap();
    view.make_dir("/f", 0o755).unwrap();
    // A hole takes nothing.
    view.truncate("/a", 1 << 40).unwrap();
    assert_eq!(view.stat("/a").unwrap().size, 1 << 40);
}

#[test]
fn the_weight_stays_right_through_renames_links_and_removals() {
    let view = Vfs::default();
    view.write_all("/a/b/c", vec![0; 100]).unwrap();
    view.link("/a/b/c", "/a/d").unwrap();
    view.rename("/a/b", "/e").unwrap();
    let held = view.usage();
    assert_eq!((held.entries, held.bytes), (4, 100));
    view.append("/a/d", &[0; 50]).unwrap();
    assert_eq!(view.usage().bytes, 150);
    assert_eq!(view.stat("/e/c").unwrap().names, 2);
    view.remove_all("/a").unwrap();
    assert_eq!(view.stat("/e/c").unwrap().names, 1);
    let held = view.usage();
    assert_eq!((held.entries, held.bytes), (2, 150));
    view.remove_all("/e").unwrap();
    let held = view.usage();
    assert_eq!((held.entries, held.bytes), (0, 0));
}

#[test]
fn a_tree_cannot_grow_deeper_than_the_stack_bears() {
    let view = Vfs::default();
    let mut path = String::new();
    let error = loop {
        path.push_str("/d");
        if let Err(error) = view.make_dir(&path, 0o755) {
            break error;
        }
    };
    assert_eq!(error.kind, Kind::NameTooLong);
    // By moving deep trees into each other neither.
    let top = view.fork();
    top.make_dir("/e", 0o755).unwrap();
    assert_eq!(top.rename("/d", "/e/d").unwrap_err().kind, Kind::NameTooLong);
    assert!(top.exists("/d/d") && !top.exists("/e/d"));
    assert!(view.changes().unwrap().len() > 900);
}

#[test]
fn there_is_no_way_out() {
    let view = Vfs::default();
    view.write("/in", "inside").unwrap();
    view.symlink("/up", "../../../../../../in").unwrap();
    view.symlink("/abs", "/../etc/passwd").unwrap();
    view.symlink("/self", "self").unwrap();
    assert_eq!(view.read("/../../in").unwrap(), "inside");
    assert_eq!(view.read("/up").unwrap(), "inside");
    assert_eq!(view.read("/abs").unwrap_err().kind, Kind::NotFound);
    assert_eq!(view.read("/self").unwrap_err().kind, Kind::Loop);
    assert_eq!(view.read("/etc/passwd").unwrap_err().kind, Kind::NotFound);
    assert_eq!(view.write("/a\0b", "").unwrap_err().kind, Kind::Invalid);
    assert_eq!(view.write(vec![b'x'; 5000], "").unwrap_err().kind, Kind::NameTooLong);
    view.write([b'/', 0xff, 0xfe], "not text").unwrap();
    assert_eq!(view.read([b'/', 0xff, 0xfe]).unwrap(), "not text");
}

#[test]
fn attributes_and_owners_are_kept_and_are_changes() {
    let view = Vfs::default();
    view.write("/a", "").unwrap();
    let fork = view.fork();
    fork.set_xattr("/a", b"user.note", b"hello").unwrap();
    assert_eq!(fork.xattr("/a", b"user.note").unwrap(), b"hello");
    assert_eq!(fork.xattrs("/a").unwrap(), [b"user.note"]);
    assert_eq!(fork.changes().unwrap().len(), 1);
    fork.remove_xattr("/a", b"user.note").unwrap();
    assert_eq!(fork.xattr("/a", b"user.note").unwrap_err().kind, Kind::NoAttribute);
    assert!(fork.changes().unwrap().is_empty());
    assert_eq!(fork.set_xattr("/a", b"x", &[0; 70_000]).unwrap_err().kind, Kind::Full);
}
