//! Where checks run, and whose gates a change has to pass.

use crate::promote::asked;
use crate::world::{World, shell};
use fractal::model::{Attempt, Promote, PromoteReply, Try, Verdict};
use fractal::{Action, Config, Error, Reply};
use std::fs;

/// Works in a directory below the project.
fn in_directory(world: &mut World, name: &str) {
    let directory = world.dir.path().join("project").join(name);
    world.caller.config = Config::load(&directory, None).unwrap();
    world.caller.directory = directory;
}

fn names(reply: &PromoteReply) -> Vec<&str> {
    reply.checks.iter().map(|check| check.name.as_str()).collect()
}

fn promote(world: &World, asked: Promote) -> Result<PromoteReply, Error> {
    match world.engine.apply(&world.caller, Action::Promote(Box::new(asked)))? {
        Reply::Promote(reply) => Ok(*reply),
        other => panic!("promote answered {other:?}"),
    }
}

const BESIDE: &str = "[[check]]\nname = \"beside\"\ncommand = \"test -f fractal.toml && pwd\"\n";

#[test]
fn checks_run_beside_the_file_that_they_are_written_in() {
    let mut world = World::new();
    fs::create_dir_all(world.file("sub/deep")).unwrap();
    for (round, stages) in ["", "[[stage]]\n"].into_iter().enumerate() {
        world.caller.directory = world.dir.path().join("project");
        world.write("fractal.toml", &format!("{BESIDE}{stages}"));
        in_directory(&mut world, "sub/deep");
        world.make("s", &format!("echo {round} > a")).unwrap();
        let reply = promote(&world, asked("s")).unwrap();
        assert_eq!((reply.verdict, names(&reply)), (Verdict::Applied, vec!["beside"]));
        let attempt = Attempt { name: "one".into(), command: shell("echo x > b") };
        // Wherever the attempts themselves work.
        let mut asked = Try { attempts: vec![attempt], ..Try::default() };
        asked.run.cwd = Some("..".into());
        let reply = world.apply(Action::Try(Box::new(asked))).unwrap();
        let Reply::Try(reply) = reply else { panic!("try answers") };
        assert_eq!(reply.winner.as_deref(), Some("one"), "{:?}", reply.attempts);
        world.drop("s").unwrap();
    }
    // One that was asked for runs where the sandbox works.
    world.make("t", "echo new > c").unwrap();
    let check = fractal::model::Check {
        name: "here".into(),
        command: "test -f c".into(),
        required: true,
        ..Default::default()
    };
    let reply = promote(&world, Promote { checks: vec![check], ..asked("t") }).unwrap();
    assert_eq!(names(&reply), ["beside", "here"]);
}

const POLITE: &str = "[[check]]\nname = \"polite\"\ncommand = \"! grep -rq bad src\"\n";

#[test]
fn who_writes_into_an_inner_project_passes_its_gate() {
    let world = World::new();
    fs::create_dir_all(world.file("inner/src")).unwrap();
    world.write("inner/fractal.toml", POLITE);
    world.make("out", "echo bad > outer").unwrap();
    let reply = world.promote("out");
    assert_eq!((reply.verdict, names(&reply)), (Verdict::Applied, vec![]), "it is not beneath it");
    // The gate is the one that stands, whatever the sandbox makes of it.
    for script in ["echo bad > inner/src/a", "echo bad > inner/src/a; rm inner/fractal.toml"] {
        world.make("in", script).unwrap();
        let reply = world.promote("in");
        assert_eq!((reply.verdict, names(&reply)), (Verdict::Gate, vec!["inner/polite"]));
        assert!(!world.file("inner/src/a").exists());
        world.drop("in").unwrap();
    }
    world.make("in", "echo good > inner/src/a; echo bad > outer2").unwrap();
    let reply = world.promote("in");
    assert_eq!((reply.verdict, names(&reply)), (Verdict::Applied, vec!["inner/polite"]));
}

#[test]
fn nobody_goes_around_the_stages_of_an_inner_project() {
    let mut world = World::new();
    fs::create_dir(world.file("inner")).unwrap();
    world.write("inner/fractal.toml", "[[stage]]\n[[stage]]\nname = \"live\"\ndirectory = \".\"\n");
    world.make("s", "echo x > inner/a; echo y > b").unwrap();
    let error = promote(&world, asked("s")).unwrap_err();
    assert_eq!(error.code, fractal::Code::Denied);
    assert!(error.message.contains("`inner` is a project with stages (verified, live)"), "{error}");
    assert!(error.hint.unwrap().contains("--only"));
    assert!(!world.file("b").exists(), "nothing was written");
    let only = Promote { only: vec!["b".into()], ..asked("s") };
    assert_eq!(promote(&world, only).unwrap().verdict, Verdict::Applied);
    assert!(world.file("b").exists() && !world.file("inner/a").exists());
    // In it, it goes its way.
    in_directory(&mut world, "inner");
    world.make("t", "echo x > a").unwrap();
    let reply = promote(&world, asked("t")).unwrap();
    assert_eq!((reply.verdict, reply.stage.as_str()), (Verdict::Applied, "verified"));
}
