//! Who may ask, and what the others learn: nothing.

use super::client::Server;
use crate::world::{World, able};
use serde_json::json;

const RUN: &str = r#"{"command":["true"],"discard":true}"#;

#[test]
fn a_port_wants_a_key_and_its_own_name() {
    let world = World::new();
    let server = Server::start(&world);
    server.by_port("GET", "/v1/sandboxes", &[], "").refusal(401, "denied");
    server.with_key("frk_nonsense", "GET", "/v1/sandboxes", "").refusal(401, "denied");
    let key = server.key(r#"{"role":"viewer"}"#);
    assert_eq!(server.with_key(&key, "GET", "/v1/sandboxes", "").status, 200);
    let raw = |host: &str, more: &str| {
        let head = format!("GET /v1/sandboxes HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        server.raw(format!("{head}Authorization: Bearer {key}\r\n{more}\r\n").as_bytes())
    };
    assert_eq!(raw("localhost", "").status, 200);
    raw("rebound.example.org", "").refusal(421, "denied");
    raw("127.0.0.1.example.org", "").refusal(421, "denied");
    raw("localhost", "Origin: http://example.org\r\n").refusal(403, "denied");
    raw("localhost", "Origin: null\r\n").refusal(403, "denied");
    assert_eq!(raw("localhost", "Origin: http://localhost\r\n").status, 200);
}

#[test]
fn a_role_bounds_what_a_key_may() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let viewer = server.key(r#"{"role":"viewer"}"#);
    let runner = server.key(r#"{"role":"runner"}"#);
    let approver = server.key(r#"{"role":"approver"}"#);
    let ask = |key: &str, method: &str, path: &str, body: &str| {
        server.with_key(key, method, path, body).status
    };
    assert_eq!(ask(&viewer, "POST", "/v1/run", RUN), 403);
    assert_eq!(ask(&approver, "POST", "/v1/run", RUN), 403);
    assert_eq!(ask(&runner, "POST", "/v1/run", RUN), 200);
    for key in [&viewer, &runner, &approver] {
        assert_eq!(ask(key, "GET", "/v1/keys", ""), 403);
        assert_eq!(ask(key, "POST", "/v1/keys", r#"{"role":"admin"}"#), 403);
        assert_eq!(ask(key, "GET", "/v1/audit", ""), 403);
        assert_eq!(ask(key, "GET", "/v1/events", ""), 403);
        assert_eq!(ask(key, "GET", "/metrics", ""), 403);
        assert_eq!(ask(key, "POST", "/v1/undo", "{}"), 403);
    }
    let denied = server.own("GET", "/v1/audit?denied=true", "").json();
    assert!(denied["records"].as_array().expect("records").len() >= 10, "{denied}");
}

#[test]
fn another_tenant_is_as_if_it_did_not_exist() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let one = server.key(r#"{"role":"operator"}"#);
    let two = server.key(r#"{"role":"operator"}"#);
    let made = server.with_key(&one, "POST", "/v1/sandboxes", r#"{"name":"secret"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let listed = server.with_key(&two, "GET", "/v1/sandboxes", "").json();
    assert_eq!(listed["sandboxes"], json!([]));
    let operations = [
        ("GET", "", ""),
        ("DELETE", "", ""),
        ("POST", "/fork", "{}"),
        ("POST", "/snapshot", "{}"),
        ("POST", "/rollback", r#"{"to":"x"}"#),
        ("POST", "/run", RUN),
        ("GET", "/diff", ""),
        ("GET", "/patch", ""),
        ("GET", "/files", ""),
        ("GET", "/files/a.txt", ""),
        ("PUT", "/files/a.txt", "x"),
        ("DELETE", "/files/a.txt", ""),
        ("GET", "/export", ""),
        ("GET", "/terminal", ""),
        ("GET", "/log", ""),
        ("GET", "/usage", ""),
        ("POST", "/promote", "{}"),
        ("POST", "/update", "{}"),
    ];
    for (method, path, body) in operations {
        for name in ["secret", id.as_str()] {
            let ask = |name: &str| {
                let path = format!("/v1/sandboxes/{name}{path}");
                let answer = server.with_key(&two, method, &path, body);
                (answer.status, answer.body.replace(name, "NAME"))
            };
            let absent = if name == "secret" { "absent" } else { "01AAAAAAAAAAAAAAAAAAAAAAAA" };
            assert_eq!(ask(name), ask(absent), "{method} {path}");
            assert_ne!(ask(name).0, 200, "{method} {path}");
        }
    }
    // The name is free for them.
    assert_eq!(server.with_key(&two, "POST", "/v1/sandboxes", r#"{"name":"secret"}"#).status, 201);
    // And nothing of it was touched.
    assert_eq!(server.with_key(&one, "GET", &format!("/v1/sandboxes/{id}"), "").status, 200);
}

#[test]
fn a_key_that_ended_opens_nothing() {
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"viewer","name":"k"}"#);
    let works = |key: &str| server.with_key(key, "GET", "/v1/sandboxes", "").status;
    assert_eq!(works(&key), 200);
    for cut in [1, 5, 40] {
        assert_eq!(works(&key[..key.len() - cut]), 401);
    }
    let rotated = server.own("POST", "/v1/keys/k/rotate", "{}").json();
    let fresh = rotated["secret"].as_str().expect("a secret").to_owned();
    assert_eq!((works(&key), works(&fresh)), (401, 200));
    assert_eq!(server.own("DELETE", "/v1/keys/k", "").status, 200);
    assert_eq!(works(&fresh), 401);
    let brief = server.key(r#"{"role":"viewer","ttl_ms":1}"#);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(works(&brief), 401);
}

#[test]
fn a_key_has_its_own_pace() {
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"viewer","rate_per_minute":3}"#);
    let answers: Vec<_> =
        (0..4).map(|_| server.with_key(&key, "GET", "/v1/sandboxes", "")).collect();
    assert!(answers[..3].iter().all(|answer| answer.status == 200));
    answers[3].refusal(429, "busy");
    assert!(answers[3].headers.to_lowercase().contains("retry-after: "), "{}", answers[3].headers);
}

#[test]
fn the_socket_is_for_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let _server = Server::start(&world);
    let mode = std::fs::metadata(world.state().join("server.sock")).expect("it is there");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let second = world.fractal(&["serve"]);
    assert_eq!(second.status, 125, "{}", second.err);
    assert!(second.err.contains("running"), "{}", second.err);
}
