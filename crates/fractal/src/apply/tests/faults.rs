//! A disk that fails at any single change, or from one on for good.

use super::thousand::{self, check, forget, measure};
use super::world::World;
use fractal_model::Code;
use fractal_store::Reads;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const STEPS: usize = 1_000;

/// Opens the world with a disk whose change number `at` fails; 0 fails none.
fn failing(world: &mut World, errno: Errno, for_good: bool) -> Arc<AtomicU64> {
    let at = Arc::new(AtomicU64::new(0));
    let wanted = at.clone();
    world.reopen();
    world.engine.set_fault_hook(move |_, number| {
        let at = wanted.load(Ordering::Relaxed);
        match number == at || (for_good && at > 0 && number > at) {
            true => Err(errno.into()),
            false => Ok(()),
        }
    });
    at
}

fn every_failure_is_taken_back(errno: Errno, code: Code) {
    let mut world = World::fast();
    let ends = measure(&mut world, STEPS);
    let at = failing(&mut world, errno, false);
    for stop in 1..=ends.calls {
        at.store(stop, Ordering::Relaxed);
        let error = thousand::apply(&world, STEPS).expect_err("the disk failed");
        assert_eq!(error.code, code, "{stop}: {error}");
        assert!(world.tree() == ends.old, "{stop}: the tree is not as it was");
        assert!(world.engine.store.applies().unwrap().is_empty(), "{stop}: a row stays");
        forget(&world);
    }
    at.store(0, Ordering::Relaxed);
    thousand::apply(&world, STEPS).expect("the disk works again");
    assert!(world.tree() == ends.new);
}

#[test]
fn a_full_disk_at_any_moment_leaves_the_tree_as_it_was() {
    every_failure_is_taken_back(Errno::NOSPC, Code::Limit);
}

#[test]
fn a_broken_disk_at_any_moment_leaves_the_tree_as_it_was() {
    every_failure_is_taken_back(Errno::IO, Code::Internal);
}

#[test]
fn a_disk_that_stays_broken_is_put_right_when_it_works_again() {
    let mut world = World::fast();
    let ends = measure(&mut world, 60);
    for stop in 1..=ends.calls {
        let at = failing(&mut world, Errno::IO, true);
        at.store(stop, Ordering::Relaxed);
        let error = thousand::apply(&world, 60).expect_err("the disk failed");
        if !world.engine.store.applies().unwrap().is_empty() {
            assert!(error.message.contains("the next command tries again"), "{stop}: {error}");
        }
        check(&mut world, &ends, true, &format!("broken from change {stop} on"));
    }
}

#[test]
fn without_an_exchange_it_works_and_can_be_taken_back() {
    let mut world = World::fast();
    let ends = measure(&mut world, STEPS);
    world.reopen();
    world.engine.set_fault_hook(|call, _| match call {
        "exchange" => Err(Errno::INVAL.into()),
        _ => Ok(()),
    });
    thousand::apply(&world, STEPS).unwrap();
    assert!(world.tree() == ends.new);
    world.undo(None).unwrap();
    assert!(world.tree() == ends.old);
}

#[test]
fn without_an_exchange_a_full_disk_leaves_the_tree_as_it_was() {
    let mut world = World::fast();
    let ends = measure(&mut world, 60);
    for stop in 1..=ends.calls + 10 {
        world.reopen();
        world.engine.set_fault_hook(move |call, number| match call {
            "exchange" => Err(Errno::INVAL.into()),
            _ if number == stop => Err(Errno::NOSPC.into()),
            _ => Ok(()),
        });
        let _ = thousand::apply(&world, 60);
        check(&mut world, &ends, true, &format!("full at change {stop}"));
    }
}
