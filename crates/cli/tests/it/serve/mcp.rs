//! Agents by the Model Context Protocol: what belongs to whom. That the
//! protocol itself is spoken right is for its own suite and the clients that
//! exist to say (`crates/server/tests/agents`).

use super::client::{Response, Server, wait_until};
use crate::world::{World, able};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

const BOTH: &str = "Accept: application/json, text/event-stream";
const TODAY: &str = "2026-07-28";
const BEFORE: &str = "2025-11-25";

/// One message by the port, with a key and further headers.
fn ask(server: &Server, key: &str, headers: &[&str], message: &Value) -> Response {
    let key = format!("Authorization: Bearer {key}");
    let mut all = vec![BOTH, &key];
    all.extend(headers);
    server.by_port("POST", "/mcp", &all, &message.to_string())
}

/// The answer, also where it came as an event.
fn result(response: &Response) -> Value {
    let line = response.body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
    serde_json::from_str(line.unwrap_or(&response.body)).unwrap_or_default()
}

/// A session of the revision that has them.
fn open(server: &Server, key: &str) -> String {
    let params = json!({ "protocolVersion": BEFORE, "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let answer = ask(server, key, &[], &hello);
    assert_eq!(result(&answer)["result"]["protocolVersion"], BEFORE, "{}", answer.body);
    let header = answer.headers.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = header.expect("a session").trim().to_owned();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(ask(server, key, &[&id(&session)], &ready).status, 202);
    session
}

fn id(session: &str) -> String {
    format!("Mcp-Session-Id: {session}")
}

fn call(tool: &str, input: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": input });
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params })
}

/// A call of today's revision, which has no sessions.
fn call_alone(server: &Server, key: &str, tool: &str, input: &Value) -> Value {
    send_alone(server, key, "tools/call", tool, &json!({ "name": tool, "arguments": input }))
}

fn send_alone(server: &Server, key: &str, method: &str, name: &str, params: &Value) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": TODAY,
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities":
            { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    let message = json!({ "jsonrpc": "2.0", "id": 3, "method": method, "params": params });
    let named = format!("Mcp-Name: {name}");
    let headers =
        [&format!("Mcp-Protocol-Version: {TODAY}"), &format!("Mcp-Method: {method}"), &named];
    let headers = headers.map(String::as_str);
    result(&ask(server, key, &headers, &message))
}

