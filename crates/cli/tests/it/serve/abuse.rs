//! What is thrown at a port.

use super::client::{Server, wait_until};
use crate::world::{World, able};
use std::io::{Read, Write};

#[test]
fn bodies_are_read_strictly_and_bounded() {
    let world = World::new();
    let server = Server::start(&world);
    let unknown = server.own("POST", "/v1/run", r#"{"command":["true"],"memroy":1}"#);
    assert!(unknown.refusal(400, "invalid").contains("memroy"));
    let nested =
        server.own("POST", "/v1/run", r#"{"command":["true"],"ask":{"limits":{"memory":5}}}"#);
    assert!(nested.refusal(400, "invalid").contains("ask.limits.memory"));
    for body in ["{", "[]", "null", "{}x", "{\"command\":\"true\"}", "\u{0}"] {
        server.own("POST", "/v1/run", body).refusal(400, "invalid");
    }
    let long = format!(r#"{{"command":["{}"]}}"#, "x".repeat(2 << 20));
    server.own("POST", "/v1/run", &long).refusal(413, "limit");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    server.own("POST", "/v1/run", &deep).refusal(400, "invalid");
    let part = r#"{"command":["true"],"part":"score"}"#;
    server.own("POST", "/v1/run", part).refusal(400, "invalid");
}

#[test]
fn a_body_must_say_that_it_is_json() {
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"runner"}"#);
    let body = r#"{"command":["true"]}"#;
    let request = format!(
        "POST /v1/run HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Authorization: Bearer {key}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    server.raw(request.as_bytes()).refusal(415, "invalid");
}

#[test]
fn paths_lead_nowhere_else() {
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"admin"}"#);
    for path in [
        "/v1/sandboxes/..%2f..%2fetc%2fpasswd",
        "/v1/sandboxes/%00",
        "/v1/sandboxes/%ff%fe",
        "/v1/sandboxes/a%0d%0aSet-Cookie:%20x",
        "/../../etc/passwd",
        "/v1//sandboxes",
    ] {
        let answer = server.with_key(&key, "GET", path, "");
        assert!((400..500).contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
        assert!(!answer.headers.to_lowercase().contains("set-cookie"), "{}", answer.headers);
    }
    assert_eq!(server.with_key(&key, "PATCH", "/v1/sandboxes", "").status, 405);
}

#[test]
fn nonsense_ends_a_connection_and_not_the_server() {
    let world = World::new();
    let server = Server::start(&world);
    for bytes in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
        b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    ] {
        let mut stream = server.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
    let long =
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
    assert_ne!(server.raw(long.as_bytes()).status, 200);
    assert_eq!(server.own("GET", "/healthz", "").status, 200);
}

#[test]
fn whoever_sends_slowly_is_cut_off_and_holds_nobody_up() {
    let world = World::new();
    let server = Server::start(&world);
    let mut slow: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHo").expect("it is taken");
    }
    assert_eq!(server.own("GET", "/healthz", "").status, 200);
    // The server closes; how soon is its own affair, within our patience.
    for stream in &mut slow {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the server ends the connection");
    }
}

#[test]
fn who_finds_no_room_is_told_and_can_come_again() {
    if !able() {
        return;
    }
    let world = World::new();
    let server =
        Server::start_with(&world, &["--sandboxes", "1", "--at-once", "1", "--waiting", "0"]);
    let make = |name: &str| server.own("POST", "/v1/sandboxes", &format!(r#"{{"name":"{name}"}}"#));
    assert_eq!(make("one").status, 201);
    assert!(make("two").refusal(429, "busy").contains("1 sandboxes, 1 may be"));
    assert_eq!(server.own("DELETE", "/v1/sandboxes/one", "").status, 200);
    assert_eq!(make("two").status, 201);
    std::thread::scope(|scope| {
        let run = r#"{"command":["sleep","600"]}"#;
        let running = scope.spawn(|| server.own("POST", "/v1/sandboxes/two/run", run));
        wait_until(|| server.own("GET", "/v1/sandboxes/two", "").body.contains("running"));
        // Looking needs no place of the heavy ones.
        assert_eq!(server.own("GET", "/v1/sandboxes", "").status, 200);
        let refused = server.own("POST", "/v1/gc", "{}");
        assert!(refused.refusal(429, "busy").contains("all 1 places"));
        assert!(refused.headers.to_lowercase().contains("retry-after: "), "{}", refused.headers);
        assert_eq!(server.own("DELETE", "/v1/sandboxes/two?force=true", "").status, 200);
        running.join().expect("it was answered");
    });
    assert_eq!(server.own("POST", "/v1/gc", "{}").status, 200);
}

#[test]
fn a_thousand_wrong_keys_lock_nobody_out() {
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"viewer"}"#);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (server, key) = (&server, &key);
            scope.spawn(move || {
                for number in 0..125 {
                    let wrong = format!("{}{thread}{number}", &key[..key.len() - 4]);
                    let status = server.with_key(&wrong, "GET", "/v1/sandboxes", "").status;
                    assert!(status == 401 || status == 429, "{status}");
                }
            });
        }
    });
    assert_eq!(server.with_key(&key, "GET", "/v1/sandboxes", "").status, 200);
    let records = server.own("GET", "/v1/audit?denied=true&limit=1000", "").json();
    let records = records["records"].as_array().expect("records").len();
    assert!((1..200).contains(&records), "{records} records of 1,000 wrong keys");
}
