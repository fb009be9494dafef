//! What counts as a change, and the overlay's rules of what hides what.

use crate::support::{Scene, chmod, lines, make_dir, opaque, path, whiteout, write};
use fractal_jail::layer::{Bounds, Layer, LayerError, Marks, View, changes};
use fractal_model::EntryKind;
use std::os::unix::fs::symlink;

#[test]
fn copied_up_without_a_difference_is_no_change() {
    let scene = Scene::new();
    write(scene.base("d/same"), "same");
    write(scene.layer("d/same"), "same");
    write(scene.base("d/other"), "1234");
    write(scene.layer("d/other"), "5678");
    write(scene.base("d/mode"), "x");
    write(scene.layer("d/mode"), "x");
    chmod(&scene.layer("d/mode"), 0o755);
    symlink("a", scene.base("link")).expect("symlink");
    symlink("b", scene.layer("link")).expect("symlink");
    assert_eq!(scene.lines(), ["M /d/mode", "M /d/other", "M /link"]);
}

#[test]
fn what_nobody_waits_for_is_not_read() {
    let scene = Scene::new();
    write(scene.base("f"), "same");
    write(scene.layer("f"), "same");
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let base = View { called_off: Some(flag.clone()), ..scene.base_view() };
    let top = base.with_layers_on_top(&[scene.own()]);
    let find = || changes(&[scene.own()], &base, &Bounds::default());
    assert_eq!(lines(&find().expect("changes")), Vec::<String>::new());
    assert!(top.open_file(&path("/f")).is_ok());
    flag.store(true, std::sync::atomic::Ordering::Release);
    assert!(matches!(find(), Err(LayerError::Stopped)));
    assert!(matches!(top.lookup(&path("/f")), Err(LayerError::Stopped)));
    assert!(matches!(top.open_file(&path("/f")), Err(LayerError::Stopped)));
}

#[test]
fn a_deleted_directory_names_everything_that_is_gone() {
    let scene = Scene::new();
    write(scene.base("d/x/f"), "");
    write(scene.base("d/g"), "");
    write(scene.base("d-before-slash"), "");
    whiteout(&scene.layer("d"));
    assert_eq!(scene.lines(), ["D /d", "D /d/g", "D /d/x", "D /d/x/f"]);
    assert!(scene.top_view().lookup(&path("/d/x/f")).expect("lookup").is_none());
    let names: Vec<_> = scene.top_view().read_dir(&path("/")).expect("list");
    assert_eq!(names.len(), 1);
}

#[test]
fn an_opaque_directory_shows_only_what_is_in_it() {
    let scene = Scene::new();
    write(scene.base("d/old"), "");
    write(scene.base("d/kept"), "k");
    opaque(&scene.layer("d"));
    write(scene.layer("d/kept"), "k");
    write(scene.layer("d/new"), "");
    assert_eq!(scene.lines(), ["A /d/new", "D /d/old"]);
    // An overlay that marks with trusted xattrs lets programs write these.
    let own = scene.own().marked_by(Marks::Trusted);
    let found = changes(&[own], &scene.base_view(), &Bounds::default()).expect("changes");
    assert_eq!(lines(&found), ["A /d/new"]);
}

#[test]
fn a_file_and_a_directory_replace_each_other() {
    let scene = Scene::new();
    write(scene.base("was-file"), "");
    write(scene.layer("was-file/in/it"), "");
    write(scene.base("was-dir/below/f"), "");
    write(scene.layer("was-dir"), "");
    let expect = [
        "M /was-dir",
        "D /was-dir/below",
        "D /was-dir/below/f",
        "M /was-file",
        "A /was-file/in",
        "A /was-file/in/it",
    ];
    assert_eq!(scene.lines(), expect);
    assert!(scene.top_view().lookup(&path("/was-dir/below/f")).expect("lookup").is_none());
}

