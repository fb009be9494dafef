//! Files with several names, and files that somebody still has open: what is
//! kept for an undo is the very file, so others may reach it.

use super::world::{TIME_NS, Want, World};
use crate::apply::{Content, New, Step, What};
use fractal_jail::layer::{Layer, View};
use fractal_model::{Code, Verdict};
use rustix::io::Errno;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// One file with the names `a`, `b` and `c`.
fn three_names() -> World {
    let world = World::fast();
    world.write("a", "old");
    for name in ["b", "c"] {
        fs::hard_link(world.root.join("a"), world.root.join(name)).unwrap();
    }
    world
}

fn inode(world: &World, name: &str) -> u64 {
    fs::metadata(world.root.join(name)).unwrap().ino()
}

#[test]
fn names_of_one_file_are_replaced_and_removed_together() {
    let world = three_names();
    let (before, file) = (world.tree(), inode(&world, "a"));
    world.apply(&[("a", Want::File("one")), ("b", Want::File("two")), ("c", Want::Gone)]).unwrap();
    assert_eq!(fs::read(world.root.join("a")).unwrap(), b"one");
    assert_eq!(fs::read(world.root.join("b")).unwrap(), b"two");
    assert!(!world.root.join("c").exists());
    assert!(world.undo(None).unwrap().conflicts.is_empty());
    assert_eq!(world.tree(), before);
    assert!(["a", "b", "c"].iter().all(|name| inode(&world, name) == file));
}

#[test]
fn names_of_one_file_come_back_as_one_from_another_filesystem() {
    let Some((world, _other)) = World::split() else { return };
    world.write("a", "old");
    fs::hard_link(world.root.join("a"), world.root.join("b")).unwrap();
    world.apply(&[("a", Want::File("one")), ("b", Want::Gone)]).unwrap();
    assert!(world.undo(None).unwrap().conflicts.is_empty());
    assert_eq!(inode(&world, "a"), inode(&world, "b"));
    assert_eq!(fs::read(world.root.join("b")).unwrap(), b"old");
}

/// Even one that only `ctime` tells.
#[test]
fn an_edit_between_two_names_of_one_file_is_seen() {
    let mut world = three_names();
    let (root, count) = (world.root.clone(), AtomicU64::new(0));
    world.reopen();
    world.engine.set_fault_hook(move |call, _| {
        // Before the file between the two: `a` is out, `b` not looked at yet.
        if call == "rename" && count.fetch_add(1, Ordering::Relaxed) == 1 {
            let file = fs::OpenOptions::new().write(true).open(root.join("c"))?;
            let time = file.metadata()?.modified()?;
            std::thread::sleep(std::time::Duration::from_millis(20));
            (&file).write_all(b"NEW")?;
            file.set_modified(time)?;
        }
        Ok(())
    });
    let wants = [("a", Want::Gone), ("aa", Want::File("x")), ("b", Want::File("ours"))];
    let error = world.apply(&wants).unwrap_err();
    assert_eq!(error.code, Code::Conflict, "{error}");
    for name in ["a", "b", "c"] {
        assert_eq!(fs::read(world.root.join(name)).unwrap(), b"NEW", "{name}");
    }
    assert!(!world.root.join("aa").exists());
}

/// A layer in which the names are links of one another, and steps that bring
/// them.
fn linked_in_layer(
    world: &World,
    names: &[&str],
    mode: u32,
    content: &Content,
) -> (View, Vec<Step>) {
    let layer = world.dir.path().join("layer");
    let below = layer.join(world.root.strip_prefix("/").unwrap());
    let first = below.join(names[0]);
    fs::create_dir_all(&below).unwrap();
    fs::write(&first, "from the layer").unwrap();
    let step = |name: &&str| {
        let _ = fs::hard_link(&first, below.join(name));
        let what = What::File(content.clone());
        let new = Some(New { mode, owner: None, mtime_ns: TIME_NS, noted: None, what });
        Step { path: world.path(name), old: world.see(name), new }
    };
    let steps = names.iter().map(step).collect();
    (View { layers: vec![Layer::open(&layer).unwrap()], ..View::default() }, steps)
}

#[test]
fn links_inside_are_links_in_reality() {
    let world = three_names();
    let (before, file) = (world.tree(), inode(&world, "a"));
    let (view, steps) = linked_in_layer(&world, &["a", "b", "new"], 0o600, &Content::View);
    world.apply_view(steps, &view).unwrap();
    let made = inode(&world, "a");
    assert_ne!(made, file);
    assert!(["b", "new"].iter().all(|name| inode(&world, name) == made));
    assert_eq!(fs::read(world.root.join("new")).unwrap(), b"from the layer");
    assert_eq!(fs::metadata(world.root.join("new")).unwrap().nlink(), 3, "and nowhere else");
    assert_eq!(fs::read(world.root.join("c")).unwrap(), b"old", "it was not spoken of");
    assert!(world.undo(None).unwrap().conflicts.is_empty());
    assert_eq!(world.tree(), before);
    assert!(["a", "b", "c"].iter().all(|name| inode(&world, name) == file));
}

#[test]
fn links_arrive_together_or_not_at_all_whenever_the_disk_breaks() {
    let mut world = three_names();
    let before = world.tree();
    let mut stop = 0;
    loop {
        stop += 1;
        let names = ["a", "b", "new"];
        let (view, steps) = linked_in_layer(&world, &names, 0o600, &Content::View);
        world.engine.set_fault_hook(move |_, number| match number >= stop {
            true => Err(Errno::IO.into()),
            false => Ok(()),
        });
        let done = world.apply_view(steps, &view).is_ok();
        world.reopen();
        let now = world.tree();
        if now != before {
            assert!(names.iter().all(|name| inode(&world, name) == inode(&world, "a")), "{stop}");
            assert!(world.undo(None).unwrap().conflicts.is_empty(), "{stop}");
        }
        assert_eq!(world.tree(), before, "{stop}");
        if done {
            assert!(stop > 10, "it never failed: {stop}");
            return;
        }
    }
}

#[test]
fn a_mode_changes_in_place_only_for_all_names_of_a_file() {
    let world = three_names();
    let mode = |name: &str| fs::metadata(world.root.join(name)).unwrap().permissions().mode();
    let (before, file) = (world.tree(), inode(&world, "a"));
    let (view, steps) = linked_in_layer(&world, &["a", "b"], 0o600, &Content::Same);
    world.apply_view(steps, &view).unwrap();
    assert_eq!(["a", "b", "c"].map(|name| mode(name) & 0o777), [0o600, 0o600, 0o644]);
    world.undo(None).unwrap();
    assert_eq!(world.tree(), before);
    let (view, steps) = linked_in_layer(&world, &["a", "b", "c"], 0o600, &Content::Same);
    world.apply_view(steps, &view).unwrap();
    assert!(["a", "b", "c"].iter().all(|name| inode(&world, name) == file));
    assert_eq!(mode("c") & 0o777, 0o600);
    assert!(world.undo(None).unwrap().conflicts.is_empty());
    assert_eq!(world.tree(), before);
}
