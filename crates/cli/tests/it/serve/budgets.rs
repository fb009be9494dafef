//! What the whole may use: disk and memory, from outside.

use super::client::{Response, Server, wait_until};
use crate::world::{World, able};
use serde_json::json;

fn make(server: &Server, name: &str) -> Response {
    server.own("POST", "/v1/sandboxes", &json!({ "name": name }).to_string())
}

/// A refusal for want of room, with its numbers.
fn refused(answer: &Response) -> String {
    let headers = answer.headers.to_lowercase();
    assert!(headers.contains("retry-after: "), "{headers}");
    answer.refusal(429, "busy")
}

/// What goes on when nothing new may be made.
fn goes_on(server: &Server, name: &str) {
    let run = server.own("POST", &format!("/v1/sandboxes/{name}/run"), r#"{"command":["true"]}"#);
    assert_eq!(run.json()["exit"], 0, "{}", run.body);
    assert_eq!(server.own("GET", "/v1/sandboxes", "").status, 200);
    assert_eq!(server.own("GET", "/readyz", "").status, 200);
}

#[test]
fn a_full_disk_budget_stops_new_sandboxes_until_there_is_room() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start_with(&world, &["--disk", "2m"]);
    assert_eq!(make(&server, "a").status, 201);
    let fill = r#"{"command":["dd","if=/dev/urandom","of=big","bs=1M","count=3"]}"#;
    let filled = server.own("POST", "/v1/sandboxes/a/run", fill);
    assert_eq!(filled.json()["exit"], 0, "{}", filled.body);
    // It is felt when it was measured the next time.
    let tries = std::cell::Cell::new(0);
    wait_until(|| {
        tries.set(tries.get() + 1);
        make(&server, &format!("n{}", tries.get())).status == 429
    });
    let message = refused(&make(&server, "late"));
    assert!(message.contains(" on disk, 2.0 MiB may be"), "{message}");
    for body in [r#"{"command":["true"]}"#, r#"{"command":["true"],"name":"late"}"#] {
        refused(&server.own("POST", "/v1/run", body));
    }
    refused(&server.own("POST", "/v1/sandboxes/a/fork", "{}"));
    goes_on(&server, "a");
    server.own("GET", "/v1/sandboxes/late", "").refusal(404, "not_found");
    let page = server.own("GET", "/metrics", "").body;
    let bytes = page.lines().find_map(|line| line.strip_prefix("fractal_store_bytes "));
    let bytes: u64 = bytes.and_then(|bytes| bytes.parse().ok()).expect("it is counted");
    assert!(bytes >= 3 << 20, "{page}");
    assert_eq!(server.own("DELETE", "/v1/sandboxes/a", "").status, 200);
    assert_eq!(server.own("POST", "/v1/gc", "{}").status, 200);
    wait_until(|| make(&server, "again").status == 201);
}

#[cfg(feature = "tools")]
#[test]
fn one_request_does_no_more_at_once_than_all_may() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start_with(&world, &["--at-once", "2"]);
    assert_eq!(make(&server, "s").status, 201);
    let key = server.key(r#"{"role":"operator","tenant":"owner"}"#);
    let call = json!({ "tool": "run", "sandbox": "s",
        "input": { "command": "echo + >> log; sleep 1; echo - >> log" } });
    let calls = json!({ "jobs": 64, "calls": vec![call; 6] }).to_string();
    let called = server.with_key(&key, "POST", "/v1/calls", &calls);
    assert_eq!(called.body.matches("\"exit\":0").count(), 6, "{}", called.body);
    let log = server.content(None, "GET", "/v1/sandboxes/s/files/log", b"").body;
    let mut at_once = 0;
    for line in log.lines() {
        at_once += if line == "+" { 1 } else { -1 };
        assert!((0..=2).contains(&at_once), "{log}");
    }
    assert_eq!(log.lines().count(), 12, "{log}");
}

#[test]
fn memory_that_is_to_stay_free_stops_new_sandboxes() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    assert_eq!(make(&server, "a").status, 201, "this machine has some");
    assert_eq!(server.stop(), 0);
    // More than any machine has.
    let server = Server::start_with(&world, &["--memory-free", "900000g"]);
    let message = refused(&make(&server, "b"));
    assert!(message.contains("of memory are free, "), "{message}");
    assert!(message.contains("are to stay so"), "{message}");
    refused(&server.own("POST", "/v1/run", r#"{"command":["true"]}"#));
    goes_on(&server, "a");
}
