//! The process that splits off supervisors: it may die, and it must not stay.

use crate::world::{World, shell};
use fractal::Run;
use fractal::model::{Network, Tier};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs as a child of the tests below, so that it has a spawner of its own.
#[test]
fn child_with_a_spawner_of_its_own() {
    let Ok(part) = std::env::var("FRACTAL_TEST_PART") else { return };
    let world = World::new();
    let run = |script: &str| {
        world.run(Run { command: shell(script), discard: true, ..Run::default() }).unwrap()
    };
    for _ in 0..3 {
        assert_eq!(run("echo before").stdout, "before\n");
    }
    let own = ours(std::process::id());
    assert_eq!(own.len(), 1, "one process asks one spawner: {own:?}");
    match part.as_str() {
        "kill the spawner" => {
            Command::new("kill").args(["-9", &own[0].to_string()]).status().unwrap();
            wait_until("the spawner is gone", || ours(std::process::id()).is_empty());
            for _ in 0..3 {
                assert_eq!(run("echo after").stdout, "after\n");
            }
            assert_eq!(ours(std::process::id()).len(), 1, "a new one was made");
        }
        "take what is ready" => take_what_is_ready(&world),
        _ => {
            let command = shell("echo up; exec sleep 1000");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    world.run(Run { command, name: Some("x".into()), ..Run::default() }).unwrap()
                });
                let tree = world.engine.home().join("layers");
                wait_until("it runs", || {
                    std::fs::read_dir(&tree).unwrap().flatten().any(|layer| {
                        std::fs::read_dir(layer.path())
                            .unwrap()
                            .flatten()
                            .any(|entry| entry.file_name().to_string_lossy().starts_with("living-"))
                    })
                });
                println!("\nup {}", world.dir.path().display());
            });
        }
    }
}

/// Several at once, so that no number of a namespace comes back meanwhile.
fn take_what_is_ready(world: &World) {
    const RUNS: usize = 6;
    let links = "readlink /proc/self/ns/net /proc/self/ns/user; ls /proc/self/fd; sleep 0.3";
    let run = |script: &str, network| {
        let run = Run { command: shell(script), discard: true, network, ..Run::default() };
        world.run(run).unwrap().stdout
    };
    world.engine.warm();
    // Time for the spawner to make them.
    std::thread::sleep(Duration::from_millis(500));
    let before = fractal::starts();
    let mut seen = BTreeSet::from([here("net"), here("user")]);
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..RUNS).map(|_| scope.spawn(|| run(links, None))).collect();
        for output in runs.into_iter().map(|run| run.join().unwrap()) {
            let (namespaces, fds): (Vec<&str>, Vec<&str>) =
                output.lines().partition(|line| line.contains('['));
            assert_eq!(namespaces.len(), 2, "{output}");
            for namespace in namespaces {
                assert!(seen.insert(namespace.to_owned()), "{namespace} is another's");
            }
            // The directory that is being listed is the fourth.
            assert_eq!(fds, ["0", "1", "2", "3"], "nothing else is open inside");
        }
    });
    let after = fractal::starts();
    let (ready, fresh) = (after.ready - before.ready, after.fresh - before.fresh);
    if world.engine.strongest_tier() >= Some(Tier::Masked) {
        assert_eq!(ready + fresh, RUNS as u64);
        assert!(ready > 0, "nothing was ready, {fresh} were made");
    } else {
        assert_eq!((ready, fresh), (0, 0), "a user's run makes all of its namespaces at once");
    }
    // Whoever makes a network namespace comes back from it.
    let host = run("readlink /proc/self/ns/net", Some(Network::Host));
    assert_eq!(host.trim(), here("net"));
    let loopback = run("cat /sys/class/net/lo/flags || echo 0x9", None);
    assert_eq!(loopback.trim(), "0x9", "up, and a loopback");
}

/// A namespace of this process.
fn here(kind: &str) -> String {
    std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().display().to_string()
}

fn environment(pid: impl std::fmt::Display) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/environ")).ok()
}

/// Spawners of `pid`.
fn ours(pid: u32) -> Vec<i32> {
    split_off(environment(pid), "fractal-spawner")
}

/// Processes whose names begin like this and that were split off from one with
/// this environment, which tells them from those of other tests.
fn split_off(mark: Option<Vec<u8>>, prefix: &str) -> Vec<i32> {
    let read = |pid: &str, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).ok();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_named = read(&name, "comm").is_some_and(|comm| comm.starts_with(prefix.as_bytes()));
        let stat = read(&name, "stat").unwrap_or_default();
        let is_dead = String::from_utf8_lossy(&stat).contains(") Z ");
        if is_named && !is_dead && environment(&name) == mark {
            found.extend(name.parse::<i32>());
        }
    }
    found
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn child(part: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["spawner::child_with_a_spawner_of_its_own", "--exact", "--nocapture"])
        .env("FRACTAL_TEST_PART", part)
        // Tells the processes of this test from those of others.
        .env("FRACTAL_TEST_MARK", format!("{part} {}", std::process::id()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn runs_go_on_when_the_spawner_is_killed() {
    let output = child("kill the spawner").wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn every_run_has_namespaces_of_its_own_also_those_made_ahead() {
    let output = child("take what is ready").wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_spawner_and_all_runs_end_with_their_caller() {
    let mut caller = child("be killed");
    let mut lines = BufReader::new(caller.stdout.take().unwrap()).lines();
    let home = lines.find_map(|line| line.unwrap().strip_prefix("up ").map(str::to_owned)).unwrap();
    let mark = environment(caller.id());
    let before = split_off(mark.clone(), "fractal-");
    // Init hides its memory, from us too where we are not root.
    assert!(before.len() >= 2, "spawner and monitor: {before:?}");
    caller.kill().unwrap();
    caller.wait().unwrap();
    wait_until("all are gone", || split_off(mark.clone(), "fractal-").is_empty());
    std::fs::remove_dir_all(&home).unwrap();
}
