//! Names, attributes, owners, depth, filesystems: what a change is made of.

use super::thousand::{self, measure};
use super::world::{TIME_NS, Want, World, body};
use crate::apply::{Content, Job, New, Seen, Step, What, apply};
use crate::view::path_of;
use crate::{Action, Reply};
use fractal_jail::layer::{Layer, View};
use fractal_model::{Code, SandboxPath};
use fractal_store::{ApplyRow, ApplyState, Reads, Worker, new_id};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// A layer with a file for every name, and steps that bring them.
fn from_layer(world: &World, names: &[&[u8]]) -> (View, Vec<Step>) {
    use std::os::unix::ffi::OsStrExt;
    let layer = world.dir.path().join("layer");
    let below = layer.join(world.root.strip_prefix("/").unwrap());
    let mut steps = Vec::new();
    for name in names {
        let relative = Path::new(std::ffi::OsStr::from_bytes(name));
        let file = below.join(relative);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, b"from the layer").unwrap();
        let old = None;
        let what = What::File(Content::View);
        let new = Some(New { mode: 0o4750, owner: None, mtime_ns: TIME_NS, noted: None, what });
        steps.push(Step { path: path_of(&world.root.join(relative)).unwrap(), old, new });
    }
    let layers = vec![Layer::open(&layer).unwrap()];
    (View { layers, ..View::default() }, steps)
}

#[test]
fn names_may_be_any_bytes() {
    let world = World::new();
    let names: [&[u8]; 4] = [b"line\nbreak", b"\xff\xfe", b"per%cent %41", b" space \\ \"quote\""];
    let (view, steps) = from_layer(&world, &names);
    world.apply_view(steps, &view).unwrap();
    let tree = world.tree();
    assert!(names.iter().all(|name| tree.contains_key(*name)), "{tree:?}");
    world.undo(None).unwrap();
    assert!(world.tree().is_empty());
}

#[test]
fn a_layer_brings_content_and_attributes_of_its_own_but_no_rights() {
    let world = World::new();
    let (view, steps) = from_layer(&world, &[b"file"]);
    let source =
        world.dir.path().join("layer").join(world.root.strip_prefix("/").unwrap()).join("file");
    let set = |name: &str| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&source, name, b"value", flags).is_ok()
    };
    let attributes = set("user.note") && set("user.overlay.origin");
    set("trusted.note");
    world.apply_view(steps, &view).unwrap();
    let file = world.root.join("file");
    let meta = fs::metadata(&file).unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o750, "set-uid does not come along");
    assert_eq!(fs::read(&file).unwrap(), b"from the layer");
    let has = |name: &str| rustix::fs::getxattr(&file, name, &mut [0u8; 16][..]).is_ok();
    assert!(!has("user.overlay.origin") && !has("trusted.note"));
    match attributes {
        true => assert!(has("user.note")),
        false => eprintln!("skipped: no user attributes on this filesystem"),
    }
}

#[test]
fn a_file_comes_back_as_itself() {
    let world = World::new();
    world.write("tool", "old");
    fs::hard_link(world.root.join("tool"), world.root.join("other name")).unwrap();
    fs::set_permissions(world.root.join("tool"), fs::Permissions::from_mode(0o4711)).unwrap();
    let before = fs::metadata(world.root.join("tool")).unwrap();
    world.apply(&[("tool", Want::File("new"))]).unwrap();
    assert_eq!(fs::read(world.root.join("other name")).unwrap(), b"old");
    world.undo(None).unwrap();
    let after = fs::metadata(world.root.join("tool")).unwrap();
    assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
}

