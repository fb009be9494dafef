//! Doors of runs that a server supervises, and numbers that nobody means.

use super::client::Server;
use crate::door::eventually;
use crate::world::{FRACTAL, World, able, is_root};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn the_key_of_a_door_opens_nothing_else() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let mut run = world.command(FRACTAL);
    run.args(["run", "--door", "--name", "own", "--"]);
    run.args(["sh", "-c", "echo $FRACTAL_KEY; fractal -q fork kid; sleep 60"]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut secret = String::new();
    let mut out = BufReader::new(run.stdout.take().expect("piped"));
    out.read_line(&mut secret).expect("it tells its key");
    let secret = secret.trim();
    assert!(secret.starts_with("frk_"), "{secret}");
    eventually("the door opens", || world.ok(&["list"]).out.contains("kid"));
    let unknown = server.with_key("frk_nobody", "GET", "/v1/sandboxes", "");
    let ask = r#"{"command":["true"],"sandbox":"own"}"#;
    for (method, path, body) in [
        ("GET", "/v1/sandboxes", ""),
        ("POST", "/v1/run", ask),
        ("DELETE", "/v1/sandboxes/own", ""),
    ] {
        let refused = server.with_key(secret, method, path, body);
        assert_eq!(refused.status, 401, "{path}: {}", refused.body);
        assert_eq!(refused.json()["error"]["message"], unknown.json()["error"]["message"]);
        let bearer = format!("Authorization: Bearer {secret}");
        let refused = server.own_with(method, path, &[&bearer], body);
        assert_eq!(refused.status, 401, "{path}: {}", refused.body);
    }
    assert_eq!(world.fractal(&["mcp", "--key", secret]).status, 4);
    world.ok(&["drop", "own"]);
    run.wait().expect("it ends");
}

#[test]
fn a_door_ends_with_the_key_that_asked_for_its_run() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"runner","name":"worker"}"#);
    // A key has no path to programs of its own.
    let script = "fractal() { \"$0\" \"$@\"; }; fractal -q fork kid; n=0; \
        while [ $n -lt 100 ] && fractal list > /dev/null; do n=$((n+1)); sleep 0.2; done";
    let run =
        serde_json::json!({"command": ["sh", "-c", script, FRACTAL], "door": true, "name": "own"});
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| server.with_key(&key, "POST", "/v1/run", &run.to_string()));
        eventually("the door opens", || {
            server.own("GET", "/v1/sandboxes", "").body.contains("\"kid\"")
        });
        world.ok(&["key", "revoke", "worker"]);
        let ran = asking.join().expect("it answers");
        assert!(ran.body.contains("is over"), "{} {}", ran.status, ran.body);
    });
}

#[test]
fn numbers_and_paths_that_nobody_means_are_refused() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"runner"}"#);
    let ask = |fields: &str| {
        let body = format!("{{\"command\":[\"true\"],{fields}}}");
        server.with_key(&key, "POST", "/v1/run", &body)
    };
    for fields in [
        r#""name":"a","ttl_ms":9223372036854775808"#,
        r#""name":"a","ttl_ms":18446744073709551615"#,
        r#""ask":{"limits":{"pids":0}}"#,
        r#""ask":{"limits":{"pids":1}}"#,
        r#""name":"a","ask":{"hidden":["/../.."]}"#,
        r#""name":"a","ask":{"read_only":["/x/../y"]}"#,
        r#""name":"reality""#,
    ] {
        let refused = ask(fields);
        assert_eq!(refused.status, 400, "{fields}: {}", refused.body);
        assert!(!refused.body.contains("state"), "{}", refused.body);
    }
    let ran = ask(r#""ask":{"limits":{"cpu_milli":18014398509481984}}"#);
    assert_eq!(ran.status, 200, "{}", ran.body);
    assert_eq!(ask(r#""name":"b""#).status, 200);
    let fork = |body: &str| server.with_key(&key, "POST", "/v1/sandboxes/b/fork", body).status;
    assert_eq!(fork(r#"{"name":"c","ttl_ms":9223372036854775808}"#), 400);
    assert_eq!(fork(r#"{"name":"reality"}"#), 400);
    let long = r#"{"role":"viewer","ttl_ms":18446744073709551615}"#;
    assert_eq!(server.own("POST", "/v1/keys", long).status, 400);
}

#[test]
fn a_patch_says_what_it_leaves_out() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    world.ok(&["run", "--name", "own", "--", "truncate", "-s", "300M", "big"]);
    let patch = server.own("GET", "/v1/sandboxes/own/patch", "");
    assert_eq!(patch.status, 200);
    assert!(patch.body.starts_with("# left out"), "{:.200}", patch.body);
    assert!(patch.body.contains("big"), "{:.200}", patch.body);
}

#[test]
fn a_server_has_the_descriptors_that_it_may_have() {
    let world = World::new();
    let server = Server::start(&world);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid()));
    let limits = limits.expect("it lives");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let mut numbers = line.split_whitespace().skip(3).map(|word| word.parse::<u64>());
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(u64::MAX);
    let (soft, hard) = (next(), next());
    assert!(soft >= hard.min(1 << 16), "{line}, root: {}", is_root());
}
