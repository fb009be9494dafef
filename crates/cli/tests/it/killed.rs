//! kill -9 while a verb of many runs is at work: nothing of it goes on, and
//! the next command knows what it has come to.

use crate::stages::{CHECK, staged};
use crate::world::{FRACTAL, World, able};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Starts a command that will be killed.
fn start(world: &World, args: &[&str]) -> Child {
    let mut command = world.command(FRACTAL);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}

fn kill(mut child: Child) {
    child.kill().expect("it is ours");
    child.wait().expect("it was ours");
}

/// The sandboxes in which something runs.
fn running(world: &World) -> Vec<String> {
    let (_, list) = world.json(&["list", "--json"]);
    let all = list["sandboxes"].as_array().cloned().unwrap_or_default();
    let runs = all.iter().filter(|info| info["state"] == "running");
    runs.filter_map(|info| info["name"].as_str().map(str::to_owned)).collect()
}

/// `promote` without a name is refused, and its hint names what to type.
fn assert_refused(world: &World, why: &str, name: &str) {
    let answer = world.fractal(&["promote"]);
    assert_eq!(answer.status, 3, "{}", answer.err);
    assert!(answer.err.contains(&format!("nobody judged `{name}`: {why}")), "{}", answer.err);
    assert!(
        answer.err.contains(&format!("hint: look with `fractal diff {name}`")),
        "{}",
        answer.err
    );
    assert!(answer.err.contains(&format!("`fractal promote {name}`")), "{}", answer.err);
}

/// How often the journal says of a verb that it was killed.
fn told_lost(world: &World, verb: &str) -> usize {
    let log = world.ok(&["log"]).out;
    let is_verb = |line: &str| line.split_whitespace().any(|word| word == verb);
    let lost = |line: &&str| is_verb(line) && line.contains("lost: its process was killed");
    log.lines().filter(lost).count()
}

#[test]
fn an_attempt_that_nobody_judged_is_not_what_promote_means() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("a", "old\n");
    let check = "go=until test -e go; do sleep 0.1; done";
    let child = start(&world, &["try", "-q", "--check", check, "--each", "one=echo new > a"]);
    let attempt = || {
        let (_, list) = world.json(&["list", "--json"]);
        let all = list["sandboxes"].as_array().cloned().unwrap_or_default();
        let mut names = all.iter().filter_map(|info| info["name"].as_str().map(str::to_owned));
        names.find(|name| name.ends_with("-one"))
    };
    // Its command has ended when the check is at it.
    let changed = |name: String| world.fractal(&["diff", "--name-status", &name]).out == "M\ta\n";
    until("an attempt has done its work", || attempt().is_some_and(changed));
    let name = attempt().expect("it was there");
    until("it is idle", || !running(&world).contains(&name));
    world.ok(&["run", "-q", "--in", &name, "--", "true"]);
    assert_refused(&world, "the `try` that made it has not ended yet", &name);
    kill(child);
    world.ok(&["run", "-q", "--in", &name, "--", "true"]);
    assert_refused(&world, "the `try` that made it was killed", &name);
    assert_eq!(told_lost(&world, "try"), 1);
    let read = || std::fs::read_to_string(world.project().join("a")).expect("it is there");
    assert_eq!(read(), "old\n");

    // Who names it means it, and it passes what every attempt had to pass.
    world.write("go", "");
    let answer = world.ok(&["promote", &name]);
    assert!(format!("{}{}", answer.out, answer.err).contains("✓ go"), "{}", answer.err);
    assert_eq!(read(), "new\n");
    // A sandbox that gets its name later is another one.
    world.ok(&["drop", &name]);
    std::thread::sleep(Duration::from_millis(5));
    world.ok(&["run", "-q", "--name", &name, "--", "sh", "-c", "echo mine > a"]);
    world.ok(&["promote"]);
    assert_eq!(read(), "mine\n");
}

#[test]
fn the_work_of_a_guard_that_was_killed_is_not_what_promote_means() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("a", "old\n");
    let child =
        start(&world, &["guard", "--name", "night", "--", "sh", "-c", "echo half > a; sleep 300"]);
    let wrote = || world.fractal(&["diff", "--name-status", "night"]).out == "M\ta\n";
    until("it has written", wrote);
    kill(child);
    until("its run is over", || running(&world).is_empty());
    assert_refused(&world, "the `guard` that made it was killed", "night");
    assert_eq!(told_lost(&world, "guard"), 1);
    assert_eq!(std::fs::read_to_string(world.project().join("a")).expect("it is there"), "old\n");
    world.ok(&["promote", "night"]);
}

/// Whether a process is there and has not ended.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

/// Waits until something holds, for as long as a slow machine may take.
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_publish_command_goes_with_who_runs_it_and_the_stage_says_so() {
    if !able() {
        return;
    }
    let hangs = "[[stage]]\nchecks = []\npublish = \"\"\"
        (trap '' TERM; echo $$ >> ../pids; sleep 300) & echo $! >> ../pids
        sleep 300 & echo $! >> ../pids; wait\"\"\"\n";
    let world = staged(hangs, "echo v1 > app");
    let promote = start(&world, &["promote", "s"]);
    let pids = || std::fs::read_to_string(world.root().join("pids")).unwrap_or_default();
    until("it has begun", || pids().lines().count() == 3);
    assert!(pids().lines().all(lives));
    kill(promote);
    until("all of it is gone", || !pids().lines().any(lives));

    let text = world.ok(&["stages"]).out;
    let words = "not published: its publish command was killed with who ran it";
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{text}");
    let log = world.ok(&["log", "-n", "1"]).out;
    assert!(log.contains("lost: its process was killed; verified stands unpublished"), "{log}");
    let (_, stages) = world.json(&["stages", "--json"]);
    assert_eq!(stages["stages"][0]["stands"]["published"], false);

    world.write("fractal.toml", &format!("{CHECK}[[stage]]\npublish = \"echo done >> ../done\"\n"));
    let answer = world.fractal(&["promote", "s"]);
    assert!(answer.err.contains("what stands in `verified` was published"), "{}", answer.err);
    assert_eq!(std::fs::read_to_string(world.root().join("done")).expect("it ran"), "done\n");
    assert!(!world.ok(&["stages"]).out.contains("not published"));
}
