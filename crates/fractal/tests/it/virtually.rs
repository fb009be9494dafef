//! Sessions of the virtual world.

use crate::world::World;
use fractal::model::{Outcome, World as Realm};
use fractal::{Action, Code, Run, RunIo, RunReply};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[test]
fn a_session_keeps_its_work_after_every_line() {
    let world = Arc::new(World::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (inner, told) = (world.clone(), seen.clone());
    let mut lines = ["echo 1 > a; cd /tmp; v=2", "echo $v > $OLDPWD/b"].into_iter();
    // Whoever asks before the next line finds what the last one did: so would
    // a command after a kill.
    let next = Box::new(move |cwd: &str| {
        let found = inner.changed("s").map(|list| list.len());
        told.lock().unwrap().push((cwd.ends_with("/tmp"), found.unwrap_or(0)));
        lines.next().map(str::to_owned)
    });
    let reply = session(&world, next);
    assert_eq!((reply.exit, reply.changes.len()), (0, 2));
    assert_eq!(*seen.lock().unwrap(), [(false, 0), (true, 1), (true, 2)]);
}

#[test]
fn what_a_line_moved_without_reading_it_can_be_read_by_the_next() {
    let world = World::new();
    let project = &world.caller.directory;
    std::fs::create_dir(project.join("dir")).unwrap();
    std::fs::write(project.join("dir/f"), "deep").unwrap();
    std::fs::write(project.join("a"), "flat").unwrap();
    let mut lines = ["mv a b; mv dir other", "cat b other/f > c; mv b a", "cat a >> c"].into_iter();
    let reply = session(&world, Box::new(move |_| lines.next().map(str::to_owned)));
    assert_eq!(reply.exit, 0);
    let look = Run {
        command: ["cat", "c", "other/f"].map(str::to_owned).to_vec(),
        sandbox: Some("s".into()),
        ..Run::default()
    };
    let reply = world.engine.run(&world.caller, look, RunIo::captured()).unwrap();
    assert_eq!(reply.stdout, "flatdeepflatdeep");
}

/// A session in a new sandbox `s`.
fn session(world: &World, lines: Lines) -> RunReply {
    let out = || File::create("/dev/null").unwrap().into();
    let run = in_memory("s", ["sh"]);
    world.engine.run(&world.caller, run, RunIo::session(lines, out(), out())).unwrap()
}

type Lines = Box<dyn FnMut(&str) -> Option<String>>;

#[test]
fn a_script_ends_with_whoever_asked_for_it() {
    let world = Arc::new(World::new());
    let (asked, watched) = UnixStream::pair().unwrap();
    let io = move || RunIo::captured().ending_with(watched.into());
    let script = begin(&world, "s", "while true; do sleep 1; done", io);
    wait_until_it_runs(&world, "s");
    drop(asked);
    let reply = script.join().unwrap().unwrap();
    assert_eq!((reply.outcome, reply.exit), (Outcome::Signalled, 130));
}

#[test]
fn a_script_that_waits_for_its_input_ends_as_well() {
    let world = Arc::new(World::new());
    for ends_by_connection in [true, false] {
        let (stdin, _input) = std::io::pipe().unwrap();
        let (asked, watched) = UnixStream::pair().unwrap();
        let out = || File::create("/dev/null").unwrap().into();
        let io = move || RunIo::beside(stdin.into(), out(), out()).ending_with(watched.into());
        let name = format!("waits-{ends_by_connection}");
        let script = begin(&world, &name, "cat > all", io);
        wait_until_it_runs(&world, &name);
        match ends_by_connection {
            true => drop(asked),
            false => world.engine.stop(&world.caller, &name).unwrap(),
        }
        let reply = script.join().unwrap().unwrap();
        assert_eq!(reply.outcome, Outcome::Signalled);
        assert!(reply.changes.is_empty(), "it never began");
    }
}

#[test]
fn a_drop_ends_a_script_of_this_process_and_no_session() {
    let world = Arc::new(World::new());
    let script = begin(&world, "s", "while true; do sleep 1; done", RunIo::captured);
    wait_until_it_runs(&world, "s");
    let verb = Action::Drop { sandboxes: vec!["s".into()], force: true };
    world.engine.apply(&world.caller, verb).unwrap();
    assert_eq!(script.join().unwrap().unwrap().outcome, Outcome::Signalled);

    let inner = world.clone();
    let mut is_asked = false;
    session(
        &world,
        Box::new(move |_| {
            let verb = Action::Drop { sandboxes: vec!["s".into()], force: true };
            let refused = inner.engine.apply(&inner.caller, verb).unwrap_err();
            assert_eq!(refused.code, Code::Busy);
            (!std::mem::replace(&mut is_asked, true)).then(|| "true".to_owned())
        }),
    );
}

fn begin(
    world: &Arc<World>,
    name: &str,
    script: &str,
    io: impl FnOnce() -> RunIo + Send + 'static,
) -> JoinHandle<fractal::Result<RunReply>> {
    let (world, run) = (world.clone(), in_memory(name, ["sh", "-c", script]));
    std::thread::spawn(move || world.engine.run(&world.caller, run, io()))
}

/// Until something runs in it.
fn wait_until_it_runs(world: &World, name: &str) {
    let start = Instant::now();
    while !world.list().iter().any(|info| info.name == name && info.state == "running") {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn in_memory<const N: usize>(name: &str, words: [&str; N]) -> Run {
    Run {
        command: words.map(str::to_owned).to_vec(),
        name: Some(name.into()),
        template: Some("virtual".into()),
        world: Some(Realm::Virtual),
        ..Run::default()
    }
}
