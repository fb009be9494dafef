//! A server that stands still, with runs of many.

use super::client::Server;
use crate::world::{Answer, FRACTAL, World, able};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run in a sandbox of this name that says when it has begun.
pub fn begin(world: &World, name: &str, script: &str) -> Child {
    let mut command = world.command(FRACTAL);
    let script = format!("echo begun; {script}");
    command.args(["run", "--name", name, "--", "sh", "-c", &script]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut begun = String::new();
    let out = run.stdout.as_mut().expect("piped");
    BufReader::new(out).read_line(&mut begun).expect("it tells");
    assert_eq!(begun, "begun\n");
    run
}

fn signal(name: &str, pid: i32) {
    Command::new("kill").args([name, &pid.to_string()]).status().expect("kill runs");
}

#[test]
fn a_server_that_stands_still_loses_what_is_dropped_and_nothing_else() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let marker = format!("7{}", std::process::id());
    let mut gone = begin(&world, "gone", &format!("exec sleep 1{marker}"));
    let stays = begin(&world, "stays", "while ! test -e end; do sleep 0.1; done; echo done > done");
    signal("-STOP", server.pid());
    let began = Instant::now();
    let dropped = Answer::of(world.command(FRACTAL).args(["--no-server", "drop", "gone"]));
    assert_eq!(dropped.status, 0, "{}", dropped.err);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let own = |args: &[&str]| {
        let answer = Answer::of(world.command(FRACTAL).arg("--no-server").args(args));
        assert_eq!(answer.status, 0, "{}", answer.err);
        answer.out
    };
    assert!(!own(&["list"]).contains("gone"));
    // The name is free at once, also for who still thinks that it runs there.
    own(&["run", "--name", "gone", "--", "sh", "-c", "echo new > new"]);
    signal("-CONT", server.pid());
    assert!(!gone.wait().expect("it is answered").success());
    let mut why = String::new();
    gone.stderr.take().expect("piped").read_to_string(&mut why).expect("it tells");
    assert!(why.contains("stood still"), "{why}");
    assert_eq!(own(&["diff", "gone", "--name-status"]), "A\tnew\n");
    own(&["run", "--in", "stays", "--", "touch", "end"]);
    let done = stays.wait_with_output().expect("it is answered");
    assert!(done.status.success(), "{done:?}");
    assert!(own(&["diff", "stays", "--name-status"]).contains("done"));
    assert!(own(&["log", "--json"]).contains("\"lost\""));
    assert_eq!(server.stop(), 0);
}