#[test]
fn a_session_is_worth_nothing_to_another_key() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let [one, two] = [(); 2].map(|()| server.key(r#"{"role":"operator"}"#));
    let session = id(&open(&server, &one));
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    assert_eq!(ask(&server, &one, &[&session], &list).status, 200);
    assert_eq!(ask(&server, &two, &[&session], &list).status, 404);
    assert_eq!(ask(&server, &one, &[&session[..session.len() - 1]], &list).status, 404);
    server.by_port("POST", "/mcp", &[BOTH], &list.to_string()).refusal(401, "denied");
}

#[test]
fn one_key_does_not_fill_the_memory_with_sessions() {
    let world = World::new();
    let server = Server::start(&world);
    let [one, two] = [(); 2].map(|()| server.key(r#"{"role":"operator"}"#));
    let first = id(&open(&server, &one));
    for _ in 1..256 {
        open(&server, &one);
    }
    let params = json!({ "protocolVersion": BEFORE, "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let refused = ask(&server, &one, &[], &hello);
    assert!(refused.refusal(429, "busy").contains("256 sessions"), "{}", refused.body);
    open(&server, &two);
    // What is open goes on, and what was ended makes room.
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    assert_eq!(ask(&server, &one, &[&first], &list).status, 200);
    let bearer = format!("Authorization: Bearer {one}");
    let ended = server.by_port("DELETE", "/mcp", &[BOTH, &bearer, &first], "");
    assert!((200..300).contains(&ended.status), "{} {}", ended.status, ended.body);
    wait_until(|| ask(&server, &one, &[], &hello).status == 200);
}

#[test]
fn an_agent_lives_in_one_sandbox_and_another_one_elsewhere() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"operator","tenant":"owner"}"#);
    let sessions = [(); 2].map(|()| id(&open(&server, &key)));
    for session in &sessions {
        let write = call("run", &json!({ "command": "ls seen; echo > seen" }));
        let first = result(&ask(&server, &key, &[session], &write));
        assert_ne!(first["result"]["structuredContent"]["stdout"], "seen\n", "{first}");
        let again = result(&ask(&server, &key, &[session], &write));
        assert_eq!(again["result"]["structuredContent"]["stdout"], "seen\n", "{again}");
    }
    // Without sessions, a key is an agent.
    let look = json!({ "command": "ls seen; echo > seen" });
    let first = call_alone(&server, &key, "run", &look);
    assert_eq!(first["result"]["structuredContent"]["stdout"], "", "{first}");
    let again = call_alone(&server, &key, "run", &look);
    assert_eq!(again["result"]["structuredContent"]["stdout"], "seen\n", "{again}");
    assert!(!world.project().join("seen").exists());
}

#[test]
fn an_agent_whose_sandbox_was_dropped_is_told_and_gets_another() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"operator"}"#);
    let run = json!({ "command": "echo hello" });
    call_alone(&server, &key, "run", &run);
    let list = server.with_key(&key, "GET", "/v1/sandboxes", "").json();
    let name = list["sandboxes"][0]["name"].as_str().expect("a sandbox").to_owned();
    let dropped = server.with_key(&key, "DELETE", &format!("/v1/sandboxes/{name}?force=true"), "");
    assert_eq!(dropped.status, 200, "{}", dropped.body);
    let told = call_alone(&server, &key, "run", &run);
    assert!(told.to_string().contains("call again"), "{told}");
    let again = call_alone(&server, &key, "run", &run);
    assert_eq!(again["result"]["structuredContent"]["stdout"], "hello\n", "{again}");
}

#[test]
fn a_long_call_becomes_a_task_that_only_its_own_key_can_ask_for() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let [one, two] = [(); 2].map(|()| server.key(r#"{"role":"operator"}"#));
    let begun = call_alone(&server, &one, "run", &json!({ "command": "sleep 3600" }));
    let task = begun["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
    let params = json!({ "taskId": task });
    let get = |key: &str| send_alone(&server, key, "tasks/get", &task, &params);
    assert_eq!(get(&one)["result"]["status"], "working");
    assert_eq!(get(&two)["error"]["code"], -32602, "{}", get(&two));
    send_alone(&server, &two, "tasks/cancel", &task, &params);
    assert_eq!(get(&one)["result"]["status"], "working");
    send_alone(&server, &one, "tasks/cancel", &task, &params);
    wait_until(|| get(&one)["result"]["status"] == "cancelled");
}

#[test]
fn a_key_bounds_an_agent_on_standard_input() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"viewer"}"#);
    let mut agent = world
        .command(env!("CARGO_BIN_EXE_fractal"))
        .arg("mcp")
        .env("FRACTAL_KEY", key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let params = json!({ "protocolVersion": BEFORE, "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } });
    let messages = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        call("run", &json!({ "command": "echo hello" })),
    ];
    let mut input = agent.stdin.take().expect("it is piped");
    for message in messages {
        writeln!(input, "{message}").expect("it listens");
    }
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(agent.stdout.take().expect("it is piped")));
    let answers: Vec<Value> = lines
        .by_ref()
        .take(2)
        .map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON"))
        .collect();
    drop(input);
    assert!(agent.wait().expect("it ends").success());
    assert_eq!(answers[1]["result"]["isError"], true, "{answers:?}");
    assert!(answers[1].to_string().contains("denied"), "{answers:?}");
}

#[test]
fn an_agent_asks_what_was_tried_before_it_has_a_sandbox() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let [one, two] = ["one", "two"]
        .map(|tenant| server.key(&json!({ "role": "operator", "tenant": tenant }).to_string()));
    let said = |key: &str, tool: &str, input: Value| {
        call_alone(&server, key, tool, &input)["result"]["structuredContent"].clone()
    };
    let none = said(&one, "recall", json!({ "question": "does make test work?" }));
    assert_eq!(none["hits"], json!([]), "{none}");
    let noted = said(&one, "note", json!({ "title": "make test needs a database" }));
    assert_eq!((&noted["kind"], &noted["root"]), (&json!("insight"), &json!("notes")), "{noted}");
    let listed = server.with_key(&one, "GET", "/v1/sandboxes", "").json();
    assert_eq!(listed["sandboxes"], json!([]), "nothing was made for it");
    let ran = said(&one, "run", json!({ "command": "make test || true", "known": true }));
    let known = ran["known"][0].as_str().unwrap_or_default();
    assert!(known.starts_with("insight: make test needs a database"), "{ran}");
    // Who has a sandbox writes from there.
    said(&one, "note", json!({ "title": "written in place" }));
    let name = ran["sandbox"].as_str().expect("a sandbox");
    let here = server.with_key(&one, "GET", &format!("/v1/find?q=place&sandbox={name}"), "").json();
    assert_eq!(here["hits"][0]["title"], "written in place", "{here}");
    let ran = said(&two, "run", json!({ "command": "make test || true", "known": true }));
    assert_eq!(ran["known"], json!([]), "{ran}");
    let page = server.own("GET", "/metrics", "").body;
    for line in
        ["fractal_notes_total{outcome=\"ok\"} 2", "fractal_questions_total{outcome=\"nothing\"} 1"]
    {
        assert!(page.lines().any(|one| one == line), "{line} is not in\n{page}");
    }
}
