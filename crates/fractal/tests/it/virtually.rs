//! Sessions of the virtual world.

use crate::world::World;
use fractal::model::World as Realm;
use fractal::{Run, RunIo, RunReply};
use std::fs::File;
use std::sync::{Arc, Mutex};

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
    let run = Run {
        command: vec!["sh".into()],
        name: Some("s".into()),
        template: Some("virtual".into()),
        world: Some(Realm::Virtual),
        ..Run::default()
    };
    world.engine.run(&world.caller, run, RunIo::session(lines, out(), out())).unwrap()
}

type Lines = Box<dyn FnMut(&str) -> Option<String>>;
