//! kill -9 of the server in the middle of its work, again and again.

use super::client::{Server, wait_until};
use crate::pipes::{groups, processes};
use crate::world::{World, able};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const ROUNDS: usize = 20;
const RUNS: usize = 50;
/// Files that are promoted while the server is killed.
const FILES: usize = 100;

#[test]
fn a_server_that_was_killed_has_lost_nothing() {
    if !able() {
        return;
    }
    let world = World::new();
    let endless = format!("sleep 6{:07}", std::process::id());
    let start = || Server::start_with(&world, &["--at-once", "100"]);
    let mut server = start();
    let key = server.key(r#"{"role":"runner","name":"k","tenant":"owner"}"#);
    for round in 0..ROUNDS {
        prepare_promotion(&server, round);
        let left = kill_amid_work(server, &key, round, &endless);
        server = start();
        wait_until(|| processes(&endless).is_empty());
        wait_until(|| left.iter().all(|group| !group.exists()));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        assert!(!mounts.contains(&world.state().display().to_string()), "a mount was left");
        wait_until(|| !server.own("GET", "/v1/sandboxes", "").body.contains("\"running\""));
        let whole = server.own("GET", "/v1/audit/verify", "").json();
        assert_eq!(whole["whole"], true, "{whole}");
        assert_eq!(server.with_key(&key, "GET", "/v1/sandboxes", "").status, 200);
        check_promotion(&world, round);
        check_runs(&server, round);
    }
}

/// A sandbox with something to promote.
fn prepare_promotion(server: &Server, round: usize) {
    let script = format!("mkdir w{round}; for i in $(seq {FILES}); do echo $i > w{round}/$i; done");
    let body = json!({ "name": format!("w{round}"), "command": ["sh", "-c", script] });
    let reply = server.own("POST", "/v1/run", &body.to_string());
    assert_eq!(reply.json()["exit"], 0, "{}", reply.body);
}

/// Has the server run what ends and what does not, and promote; then kills it.
/// Gives the control groups that there were.
fn kill_amid_work(server: Server, key: &str, round: usize, endless: &str) -> Vec<PathBuf> {
    let groups = std::thread::scope(|scope| {
        let server = &server;
        for number in 0..RUNS {
            let command = match number % 5 {
                0 => "echo x > f".to_owned(),
                _ => format!("echo x > f; exec {endless}"),
            };
            let name = format!("r{round}-{number}");
            let body = json!({ "name": name, "command": ["sh", "-c", command] }).to_string();
            scope.spawn(move || server.with_key(key, "POST", "/v1/run", &body));
        }
        wait_until(|| processes(endless).len() == RUNS * 4 / 5);
        for number in (0..RUNS).step_by(5) {
            let path = format!("/v1/sandboxes/r{round}-{number}");
            wait_until(|| server.own("GET", &path, "").status == 200);
        }
        let seen = processes(endless).iter().flat_map(|process| groups(process)).collect();
        let promoting = scope
            .spawn(move || server.own("POST", &format!("/v1/sandboxes/w{round}/promote"), "{}"));
        // Each round a little later into it.
        std::thread::sleep(Duration::from_millis(10 * round as u64));
        let pid = server.pid().to_string();
        std::process::Command::new("kill").args(["-9", &pid]).status().expect("kill runs");
        let _ = promoting.join();
        seen
    });
    server.kill();
    groups
}

/// All of it or nothing.
fn check_promotion(world: &World, round: usize) {
    let place = world.project().join(format!("w{round}"));
    let there = std::fs::read_dir(&place).map_or(0, Iterator::count);
    assert!(!place.exists() || there == FILES, "round {round}: {there} of {FILES}");
}

/// Every run that began is on record with how it ended, and what it wrote is
/// there.
fn check_runs(server: &Server, round: usize) {
    let audit = server.own("GET", "/v1/audit?action=run&limit=1000", "").json();
    let mut outcomes = BTreeMap::<String, Vec<Value>>::new();
    for record in audit["records"].as_array().expect("records") {
        let name = record["name"].as_str().unwrap_or_default().to_owned();
        outcomes.entry(name).or_default().push(record["detail"]["outcome"].clone());
    }
    for number in 0..RUNS {
        let name = format!("r{round}-{number}");
        let ended = outcomes.get(&name).cloned().unwrap_or_default();
        let has_ended = number % 5 == 0 && ended == ["exited"];
        assert!(has_ended || ended == ["lost"], "{name}: {ended:?}");
        let diff = server.own("GET", &format!("/v1/sandboxes/{name}/diff"), "").json();
        let changes = diff["changes"].as_array().map(Vec::len);
        // Those that would have ended may have been killed before they wrote.
        let has_begun = number % 5 == 0 && !has_ended && changes == Some(0);
        assert!(has_begun || changes == Some(1), "{name}: {diff}");
    }
}
