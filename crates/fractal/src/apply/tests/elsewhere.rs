//! A crash, and then another directory stands where the project stood.

use super::kill::killed_at;
use super::thousand::{Ends, check, measure};
use super::world::{Want, World};
use crate::{Action, Caller, Diagnosis};
use fractal_model::Code;
use std::fs;
use std::path::PathBuf;

const STEPS: usize = 40;

/// Killed at some change, and the project moved out of the way.
fn moved_after(share: u64) -> (World, Ends, PathBuf) {
    let mut world = World::fast();
    let ends = measure(&mut world, STEPS);
    assert!(killed_at(&world, ends.calls * share / 100, Some(STEPS)));
    let away = world.dir.path().join("away");
    fs::rename(&world.root, &away).unwrap();
    fs::create_dir(&world.root).unwrap();
    fs::write(world.root.join("d0"), "of another project").unwrap();
    (world, ends, away)
}

fn back(world: &World, away: &PathBuf) {
    fs::remove_dir_all(&world.root).unwrap();
    fs::rename(away, &world.root).unwrap();
}

#[test]
fn it_waits_for_its_own_directory_and_leaves_the_other_alone() {
    // Half staged; exchanging; and all exchanged.
    for share in [30, 70, 99] {
        let (mut world, ends, away) = moved_after(share);
        let other = world.tree();
        world.reopen();
        assert_eq!(world.tree(), other, "at {share} %");
        let finding = Diagnosis::examine(&world.home()).state.remove(0);
        let fix = finding.fix.unwrap();
        assert!(fix.contains("move it back to ") && fix.contains(".fractal-"), "{fix}");
        back(&world, &away);
        check(&mut world, &ends, true, &format!("away and back at {share} %"));
    }
}

#[test]
fn a_write_that_changed_nothing_yet_makes_way() {
    let (mut world, ..) = moved_after(30);
    world.reopen();
    world.apply(&[("new", Want::File("text"))]).unwrap();
    assert!(world.engine.store.verify().unwrap().is_empty());
}

#[test]
fn one_that_is_halfway_stops_others_until_it_is_given_up() {
    let (mut world, _, away) = moved_after(70);
    world.reopen();
    let error = world.apply(&[("new", Want::File("text"))]).unwrap_err();
    assert_eq!(error.code, Code::Busy);
    assert!(error.hint.as_ref().unwrap().contains("fractal gc --undo"), "{error}");
    std::thread::sleep(std::time::Duration::from_millis(2));
    let gc = Action::Gc { dry_run: false, undo_ms: Some(1) };
    world.engine.apply(&Caller::owner(&world.root), gc).unwrap();
    world.apply(&[("new", Want::File("text"))]).unwrap();
    let names = fs::read_dir(away).unwrap().flatten().map(|entry| entry.file_name());
    let stages = names.filter(|name| name.to_string_lossy().starts_with(".fractal-"));
    assert_eq!(stages.count(), 1, "what stood there is still in the old directory");
}
