//! Who goes while something is under way, and who only waits: clients and keys.

use super::client::{Server, request, wait_until};
use super::standstill::begin;
use crate::world::{World, able};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

/// Requests that are being carried out, by the server's own count.
fn active(server: &Server) -> u64 {
    let page = server.own("GET", "/metrics", "").body;
    let line = page.lines().find_map(|line| line.strip_prefix("fractal_requests_active "));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{page}"))
}

#[test]
fn what_is_only_read_stops_when_nobody_waits_for_it() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    // Sizes are claims: these take no room, and reading them takes minutes.
    let script = "truncate -s 800G huge; for n in 1 2 3 4 5 6 7 8; do truncate -s 250M s$n; done";
    world.ok(&["run", "--name", "s", "--disk", "2000g", "--", "sh", "-c", script]);
    let key = server.key(r#"{"role":"operator","tenant":"owner"}"#);
    for path in ["export", "patch"] {
        let bearer = format!("Authorization: Bearer {key}");
        let asked = request("GET", &format!("/v1/sandboxes/s/{path}"), "localhost", &[&bearer], "");
        let before = active(&server);
        let mut stream = server.connect();
        stream.write_all(&asked).expect("it is taken");
        wait_until(|| active(&server) > before);
        std::thread::sleep(Duration::from_millis(300));
        assert!(active(&server) > before, "{path} is over too soon to say anything");
        drop(stream);
        let left = Instant::now();
        wait_until(|| active(&server) <= before);
        assert!(left.elapsed() < Duration::from_secs(20), "{path}: {:?}", left.elapsed());
    }
}

#[test]
fn a_stream_of_a_run_ends_with_its_key_and_the_run_goes_on() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"runner","name":"brief","tenant":"owner"}"#);
    let run = json!({ "name": "s", "command": ["sh", "-c",
        "echo first; while ! test -e end; do sleep 0.1; done; echo second; echo done > done"] });
    let bearer = format!("Authorization: Bearer {key}");
    let headers = [bearer.as_str(), "Accept: text/event-stream"];
    let mut stream = server.connect();
    let asked = request("POST", "/v1/run", "localhost", &headers, &run.to_string());
    stream.write_all(&asked).expect("it is taken");
    let mut heard = String::new();
    let mut lines = BufReader::new(stream);
    while !heard.contains("first") {
        assert!(lines.read_line(&mut heard).expect("it goes on") > 0, "{heard}");
    }
    assert_eq!(server.own("DELETE", "/v1/keys/brief", "").status, 200);
    lines.read_to_string(&mut heard).expect("it ends");
    assert!(!heard.contains("second"), "{heard}");
    let end = r#"{"command":["touch","end"]}"#;
    assert_eq!(server.own("POST", "/v1/sandboxes/s/run", end).status, 200);
    wait_until(|| server.content(None, "GET", "/v1/sandboxes/s/files/done", b"").status == 200);
}

#[test]
fn who_waits_for_a_place_to_be_told_a_run_holds_nobody_up() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start_with(&world, &["--at-once", "1"]);
    let key = server.key(r#"{"role":"runner","tenant":"owner"}"#);
    let mut first = begin(&world, "first", "exec sleep 600");
    let bearer = format!("Authorization: Bearer {key}");
    let headers = [bearer.as_str(), "Accept: text/event-stream"];
    let asked = request("POST", "/v1/run", "localhost", &headers, r#"{"command":["true"]}"#);
    // More than there are threads to wait in.
    let mut waiting = Vec::new();
    for _ in 0..600 {
        let mut stream = server.connect();
        stream.write_all(&asked).expect("it is taken");
        waiting.push(stream);
    }
    let began = Instant::now();
    assert_eq!(server.with_key(&key, "GET", "/v1/sandboxes", "").status, 200);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(server.own("DELETE", "/v1/sandboxes/first", "").status, 200);
    first.wait().expect("it ends");
    drop(waiting);
}
