//! Code of the embedding program at work on a sandbox's files.

use crate::world::World;
use fractal::model::World as Where;
use fractal::{Code, Run, RunIo};

fn edit(world: &World, code: impl FnOnce(&fractal_fs::Vfs) + 'static) -> fractal::RunReply {
    let run = Run {
        command: vec!["edit".into()],
        sandbox: Some("s".into()),
        world: Some(Where::Virtual),
        ..Run::default()
    };
    world.engine.run(&world.caller, run, RunIo::working(Box::new(code))).unwrap()
}

#[test]
fn what_code_writes_is_in_the_sandbox_and_not_outside() {
    let world = World::new();
    let project = world.project();
    std::fs::write(project.join("a"), "1").unwrap();
    world.make("s", "echo native > b").unwrap();
    let at = |name: &str| project.join(name).to_str().unwrap().to_owned();
    let (a, b, c) = (at("a"), at("b"), at("d/c"));
    let reply = edit(&world, move |view| {
        assert_eq!(view.read(&b).unwrap(), "native\n");
        view.append(&a, b"2").unwrap();
        view.write_all(&c, "3").unwrap();
    });
    assert_eq!(reply.changes.len(), 4, "{:?}", reply.changes);
    assert_eq!(world.sh("s", "cat a b d/c").unwrap().stdout, "12native\n3");
    assert_eq!(std::fs::read_to_string(project.join("a")).unwrap(), "1");
}

/// Whether something panics, without a word about it.
fn breaks_off(work: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err()
}

/// Runs that the journal calls lost.
fn lost(world: &World) -> usize {
    let action = fractal::Action::Log { sandbox: None, limit: Some(100), here: false, whole: true };
    let Ok(fractal::Reply::Log(log)) = world.apply(action) else { panic!("there is a journal") };
    log.records.iter().filter(|record| record.body.detail["outcome"] == "lost").count()
}

#[test]
fn a_thread_that_breaks_off_leaves_a_sandbox_that_can_be_used() {
    let world = World::new();
    world.make("s", "echo 1 > a").unwrap();
    assert!(breaks_off(|| drop(edit(&world, |_| panic!("on purpose")))));
    assert!(world.list().iter().all(|sandbox| sandbox.state != "running"));
    assert_eq!((lost(&world), world.sh("s", "cat a").unwrap().stdout.as_str()), (1, "1\n"));
}

#[test]
fn a_thread_that_breaks_off_ends_its_program() {
    let world = World::new();
    world.make("s", "echo 1 > a").unwrap();
    // In a sandbox that exists, and in one that the run made.
    world.engine.set_doors(std::sync::Arc::new(|_| Ok(Box::new(|_| panic!("on purpose")))));
    let made = Run { name: Some("made".into()), ..Run::default() };
    for (number, run) in
        [Run { sandbox: Some("s".into()), ..Run::default() }, made].into_iter().enumerate()
    {
        let command = crate::world::shell("echo begun > b; exec sleep 60");
        let run = Run { command, door: true, ..run };
        let name = run.sandbox.clone().or(run.name.clone()).unwrap();
        let began = std::time::Instant::now();
        assert!(breaks_off(|| drop(world.run(run))));
        assert!(began.elapsed().as_secs() < 30, "its program is not waited for");
        assert_eq!(lost(&world), number + 1);
        assert_eq!(world.sh(&name, "echo on").unwrap().stdout, "on\n");
        world.drop(&name).unwrap();
    }
}

#[test]
fn a_view_is_for_looking() {
    let world = World::new();
    std::fs::write(world.project().join("a"), "1").unwrap();
    world.make("s", "echo 2 > b").unwrap();
    let view = world.engine.view(&world.caller, "s").unwrap();
    let path = |name: &str| world.project().join(name).to_str().unwrap().to_owned();
    assert_eq!(view.read(path("a")).unwrap(), "1");
    assert_eq!(view.read(path("b")).unwrap(), "2\n");
    assert!(!view.exists("/etc/passwd"));
    view.write(path("b"), "mine").unwrap();
    assert_eq!(world.sh("s", "cat b").unwrap().stdout, "2\n");
    let none = world.engine.view(&world.caller, "none");
    assert_eq!(none.err().map(|error| error.code), Some(Code::NotFound));
}

#[test]
fn what_runs_is_stopped_and_told_to_who_waits() {
    let world = World::new();
    world.make("s", "true").unwrap();
    let reply = std::thread::scope(|scope| {
        let run = scope.spawn(|| world.sh("s", "echo begun > begun; sleep 60"));
        // Again and again: it may not have begun yet.
        while !run.is_finished() {
            world.engine.stop(&world.caller, "s").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        run.join().unwrap()
    });
    assert_eq!(reply.unwrap().exit, 137);
    assert_eq!(world.sh("s", "echo on").unwrap().stdout, "on\n");
}