#[test]
fn a_file_in_the_middle_of_the_stack_cuts_what_is_below() {
    let scene = Scene::new();
    write(scene.base("d/bottom"), "");
    write(scene.layer("d"), "a file");
    make_dir(&scene.out("d"));
    write(scene.out("d/top"), "");
    let upper = Layer::open(&scene.out("")).expect("layer");
    let view = scene.base_view().with_layers_on_top(&[upper.clone(), scene.own()]);
    let names: Vec<_> = view.read_dir(&path("/d")).expect("list");
    assert_eq!(names.len(), 1);
    assert_eq!(names[0].name, b"top");
    let found = changes(&[upper, scene.own()], &scene.base_view(), &Bounds::default());
    assert_eq!(lines(&found.expect("changes")), ["D /d/bottom", "A /d/top"]);
}

#[test]
fn a_hidden_path_of_the_host_is_never_read() {
    let scene = Scene::new();
    write(scene.base("home/.netrc"), "secret");
    write(scene.base("home/.ssh/id"), "secret");
    let mut view = scene.base_view();
    view.host_hidden = vec![path("/home/.netrc"), path("/home/.ssh")];
    assert!(view.lookup(&path("/home/.netrc")).expect("lookup").is_none());
    assert!(view.open_file(&path("/home/.netrc")).is_err());
    let ssh = view.lookup(&path("/home/.ssh")).expect("lookup").expect("there");
    assert_eq!(ssh.kind, EntryKind::Directory);
    assert!(view.read_dir(&path("/home/.ssh")).expect("list").is_empty());
    assert!(view.open_file(&path("/home/.ssh/id")).is_err());
    write(scene.layer("home/.ssh/id"), "mine");
    let found = changes(&[scene.own()], &view, &Bounds::default()).expect("changes");
    assert_eq!(lines(&found), ["A /home/.ssh/id"]);
}

#[test]
fn one_directory_can_be_seen_at_the_place_of_another() {
    let scene = Scene::new();
    for (at, text) in [("srv/live/d/f", "live"), ("p/d/f", "project"), ("p/only", "project")] {
        write(scene.base(at), text);
    }
    let view = scene.base_view().seen_at(path("/p"), path("/srv/live"));
    let read = |at: &str| std::io::read_to_string(view.open_file(&path(at)).expect(at)).expect(at);
    assert_eq!((read("/p/d/f"), read("/srv/live/d/f")), ("live".to_owned(), "live".to_owned()));
    assert_eq!(view.lookup(&path("/p/only")).expect("a look"), None);
    assert_eq!(view.read_dir(&path("/p")).expect("a list").len(), 1);
    let inode = |entry: Option<fractal_jail::layer::Entry>| entry.map(|entry| entry.inode());
    let live = inode(view.lookup(&path("/srv/live")).expect("a look"));
    assert!(live.is_some());
    assert_eq!(inode(view.lookup(&path("/p")).expect("a look")), live);
    assert_eq!(inode(view.reader().lookup(&path("/p")).expect("a look")), live);
}

#[test]
fn ids_stored_through_a_map_are_shown_as_inside() {
    let scene = Scene::new();
    write(scene.layer("f"), "");
    let stored = scene.top_view().lookup(&path("/f")).expect("lookup").expect("there").uid;
    let view = View { layers: vec![scene.own().shifted_by(stored)], ..View::default() };
    assert_eq!(view.lookup(&path("/f")).expect("lookup").expect("there").uid, 0);
}

#[test]
fn files_that_run_by_themselves_are_flagged() {
    let scene = Scene::new();
    write(scene.layer("p/.git/hooks/pre-commit"), "");
    write(scene.layer("p/main.rs"), "");
    let flagged: Vec<_> =
        scene.changes().list.into_iter().filter(|change| change.autorun).collect();
    assert_eq!(flagged.len(), 1);
    assert_eq!(flagged[0].path, path("/p/.git/hooks/pre-commit"));
}

#[test]
fn a_bound_is_reported_and_does_not_fail() {
    let scene = Scene::new();
    for number in 0..50 {
        write(scene.layer(&format!("d{number}/f")), "");
    }
    let bounds = Bounds { entries_max: 20, ..Bounds::default() };
    let found = changes(&[scene.own()], &scene.base_view(), &bounds).expect("changes");
    assert!(found.truncated && found.list.len() <= 20);
    let shallow = Bounds { depth_max: 1, ..Bounds::default() };
    let found = changes(&[scene.own()], &scene.base_view(), &shallow).expect("changes");
    assert!(found.truncated);
    assert_eq!(found.list.len(), 50);
}
