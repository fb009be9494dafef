//! Ends and beginnings: what is asked twice, stopped, or killed.

use super::client::{Server, wait_until};
use crate::world::{World, able};

const ONCE: &[&str] = &["Idempotency-Key: one"];

#[test]
fn the_same_request_is_carried_out_once_also_after_a_crash() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let body = r#"{"command":["sh","-c","echo $$ > f"]}"#;
    let first = server.own_with("POST", "/v1/run", ONCE, body);
    let again = server.own_with("POST", "/v1/run", ONCE, body);
    assert_eq!((first.status, &first.body), (200, &again.body));
    assert!(again.headers.contains("idempotency-replayed"), "{}", again.headers);
    let other = server.own_with("POST", "/v1/run", ONCE, r#"{"command":["true"]}"#);
    other.refusal(409, "conflict");
    server.kill();
    let server = Server::start(&world);
    assert_eq!(server.own_with("POST", "/v1/run", ONCE, body).body, first.body);
    let listed = server.own("GET", "/v1/sandboxes", "").json();
    assert_eq!(listed["sandboxes"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_cannot_be_answered_twice_is_not_carried_out_twice() {
    let world = World::new();
    let server = Server::start(&world);
    let headers = [ONCE[0], "Accept: text/event-stream"];
    for _ in 0..2 {
        let refused = server.own_with("POST", "/v1/run", &headers, r#"{"command":["true"]}"#);
        assert!(refused.refusal(400, "invalid").contains("Idempotency-Key"), "{}", refused.body);
    }
}

#[test]
fn a_secret_is_never_kept_for_a_second_answer() {
    let world = World::new();
    let server = Server::start(&world);
    let made = server.own_with("POST", "/v1/keys", ONCE, r#"{"role":"viewer"}"#).json();
    let secret = made["secret"].as_str().expect("a secret");
    server.kill();
    for name in ["state.db", "state.db-wal"] {
        let bytes = std::fs::read(world.state().join(name)).unwrap_or_default();
        let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!found, "the secret is in {name}");
    }
}

#[test]
fn a_server_that_is_told_to_stop_finishes_what_runs() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let answer = std::thread::scope(|scope| {
        let body = r#"{"name":"s","command":["sh","-c","echo begun > f; sleep 1; echo done"]}"#;
        let running = scope.spawn(|| server.own("POST", "/v1/run", body));
        wait_until(|| server.own("GET", "/v1/sandboxes/s", "").body.contains("running"));
        let pid = server.pid().to_string();
        std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        running.join().expect("it was answered")
    });
    assert_eq!(answer.json()["stdout"], "done\n", "{}", answer.body);
    assert_eq!(server.stop(), 0);
    assert!(!world.state().join("server.sock").exists());
}

#[test]
fn what_does_not_finish_in_time_is_stopped_and_recorded() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start_with(&world, &["--drain", "200ms"]);
    let answer = std::thread::scope(|scope| {
        let body = r#"{"name":"s","command":["sh","-c","echo begun > f; sleep 60"]}"#;
        let running = scope.spawn(|| server.own("POST", "/v1/run", body));
        wait_until(|| server.own("GET", "/v1/sandboxes/s", "").body.contains("running"));
        let pid = server.pid().to_string();
        std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        running.join().expect("it was answered")
    });
    assert_eq!(answer.json()["outcome"], "signalled", "{}", answer.body);
    assert_eq!(server.stop(), 0);
    let log = world.ok(&["log", "s", "--json"]).out;
    assert!(log.contains("signalled"), "{log}");
}