#[test]
fn a_sparse_file_stays_sparse_and_whole() {
    let world = World::new();
    let (view, steps) = from_layer(&world, &[b"sparse"]);
    let below = world.dir.path().join("layer").join(world.root.strip_prefix("/").unwrap());
    let file = fs::OpenOptions::new().write(true).open(below.join("sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    world.apply_view(steps, &view).unwrap();
    let meta = fs::metadata(world.root.join("sparse")).unwrap();
    assert_eq!(meta.len(), 64 << 20);
    assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    assert!(fs::read(world.root.join("sparse")).unwrap().starts_with(b"from the layer\0"));
}

#[test]
fn deep_directories_arrive_and_go_again() {
    let world = World::new();
    let names: Vec<String> = (1..150).map(|depth| vec!["d"; depth].join("/")).collect();
    let list: Vec<(&str, Want)> = names.iter().map(|name| (name.as_str(), Want::Dir)).collect();
    world.apply(&list).unwrap();
    assert_eq!(world.tree().len(), list.len());
    world.undo(None).unwrap();
    assert!(world.tree().is_empty());
}

#[test]
fn a_directory_that_may_not_be_written_gets_its_entries_first() {
    let world = World::new();
    let mut job = world.wants(&[("dir", Want::Dir), ("dir/file", Want::File("in it"))]);
    job.steps[0].new.as_mut().unwrap().mode = 0o555;
    apply(&world.engine, job).unwrap();
    let meta = fs::metadata(world.root.join("dir")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o555);
    world.undo(None).unwrap();
    assert!(world.tree().is_empty());
}

#[test]
fn something_new_in_a_directory_that_goes_is_a_conflict() {
    let world = World::new();
    world.write("dir/known", "old");
    let job = world.wants(&[("dir", Want::Gone), ("dir/known", Want::Gone)]);
    world.write("dir/unknown", "somebody's");
    let before = world.tree();
    let error = apply(&world.engine, job).unwrap_err();
    assert_eq!(error.code, Code::Conflict);
    assert!(error.message.contains("something new in it"), "{error}");
    assert_eq!(world.tree(), before);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new();
    world.write("file", "x");
    let check = |job: Job<'_>| {
        let before = world.tree();
        assert!(apply(&world.engine, job).is_err());
        assert_eq!(world.tree(), before);
    };
    let mut outside = world.step("file", &Want::Gone);
    outside.path = SandboxPath::parse("/etc/passwd").unwrap();
    check(world.job(vec![outside]));
    check(world.wants(&[("file", Want::Gone), ("file", Want::Gone)]));
    check(world.wants(&[("", Want::Gone)]));
    check(world.wants(&[("missing/file", Want::File("x"))]));
    check(world.wants(&[("nothing", Want::Mode(0o600))]));
}

#[test]
fn what_stood_there_is_copied_to_another_filesystem() {
    let Some((mut world, _other)) = World::split() else { return };
    let ends = measure(&mut world, 60);
    thousand::apply(&world, 60).unwrap();
    assert!(world.tree() == ends.new);
    let row = world.engine.store.applies().unwrap().remove(0);
    assert_eq!(row.state, ApplyState::Done);
    world.undo(None).unwrap();
    assert!(world.tree() == ends.old);
}

#[test]
fn a_job_across_filesystems_has_a_stage_on_each() {
    let Some((world, other)) = World::split() else { return };
    let root = Path::new("/");
    if rustix::fs::access(root, rustix::fs::Access::WRITE_OK).is_err() {
        eprintln!("skipped: / cannot be written");
        return;
    }
    let step = |path: &Path| Step {
        path: path_of(path).unwrap(),
        old: Some(Seen::of(&rustix::fs::lstat(path).unwrap())),
        new: Some(New {
            mode: 0o644,
            owner: None,
            mtime_ns: TIME_NS,
            noted: None,
            what: What::File(Content::Bytes(b"new".to_vec())),
        }),
    };
    let (here, there) = (world.root.join("here"), other.path().join("there"));
    fs::write(&here, "old here").unwrap();
    fs::write(&there, "old there").unwrap();
    let job = Job {
        root: root.to_owned(),
        steps: vec![step(&here), step(&there)],
        view: None,
        record: body(),
        facts: None,
    };
    apply(&world.engine, job).unwrap();
    assert_eq!(
        (fs::read(&here).unwrap(), fs::read(&there).unwrap()),
        (b"new".into(), b"new".into())
    );
    let stages = world.engine.store.applies().unwrap().remove(0).stages;
    assert_eq!(stages.len(), 2, "{stages:?}");
    world.undo(None).unwrap();
    assert_eq!(fs::read(&here).unwrap(), b"old here");
    assert_eq!(fs::read(&there).unwrap(), b"old there");
    assert!(
        !fs::read_dir("/dev/shm")
            .unwrap()
            .flatten()
            .any(|entry| { entry.file_name().to_string_lossy().starts_with(".fractal-") })
    );
}

fn begun(world: &World, root: &Path, worker: Worker) -> ApplyRow {
    let row = ApplyRow {
        id: new_id(),
        state: ApplyState::Staging,
        root: root.to_owned(),
        stages: vec![String::new()],
        worker,
        created_ms: 1,
        sandbox: None,
        seq: None,
        undoes: None,
        undone_by: None,
        kept: true,
        tenant: String::new(),
    };
    world.engine.store.transact(|tx| tx.insert_apply(&row)).unwrap();
    row
}

#[test]
fn two_writes_into_one_directory_do_not_meet() {
    let world = World::fast();
    let living = begun(&world, world.root.parent().unwrap(), Worker::own());
    let error = world.apply(&[("a", Want::File("x"))]).unwrap_err();
    assert_eq!(error.code, Code::Busy, "{error}");
    world.engine.store.transact(|tx| tx.delete_apply(living.id)).unwrap();
    begun(&world, &world.root, Worker { pid: i32::MAX - 1, start: 1 });
    world.apply(&[("a", Want::File("x"))]).expect("that of a dead process is settled first");
}

#[test]
fn a_stage_that_somebody_removed_is_told_and_stops_nothing() {
    let mut world = World::fast();
    let row = begun(&world, &world.root, Worker { pid: i32::MAX - 1, start: 1 });
    let store = &world.engine.store;
    store.new_undo_dir(row.id).unwrap();
    let plan = r#"{"format":1,"steps":0,"record":{"time_ms":1,"who":"owner","action":"promote"}}"#;
    fs::write(store.undo_dir(row.id).join("plan"), format!("{plan}\n")).unwrap();
    let swapping = ApplyState::Swapping;
    store.transact(|tx| tx.set_apply_state(row.id, row.worker, swapping)).unwrap();
    world.reopen();
    assert!(world.engine.store.unfinished_applies().unwrap().is_empty());
    let record = world.engine.store.journal(None, 1).unwrap().remove(0);
    assert_eq!(record.body.error, Some(Code::Corrupt));
    world.apply(&[("a", Want::File("x"))]).unwrap();
}

#[test]
fn gc_frees_what_was_taken_back_and_what_is_older_than_asked() {
    let world = World::fast();
    let caller = crate::Caller::owner(&world.root);
    let gc = |undo_ms| match world.engine.apply(&caller, Action::Gc { dry_run: false, undo_ms }) {
        Ok(Reply::Gc(reply)) => reply,
        other => panic!("gc answered {other:?}"),
    };
    world.write("a", "old");
    let first = world.apply(&[("a", Want::File("new"))]).unwrap().undo;
    let kept = |id| world.engine.store.undo_dir(id).join("0/0");
    assert!(gc(None).undo_bytes > 0);
    assert!(kept(first).exists(), "kept for as long as nobody asks");
    let back = world.undo(None).unwrap().undo.unwrap();
    gc(None);
    assert!(!kept(first).exists() && kept(back).exists(), "it stands there again");
    assert_eq!(gc(Some(3_600_000)).undos, 0);
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert_eq!(gc(Some(1)).undos, 1);
    let refused = world.undo(Some(back.as_str())).unwrap_err();
    assert!(refused.message.contains("no longer kept"), "{refused}");
    assert!(world.engine.store.undo_dir(back).join("plan").exists(), "what was written is known");
    assert!(world.engine.store.verify().unwrap().is_empty());
}

#[test]
fn a_write_waits_for_its_directory_until_it_is_given_up() {
    let mut world = World::fast();
    let gone = world.dir.path().join("unmounted");
    let row = begun(&world, &gone, Worker { pid: i32::MAX - 1, start: 1 });
    let swapping = ApplyState::Swapping;
    let store = &world.engine.store;
    store.transact(|tx| tx.set_apply_state(row.id, row.worker, swapping)).unwrap();
    world.reopen();
    assert_eq!(world.engine.store.unfinished_applies().unwrap().len(), 1);
    assert_eq!(world.engine.store.verify().unwrap().len(), 1, "doctor tells of it");
    world.apply(&[("a", Want::File("x"))]).expect("other directories are not held up");
    let caller = crate::Caller::owner(&world.root);
    let gc = Action::Gc { dry_run: false, undo_ms: Some(1000) };
    world.engine.apply(&caller, gc).unwrap();
    assert!(world.engine.store.unfinished_applies().unwrap().is_empty());
}
