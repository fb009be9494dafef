//! kill -9 before every single change of the disk: old or new, never between.

use super::thousand::{self, Ends, check, measure};
use super::world::World;
use crate::Engine;
use rustix::process::{Signal, getpid, kill_process};
use std::process::{Command, Stdio};

const STEPS: usize = 1000;

/// Runs as a child of the tests below: writes into reality, or opens a state
/// directory, until the change with the given number kills it.
#[test]
fn child_that_is_killed() {
    let Ok(dir) = std::env::var("FRACTAL_APPLY_DIR") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let stop = number("FRACTAL_APPLY_STOP");
    let world = World::at(dir.as_ref());
    let exchanges = std::env::var("FRACTAL_APPLY_EXCHANGES").is_ok();
    world.engine.set_fault_hook(move |call, number| {
        if number == stop {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        match call == "exchange" && !exchanges {
            true => Err(rustix::io::Errno::INVAL.into()),
            false => Ok(()),
        }
    });
    // Opens the state directory, with the hook in place.
    world.engine.ready().unwrap();
    if let Ok(steps) = std::env::var("FRACTAL_APPLY_STEPS") {
        thousand::apply(&world, steps.parse().unwrap()).unwrap();
    }
}

/// Whether the child was killed; otherwise it came to its end.
pub fn killed_at(world: &World, stop: u64, steps: Option<usize>) -> bool {
    killed(world, stop, steps, true)
}

fn killed(world: &World, stop: u64, steps: Option<usize>, exchanges: bool) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["apply::tests::kill::child_that_is_killed", "--exact", "--nocapture"])
        .env("FRACTAL_APPLY_DIR", world.dir.path())
        .env("FRACTAL_APPLY_STOP", stop.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if exchanges {
        child.env("FRACTAL_APPLY_EXCHANGES", "");
    }
    if let Some(steps) = steps {
        child.env("FRACTAL_APPLY_STEPS", steps.to_string());
    }
    let status = child.status().unwrap();
    let killed = status.signal() == Some(Signal::KILL.as_raw());
    assert!(killed || status.success(), "{status:?}");
    killed
}

fn every(stops: impl Iterator<Item = u64>) {
    let mut world = World::fast();
    let ends = measure(&mut world, STEPS);
    let calls = ends.calls;
    assert!(calls > 2 * STEPS as u64, "{calls}");
    for stop in stops.take_while(|stop| *stop <= calls) {
        assert!(killed_at(&world, stop, Some(STEPS)), "it was not killed at {stop} of {calls}");
        // The way back is tried after one kill in four: it takes longer than
        // everything else here together.
        let undo = stop % 8 < 2;
        check(&mut world, &ends, undo, &format!("killed before change {stop} of {calls}"));
    }
}

// In two halves, so that two cores share the work.

#[test]
fn killed_before_every_odd_change_it_is_old_or_new() {
    every((1..).step_by(2));
}

#[test]
fn killed_before_every_even_change_it_is_old_or_new() {
    every((2..).step_by(2));
}

#[test]
fn killed_on_two_filesystems_it_is_old_or_new() {
    let Some((mut world, _other)) = World::split() else { return };
    let ends = measure(&mut world, 40);
    for stop in 1..=ends.calls {
        assert!(killed_at(&world, stop, Some(40)));
        check(&mut world, &ends, true, &format!("two filesystems, killed at {stop}"));
    }
}

#[test]
fn killed_where_nothing_can_be_exchanged_it_is_old_or_new() {
    let mut world = World::fast();
    let ends = measure(&mut world, 40);
    let mut stop = 0;
    loop {
        stop += 1;
        let killed = killed(&world, stop, Some(40), false);
        check(&mut world, &ends, true, &format!("no exchange, killed at {stop}"));
        if !killed {
            assert!(stop > ends.calls, "it takes more changes, not fewer: {stop}");
            return;
        }
    }
}

/// The recovery is killed as well, at one place after the other, until one
/// comes to its end.
#[test]
fn killed_while_recovering_it_is_old_or_new() {
    let steps = 60;
    let mut world = World::fast();
    let ends = measure(&mut world, steps);
    for stop in (1..=ends.calls).step_by(7) {
        assert!(killed_at(&world, stop, Some(steps)));
        recover_with_kills(&world, &ends);
        check(&mut world, &ends, true, &format!("killed at {stop}, then while recovering"));
    }
}

fn recover_with_kills(world: &World, ends: &Ends) {
    for stop in [3, 1, 10, 2, 25, 60].into_iter().cycle().take(12) {
        if !killed_at(world, stop, None) {
            let now = world.tree();
            assert!(now == ends.old || now == ends.new);
            return;
        }
    }
}

#[test]
fn many_recoveries_at_once_finish_it_once() {
    let steps = 60;
    let mut world = World::fast();
    let ends = measure(&mut world, steps);
    for stop in (1..=ends.calls).step_by(ends.calls as usize / 12) {
        assert!(killed_at(&world, stop, Some(steps)));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| drop(Engine::open(&world.home()).unwrap()));
            }
        });
        check(&mut world, &ends, true, &format!("killed at {stop}, recovered by four"));
    }
}
