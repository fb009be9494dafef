//! What a key is not told when something goes wrong.

use super::client::{Response, Server};
use crate::world::{World, able};
use serde_json::json;

/// Everything a key can ask that reads what a sandbox holds.
fn ask_all(server: &Server, key: &str) -> Vec<(&'static str, Response)> {
    let run = r#"{"command":["true"]}"#;
    let call = r#"{"sandbox":"s","input":{"path":"a"}}"#;
    let calls = r#"{"calls":[{"tool":"read","sandbox":"s","input":{"path":"a"}}]}"#;
    let attempts = r#"{"sandbox":"s","attempts":[{"name":"a","command":"true"}]}"#;
    let bearer = format!("Authorization: Bearer {key}");
    let once = [bearer.as_str(), "Idempotency-Key: once"];
    let streamed = [bearer.as_str(), "Accept: text/event-stream"];
    let mcp = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
        "name": "read", "arguments": { "path": "a", "sandbox": "s" },
        "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {} } } });
    let agent = [
        bearer.as_str(),
        "Accept: application/json, text/event-stream",
        "Mcp-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: read",
    ];
    let with =
        |headers: &[&str], path: &str, body: &str| server.by_port("POST", path, headers, body);
    let get = |path: &str| server.with_key(key, "GET", path, "");
    vec![
        ("diff", get("/v1/sandboxes/s/diff")),
        ("patch", get("/v1/sandboxes/s/patch")),
        ("show", get("/v1/sandboxes/s")),
        ("files", get("/v1/sandboxes/s/files")),
        ("file", get("/v1/sandboxes/s/files/a")),
        ("export", get("/v1/sandboxes/s/export")),
        ("run", server.with_key(key, "POST", "/v1/sandboxes/s/run", run)),
        ("run once", with(&once, "/v1/sandboxes/s/run", run)),
        ("run as events", with(&streamed, "/v1/sandboxes/s/run", run)),
        ("snapshot", server.with_key(key, "POST", "/v1/sandboxes/s/snapshot", "{}")),
        ("tool", server.with_key(key, "POST", "/v1/tools/read", call)),
        ("tools", server.with_key(key, "POST", "/v1/calls", calls)),
        ("try", server.with_key(key, "POST", "/v1/try", attempts)),
        ("mcp", with(&agent, "/mcp", &mcp.to_string())),
    ]
}

#[test]
fn errors_do_not_tell_a_key_where_the_state_lies() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    world.ok(&["run", "--name", "s", "--", "sh", "-c", "echo a > a"]);
    let key = server.key(r#"{"role":"operator","tenant":"owner"}"#);
    // What the sandbox holds is lost.
    let layers = std::fs::read_dir(world.state().join("layers")).expect("there are layers");
    for layer in layers.flatten() {
        std::fs::rename(layer.path().join("tree"), layer.path().join("lost")).expect("a layer");
    }
    let state = world.state().display().to_string();
    let owners = server.own("GET", "/v1/sandboxes/s/diff", "");
    assert!(owners.status >= 400 && owners.body.contains(&state), "{}", owners.body);
    let mut refused = 0;
    for (what, answer) in ask_all(&server, &key) {
        assert!(!answer.body.contains(&state), "{what}: {}", answer.body);
        refused += usize::from(answer.body.contains("$FRACTAL_HOME"));
    }
    assert!(refused >= 4, "{refused} of them say what is wrong");
    // Nor does the journal, which a key may read.
    let audit = server.own("GET", "/v1/audit?denied=true", "").body;
    assert!(!audit.contains(&state), "{audit}");
}
