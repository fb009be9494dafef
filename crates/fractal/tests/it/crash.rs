//! kill -9 in the middle: old or new, never between, and nothing left behind.

use crate::world::World;
use fractal::{Action, Caller, Engine, Reply, Run};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs as a child of the tests below: plays verbs until it is killed.
#[test]
fn child_that_plays_verbs_until_it_is_killed() {
    let Ok(home) = std::env::var("FRACTAL_TEST_HOME") else { return };
    let engine = Engine::open(home.as_ref()).unwrap();
    let mut caller = Caller::owner(std::env::var("FRACTAL_TEST_PROJECT").unwrap());
    caller.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
    for round in 0.. {
        let script = format!("echo {round} > a; echo {round} > b; sleep 0.01");
        let run = Run {
            command: crate::world::shell(&script),
            sandbox: Some("x".into()),
            ..Run::default()
        };
        engine.apply(&caller, Action::Run(run)).unwrap();
        let snapshot = Action::Snapshot { sandbox: Some("x".into()), name: None };
        engine.apply(&caller, snapshot).unwrap();
        let fork = Action::Fork {
            sandbox: Some("x".into()),
            name: None,
            ask: Default::default(),
            network: None,
            ttl_ms: None,
            world: None,
        };
        let Ok(Reply::Sandbox(child)) = engine.apply(&caller, fork) else { panic!("fork") };
        engine.apply(&caller, Action::Drop { sandboxes: vec![child.name], force: false }).unwrap();
        engine
            .apply(&caller, Action::Rollback { sandbox: Some("x".into()), to: "base".into() })
            .unwrap();
    }
}

#[test]
fn killed_processes_leave_a_state_that_works_and_verifies() {
    let world = World::new();
    world.make("x", "true").unwrap();
    for round in 0..12u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::child_that_plays_verbs_until_it_is_killed", "--exact", "--nocapture"])
            .env("FRACTAL_TEST_HOME", world.engine.home())
            .env("FRACTAL_TEST_PROJECT", world.project())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(40 + round * 23));
        child.kill().unwrap();
        child.wait().unwrap();
        let reply = wait_idle(&world);
        assert_eq!(reply.exit, 0, "{}", reply.stderr);
        assert!(world.diff("x").is_ok());
        let diagnosis = fractal::Diagnosis::examine(world.engine.home());
        assert!(diagnosis.state.is_empty(), "{:?}", diagnosis.state);
    }
    world.drop("x").unwrap();
    for info in world.list() {
        world.drop(&info.name).unwrap();
    }
    world.apply(Action::Gc { dry_run: false, undo_ms: None }).unwrap();
    // A directory whose row never came is spared for ten minutes.
    assert!(std::fs::read_dir(world.engine.home().join("layers")).unwrap().count() <= 12);
}

/// The killed run's processes go within moments.
fn wait_idle(world: &World) -> fractal::RunReply {
    for _ in 0..100 {
        match world.sh("x", "true") {
            Ok(reply) => return reply,
            Err(fractal::Code::Busy) => std::thread::sleep(Duration::from_millis(20)),
            Err(code) => panic!("{code:?}"),
        }
    }
    panic!("still busy");
}
