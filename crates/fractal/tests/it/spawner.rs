//! The process that splits off supervisors: it may die, and it must not stay.

use crate::world::{World, shell};
use fractal::Run;
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
