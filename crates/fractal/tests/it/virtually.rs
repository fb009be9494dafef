//! Sessions of the virtual world.

use crate::world::World;
use fractal::model::World as Realm;
use fractal::{Run, RunIo};
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
    let out = || File::create("/dev/null").unwrap().into();
    let run = Run {
        command: vec!["sh".into()],
        name: Some("s".into()),
        template: Some("virtual".into()),
        world: Some(Realm::Virtual),
        ..Run::default()
    };
    let reply = world.engine.run(&world.caller, run, RunIo::session(next, out(), out())).unwrap();
    assert_eq!((reply.exit, reply.changes.len()), (0, 2));
    assert_eq!(*seen.lock().unwrap(), [(false, 0), (true, 1), (true, 2)]);
}
