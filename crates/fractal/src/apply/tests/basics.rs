//! A promotion arrives, is recorded, and can be taken back.

use super::world::{TIME_NS, Want, World};
use fractal_model::{Code, Verdict};
use fractal_store::Reads;
use std::fs;
use std::os::unix::fs::MetadataExt;

fn some(world: &World) -> Vec<(&'static str, Want)> {
    world.write("changed", "old");
    world.write("gone/deep/file", "old");
    world.write("kept", "kept");
    vec![
        ("changed", Want::File("new")),
        ("gone", Want::Gone),
        ("gone/deep", Want::Gone),
        ("gone/deep/file", Want::Gone),
        ("made", Want::Dir),
        ("made/sub", Want::Dir),
        ("made/sub/file", Want::File("new")),
        ("link", Want::Link("changed")),
    ]
}

#[test]
fn everything_arrives_and_what_is_not_named_stays_untouched() {
    let world = World::new();
    let wants = some(&world);
    let kept = fs::metadata(world.root.join("kept")).unwrap();
    world.apply(&wants).unwrap();
    assert_eq!(fs::read(world.root.join("changed")).unwrap(), b"new");
    assert_eq!(fs::read(world.root.join("made/sub/file")).unwrap(), b"new");
    assert_eq!(fs::read_link(world.root.join("link")).unwrap().as_os_str(), "changed");
    assert!(!world.root.join("gone").exists());
    let time = |name: &str| {
        let meta = fs::metadata(world.root.join(name)).unwrap();
        meta.mtime() * 1_000_000_000 + meta.mtime_nsec()
    };
    assert_eq!((time("changed"), time("made"), time("made/sub")), (TIME_NS, TIME_NS, TIME_NS));
    let now = fs::metadata(world.root.join("kept")).unwrap();
    assert_eq!(
        (kept.ino(), kept.mtime_nsec(), kept.ctime_nsec()),
        (now.ino(), now.mtime_nsec(), now.ctime_nsec())
    );
    let names = fs::read_dir(&world.root).unwrap().flatten();
    assert!(names.map(|entry| entry.file_name()).all(|name| name != ".fractal"));
}

#[test]
fn it_can_be_taken_back_and_brought_again() {
    let world = World::new();
    let wants = some(&world);
    let old = world.tree();
    let done = world.apply(&wants).unwrap();
    let new = world.tree();
    let back = world.undo(None).unwrap();
    assert_eq!((back.verdict, back.applied.len()), (Verdict::Applied, wants.len()));
    assert_eq!(world.tree(), old);
    let refused = world.undo(None).unwrap_err();
    assert_eq!(refused.code, Code::NotFound, "{refused}");
    let refused = world.undo(Some(done.undo.as_str())).unwrap_err();
    let again = back.undo.unwrap();
    assert!(refused.hint.unwrap().contains(again.as_str()));
    let redone = world.undo(Some(again.as_str())).unwrap();
    assert_eq!(world.tree(), new);
    // What was brought again is the latest promotion, and can go again.
    let third = world.undo(None).unwrap();
    assert_ne!(third.undo, redone.undo);
    assert_eq!(world.tree(), old);
}

#[test]
fn a_thread_that_breaks_off_leaves_the_rest_to_the_next_write() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    for stop in 1.. {
        let world = World::new();
        let wants = some(&world);
        let old = world.tree();
        let once = std::sync::atomic::AtomicBool::new(true);
        world.engine.set_fault_hook(move |_, number| {
            let breaks = number == stop && once.swap(false, std::sync::atomic::Ordering::SeqCst);
            assert!(!breaks, "on purpose");
            Ok(())
        });
        if catch_unwind(AssertUnwindSafe(|| world.apply(&wants).is_ok())).is_ok() {
            assert!(stop > wants.len() as u64, "it has changed something {stop} times");
            return;
        }
        world.apply(&[("other", Want::File("other"))]).unwrap();
        fs::remove_file(world.root.join("other")).unwrap();
        let now = world.tree();
        let is_new = fs::read(world.root.join("changed")).unwrap() == b"new";
        assert!(is_new || now == old, "stopped at {stop}: {now:?}");
        assert_eq!(is_new, world.root.join("made/sub/file").exists(), "stopped at {stop}");
        assert_eq!(is_new, !world.root.join("gone").exists(), "stopped at {stop}");
        assert!(world.engine.store.unfinished_applies().unwrap().is_empty(), "stopped at {stop}");
    }
}

#[test]
fn the_journal_tells_of_both() {
    let world = World::new();
    let wants = some(&world);
    let done = world.apply(&wants).unwrap();
    let back = world.undo(None).unwrap();
    let records = world.engine.store.journal(None, 10).unwrap();
    let [undone, promoted] = &records[..] else { panic!("{records:?}") };
    assert_eq!(promoted.body.action, "promote");
    assert_eq!(promoted.body.detail["undo"], done.undo.as_str());
    assert_eq!(promoted.body.detail["applied"], wants.len());
    assert_eq!(undone.body.action, "undo");
    assert_eq!(undone.body.detail["undoes"], done.undo.as_str());
    assert_eq!(undone.body.detail["undo"], back.undo.unwrap().as_str());
    assert_eq!(undone.body.name.as_deref(), Some("x"));
    assert!(world.engine.store.verify().unwrap().is_empty());
}

#[test]
fn an_edit_since_the_plan_is_a_conflict_and_nothing_is_written() {
    let world = World::new();
    let job = {
        let wants = some(&world);
        world.wants(&wants)
    };
    world.write("changed", "edited by somebody");
    world.write("made", "in the way");
    let before = world.tree();
    let error = crate::apply::apply(&world.engine, job).unwrap_err();
    assert_eq!(error.code, Code::Conflict);
    assert!(error.message.contains("changed (it was edited)"), "{error}");
    assert!(error.message.contains("made (it exists now)"), "{error}");
    assert_eq!(world.tree(), before);
    assert!(world.engine.store.applies().unwrap().is_empty());
}

#[test]
fn undo_names_every_later_edit_and_writes_nothing() {
    let world = World::new();
    let wants = some(&world);
    world.apply(&wants).unwrap();
    world.write("changed", "later work");
    world.write("made/later", "came later");
    world.write("gone", "made again");
    let before = world.tree();
    let reply = world.undo(None).unwrap();
    assert_eq!(reply.verdict, Verdict::Conflict);
    let paths: Vec<&str> =
        reply.conflicts.iter().map(|conflict| conflict.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(paths, ["changed", "gone", "later"], "{:?}", reply.conflicts);
    assert_eq!(world.tree(), before);
}

#[test]
fn what_was_put_back_by_hand_needs_no_undo() {
    let world = World::new();
    let wants = some(&world);
    let old = world.tree();
    world.apply(&wants).unwrap();
    world.write("changed", "old");
    let reply = world.undo(None).unwrap();
    assert_eq!(reply.verdict, Verdict::Applied, "{:?}", reply.conflicts);
    assert!(reply.applied.iter().all(|applied| !applied.path.ends_with("changed")));
    let names = |tree: &std::collections::BTreeMap<Vec<u8>, String>| {
        tree.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&world.tree()), names(&old));
}

#[test]
fn an_empty_job_is_recorded_and_changes_nothing() {
    let world = World::new();
    let before = world.tree();
    world.apply(&[]).unwrap();
    assert_eq!(world.tree(), before);
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Nothing);
}
