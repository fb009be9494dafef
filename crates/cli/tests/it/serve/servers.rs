//! Tools of other MCP servers, through the server and beside it.

use super::client::{Server, wait_until};
use crate::world::{World, able};
use serde_json::{Value, json};

/// A project with the engine's test server, which can be found from outside.
fn world() -> World {
    let world = World::new();
    world.write("server.py", include_str!("../../../../fractal/tests/it/tools/server.py"));
    let mark = mark(&world);
    let text =
        format!("[mcp.demo]\ncommand = [\"python3\", \"server.py\", \"good\", \"{mark}\"]\n");
    world.write("fractal.toml", &text);
    world.ok(&["-q", "run", "--name", "box", "--", "sh", "-c", "echo one > a"]);
    world
}

fn mark(world: &World) -> String {
    format!("mark={}", world.root().display())
}

fn is_at_work(world: &World) -> bool {
    let mark = mark(world);
    let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
    let mut lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(&mark))
}

fn count(server: &Server, key: &str) -> Value {
    let body = r#"{"sandbox":"box"}"#;
    let answer = server.with_key(key, "POST", "/v1/tools/demo_count", body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["output"]["content"][0]["text"].clone()
}

#[test]
fn keys_use_the_tools_of_servers_that_they_may() {
    if !able() {
        return;
    }
    let world = world();
    let server = Server::start(&world);
    let all = server.key(r#"{"role":"runner","tenant":"owner"}"#);
    let args = ["key", "create", "--role", "runner", "--tenant", "owner"];
    let some = world.ok(&[&args as &[&str], &["--tools", "demo_count,read"]].concat());
    let some = some.out.trim();
    let names = |key: &str| -> Vec<String> {
        let tools = server.with_key(key, "GET", "/v1/tools?sandbox=box", "").json();
        let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
        tools["tools"].as_array().into_iter().flatten().map(name).collect()
    };
    assert!(names(&all).contains(&"demo_write_file".to_owned()), "{:?}", names(&all));
    assert_eq!(names(some), ["demo_count", "read"]);
    assert_eq!([count(&server, &all), count(&server, &all)], ["1", "2"], "it is kept");
    assert_eq!(count(&server, some), "1", "another key, another server");
    let add = r#"{"input":{"a":1,"b":2},"sandbox":"box"}"#;
    server.with_key(some, "POST", "/v1/tools/demo_add", add).refusal(403, "denied");
    let wrong = r#"{"input":{"a":"x","b":2},"sandbox":"box"}"#;
    let wrong = server.with_key(&all, "POST", "/v1/tools/demo_add", wrong).refusal(400, "invalid");
    assert!(wrong.contains("/a: "), "{wrong}");
    let one = json!({ "tool": "demo_add", "input": { "a": 1, "b": 2 }, "sandbox": "box" });
    let calls = json!({ "calls": [one, { "tool": "demo_fail", "sandbox": "box" }, one] });
    let many = server.with_key(&all, "POST", "/v1/calls", &calls.to_string()).json();
    assert_eq!(many["results"][0]["output"], json!({ "sum": 3 }), "{many}");
    assert_eq!(many["results"][1]["error"]["code"], "failed");
    assert_eq!(many["results"][2]["output"], json!({ "sum": 3 }));
    assert!(is_at_work(&world));
    assert_eq!(server.stop(), 0);
    wait_until(|| !is_at_work(&world));
}

#[test]
fn a_kept_server_makes_room_for_another_process_and_dies_with_its_own() {
    if !able() {
        return;
    }
    let world = world();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"runner","tenant":"owner"}"#);
    assert_eq!([count(&server, &key), count(&server, &key)], ["1", "2"]);
    assert!(is_at_work(&world));
    let write = ["tool", "call", "write", "--in", "box", "path=b", "content=two"];
    world.ok(&[&["--no-server"] as &[&str], &write].concat());
    assert_eq!(count(&server, &key), "1", "it was ended, and started again");
    world.ok(&["--no-server", "promote", "box"]);
    let promoted = std::fs::read_to_string(world.project().join("b"));
    assert_eq!(promoted.expect("it is there"), "two");
    assert_eq!(count(&server, &key), "1");
    assert!(is_at_work(&world));
    server.kill();
    wait_until(|| !is_at_work(&world));
    world.ok(&["-q", "run", "--in", "box", "--", "true"]);
}
