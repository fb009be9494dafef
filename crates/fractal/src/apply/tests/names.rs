//! Files with several names, and files that somebody still has open: what is
//! kept for an undo is the very file, so others may reach it.

use super::world::{Want, World};
use fractal_model::Verdict;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// A promoted file whose old self has another name.
fn linked() -> World {
    let world = World::fast();
    world.write("file", "what stood there");
    fs::hard_link(world.root.join("file"), world.root.join("other")).unwrap();
    world.apply(&[("file", Want::File("promoted"))]).unwrap();
    world
}

#[test]
fn an_edit_under_another_name_stops_the_undo_and_is_found() {
    let world = linked();
    world.write("other", "edited since");
    let before = world.tree();
    let reply = world.undo(None).unwrap();
    assert_eq!(reply.verdict, Verdict::Conflict);
    let [conflict] = &reply.conflicts[..] else { panic!("{:?}", reply.conflicts) };
    assert!(conflict.path.ends_with("root/file"));
    assert_eq!(world.tree(), before);
    let (_, kept) = conflict.why.split_once("it is in ").unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "edited since");
    // Put there by hand it needs no undo, which then takes back the rest.
    fs::copy(kept, world.root.join("file")).unwrap();
    assert!(world.undo(None).unwrap().conflicts.is_empty());
}

#[test]
fn a_program_that_writes_on_into_the_old_file_stops_the_undo() {
    let world = World::fast();
    world.write("log", "one\n");
    let mut open = fs::OpenOptions::new().append(true).open(world.root.join("log")).unwrap();
    world.apply(&[("log", Want::File("promoted"))]).unwrap();
    open.write_all(b"two\n").unwrap();
    let reply = world.undo(None).unwrap();
    assert_eq!(reply.verdict, Verdict::Conflict, "{reply:?}");
    assert_eq!(fs::read_to_string(world.root.join("log")).unwrap(), "promoted");
}

#[test]
fn what_came_back_has_no_more_names_than_before() {
    let world = linked();
    let names = |name: &str| fs::metadata(world.root.join(name)).unwrap().nlink();
    let back = world.undo(None).unwrap().undo.unwrap();
    assert_eq!((names("file"), names("other")), (2, 2));
    // Its edits are its own: bringing the promotion again and taking it back
    // gives back what stood there at the last moment.
    world.write("file", "edited");
    assert_eq!(world.undo(Some(back.as_str())).unwrap().verdict, Verdict::Conflict);
    world.write("file", "what stood there");
    let again = world.undo(Some(back.as_str())).unwrap();
    assert_eq!(again.verdict, Verdict::Applied, "{:?}", again.conflicts);
    assert_eq!(names("file"), 1);
    assert!(world.engine.store.verify().unwrap().is_empty());
}

#[test]
fn an_edit_that_keeps_size_and_time_is_an_edit() {
    let world = World::fast();
    world.write("file", "old");
    world.apply(&[("file", Want::File("new"))]).unwrap();
    let file = fs::OpenOptions::new().write(true).open(world.root.join("file")).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    (&file).write_all(b"NEW").unwrap();
    file.set_modified(time).unwrap();
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Conflict);
    assert_eq!(fs::read_to_string(world.root.join("file")).unwrap(), "NEW");
}

#[test]
fn what_comes_into_a_shared_directory_belongs_to_its_group() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let world = World::fast();
    let is_root = rustix::process::geteuid().is_root();
    let group = if is_root { 4242 } else { rustix::process::getegid().as_raw() };
    for dir in ["", "shared", "plain"] {
        world.write(&format!("{dir}/old"), "old");
    }
    chown(world.root.join("shared"), None, Some(group)).unwrap();
    chown(world.root.join("shared/old"), None, Some(group)).unwrap();
    let shared = fs::Permissions::from_mode(0o2775);
    fs::set_permissions(world.root.join("shared"), shared).unwrap();
    let wants = [
        ("plain/dir", Want::Dir),
        ("shared/dir", Want::Dir),
        ("shared/dir/below", Want::Dir),
        ("shared/dir/below/file", Want::File("new")),
        ("shared/file", Want::File("new")),
        ("shared/old", Want::File("new")),
    ];
    let before = world.tree();
    world.apply(&wants).unwrap();
    let see = |name: &str| {
        let meta = fs::metadata(world.root.join(name)).unwrap();
        (meta.permissions().mode() & 0o7777, meta.gid() == group)
    };
    assert_eq!(see("shared/dir"), (0o2755, true));
    assert_eq!(see("shared/dir/below"), (0o2755, true));
    assert_eq!(see("shared/dir/below/file"), (0o644, true));
    assert_eq!((see("shared/file"), see("shared/old")), ((0o644, true), (0o644, true)));
    assert_eq!(see("plain/dir"), (0o755, !is_root));
    assert!(world.undo(None).unwrap().conflicts.is_empty());
    assert_eq!(world.tree(), before);
}
