//! Every verb over HTTP, and the description of it.

use super::client::Server;
use crate::world::{World, able};
use serde_json::{Value, json};

const RUN: &str = r#"{"name":"a","command":["sh","-c","echo out; echo new > b.txt"]}"#;

#[test]
fn a_change_is_made_looked_at_promoted_and_taken_back() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("a.txt", "one\n");
    let server = Server::start(&world);
    let ran = server.own("POST", "/v1/run", RUN).json();
    assert_eq!((&ran["stdout"], &ran["exit"]), (&json!("out\n"), &json!(0)), "{ran}");
    assert!(!world.project().join("b.txt").exists());
    let forked = server.own("POST", "/v1/sandboxes/a/fork", r#"{"name":"b"}"#);
    assert_eq!((forked.status, &forked.json()["parent"]), (201, &json!("a")));
    let diff = server.own("GET", "/v1/sandboxes/a/diff", "").json();
    assert_eq!(diff["changes"][0]["kind"], "added", "{diff}");
    let patch = server.own("GET", "/v1/sandboxes/a/patch", "").body;
    assert!(patch.contains("+new"), "{patch}");
    let promoted = server.own("POST", "/v1/sandboxes/a/promote", "").json();
    assert_eq!(promoted["verdict"], "applied", "{promoted}");
    assert!(world.project().join("b.txt").exists());
    let undone = server.own("POST", "/v1/undo", "{}").json();
    assert_eq!(undone["verdict"], "applied", "{undone}");
    assert!(!world.project().join("b.txt").exists());
    let dropped = server.own("DELETE", "/v1/sandboxes/b", "").json();
    assert_eq!(dropped["dropped"], json!(["b"]));
    server.own("GET", "/v1/sandboxes/b", "").refusal(404, "not_found");
    let usage = server.own("GET", "/v1/sandboxes/a/usage", "").json();
    assert_eq!(usage["runs"], 1, "{usage}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn snapshots_rollbacks_and_attempts_work_through_the_door() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let made = server.own("POST", "/v1/sandboxes", r#"{"name":"s"}"#);
    assert_eq!((made.status, &made.json()["state"]), (201, &json!("idle")), "{}", made.body);
    let write = |text: &str| {
        let command = json!({ "command": ["sh", "-c", format!("echo {text} > f")] });
        let ran = server.own("POST", "/v1/sandboxes/s/run", &command.to_string());
        assert_eq!(ran.status, 200, "{}", ran.body);
    };
    write("one");
    assert_eq!(server.own("POST", "/v1/sandboxes/s/snapshot", r#"{"name":"first"}"#).status, 201);
    write("two");
    let back = server.own("POST", "/v1/sandboxes/s/rollback", r#"{"to":"first"}"#);
    assert_eq!(back.status, 200, "{}", back.body);
    let read = json!({ "command": ["cat", "f"], "sandbox": "s", "discard": true }).to_string();
    assert_eq!(server.own("POST", "/v1/run", &read).json()["stdout"], "one\n");
    let attempts = json!({
        "attempts": [
            { "name": "good", "command": ["sh", "-c", "echo yes > answer"] },
            { "name": "bad", "command": ["sh", "-c", "echo no > answer"] },
        ],
        "checks": [{ "name": "yes", "command": "grep -q yes answer" }],
    });
    let tried = server.own("POST", "/v1/try", &attempts.to_string());
    assert_eq!(tried.json()["winner"], "good", "{}", tried.body);
}

#[test]
fn a_run_can_be_followed_while_it_happens() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let body =
        r#"{"command":["sh","-c","cat; echo err >&2; exit 3"],"stdin":"h\u00e9","discard":true}"#;
    let answer = server.own_with("POST", "/v1/run", &["Accept: text/event-stream"], body);
    assert!(answer.headers.contains("text/event-stream"), "{}", answer.headers);
    let text = &answer.body;
    assert!(text.contains("event: stdout\ndata: {\"text\":\"hé\"}"), "{text}");
    assert!(text.contains("event: stderr\ndata: {\"text\":\"err\\n\"}"), "{text}");
    let (_, last) = text.split_once("event: result\ndata: ").expect("a result");
    let last: Value = serde_json::from_str(last.trim()).expect("an object");
    assert_eq!(last["exit"], 3);
}

#[test]
fn lists_come_in_pages() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    for name in ["p1", "p2", "p3"] {
        let body = json!({ "name": name }).to_string();
        assert_eq!(server.own("POST", "/v1/sandboxes", &body).status, 201);
    }
    let mut names = Vec::new();
    let mut after = String::new();
    loop {
        let page = server.own("GET", &format!("/v1/sandboxes?limit=2{after}"), "").json();
        let list = page["sandboxes"].as_array().expect("a list");
        names.extend(list.iter().filter_map(|one| one["name"].as_str().map(str::to_owned)));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(names, ["p1", "p2", "p3"]);
    // A key for one sandbox has pages of what was forked below it alone.
    for (parent, name) in [("p1", "c1"), ("p2", "other"), ("c1", "c2"), ("p1", "c3")] {
        let body = json!({ "name": name }).to_string();
        assert_eq!(server.own("POST", &format!("/v1/sandboxes/{parent}/fork"), &body).status, 201);
    }
    let key = server.key(r#"{"role":"runner","scope":"p1"}"#);
    let page = |more: &str| {
        let path = format!("/v1/sandboxes?limit=2{more}");
        let page = server.with_key(&key, "GET", &path, "").json();
        let list = page["sandboxes"].as_array().expect("a list").clone();
        let names: Vec<Value> = list.iter().map(|one| one["name"].clone()).collect();
        (names, page["next"].as_str().map(str::to_owned))
    };
    let (first, next) = page("");
    let next = next.expect("there are more");
    let (second, last) = page(&format!("&after={next}"));
    assert_eq!((first, second), (vec![json!("p1"), json!("c1")], vec![json!("c2"), json!("c3")]));
    assert_eq!(last, None, "a page that ends with the list is the last");
    server.own("GET", "/v1/sandboxes?after=nonsense", "").refusal(400, "invalid");
    server.own("GET", "/v1/sandboxes?limit=0", "").refusal(400, "invalid");
    server.own("GET", "/v1/sandboxes?limt=5", "").refusal(400, "invalid");
}

#[test]
fn every_described_path_is_there() {
    let world = World::new();
    let server = Server::start(&world);
    let document = server.own("GET", "/v1/openapi.json", "").json();
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() > 30, "{}", paths.len());
    for (path, methods) in paths {
        for method in methods.as_object().expect("methods").keys() {
            if path == "/v1/events" {
                continue;
            }
            let path = path.replace("{sandbox}", "none").replace("{volume}", "none");
            let path = path.replace("{key}", "none").replace("{tool}", "none");
            let path = path.replace("{skunk}", "none");
            let answer = server.own(&method.to_uppercase(), &path, "");
            let nowhere = answer.body.contains("nothing at this path");
            assert!(!nowhere && answer.status != 405, "{method} {path}: {}", answer.body);
            assert!(answer.status < 500, "{method} {path}: {}", answer.body);
        }
    }
    assert!(server.own("GET", "/docs", "").body.contains("openapi.json"));
}

#[cfg(feature = "tools")]
#[test]
fn tools_are_listed_and_called_one_by_one_and_together() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("a.txt", "one\n");
    let server = Server::start(&world);
    let tools = server.own("GET", "/v1/tools", "").json();
    let has = |name: &str| {
        tools["tools"].as_array().into_iter().flatten().any(|tool| tool["name"] == name)
    };
    assert!(has("read") && has("run") && has("promote"), "{tools}");
    assert_eq!(server.own("POST", "/v1/sandboxes", r#"{"name":"t"}"#).status, 201);
    let call = r#"{"sandbox":"t","input":{"path":"a.txt"}}"#;
    let read = server.own("POST", "/v1/tools/read", call);
    assert!(read.body.contains("one"), "{}", read.body);
    let calls = json!({ "calls": [
        { "tool": "read", "sandbox": "t", "input": { "path": "a.txt" } },
        { "tool": "read", "sandbox": "t", "input": { "path": 5 } },
        { "tool": "nothing", "input": {} },
    ]});
    let results = server.own("POST", "/v1/calls", &calls.to_string()).json();
    let results = results["results"].as_array().expect("results").clone();
    assert_eq!(results.len(), 3);
    assert!(results[0]["output"].is_object(), "{results:?}");
    assert_eq!(results[1]["error"]["code"], "invalid", "{results:?}");
    assert_eq!(results[2]["error"]["code"], "not_found", "{results:?}");
}

#[test]
fn the_numbers_count_what_happened() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let body = r#"{"command":["sleep","9"],"discard":true,"ask":{"limits":{"time_ms":100}}}"#;
    assert_eq!(server.own("POST", "/v1/run", body).json()["outcome"], "timeout");
    let page = server.own("GET", "/metrics", "").body;
    for line in [
        "fractal_runs_total{outcome=\"timeout\"} 1",
        "fractal_limits_total{limit=\"timeout\"} 1",
        "fractal_requests_total{method=\"post\",route=\"/v1/run\",status=\"200\"} 1",
        "fractal_run_start_seconds_count 1",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}

#[cfg(feature = "tools")]
#[test]
fn runs_promotions_and_calls_are_counted_whichever_verb_they_came_with() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("fractal.toml", "");
    let tool = world.project().join("tools/say");
    std::fs::create_dir_all(&tool).expect("it is made");
    let described = "name = \"say\"\ndescription = \"Says so.\"\ncommand = [\"echo\", \"{}\"]\n\
                     input = { type = \"object\" }\n";
    std::fs::write(tool.join("tool.toml"), described).expect("it is written");
    let server = Server::start(&world);
    let tried = json!({ "attempts": [
        { "name": "quick", "command": ["true"] },
        { "name": "slow", "command": ["sleep", "9"] },
    ], "run": { "command": [], "ask": { "limits": { "time_ms": 200 } } } });
    let tried = server.own("POST", "/v1/try", &tried.to_string());
    assert_eq!(tried.status, 200, "{}", tried.body);
    // Looking at them again is no further run.
    let both = tried.json()["attempts"].as_array().expect("two").clone();
    let name = |attempt: &Value| attempt["sandbox"].as_str().expect("it was kept").to_owned();
    let [quick, slow] = [name(&both[0]), name(&both[1])];
    let compared =
        server.own("POST", "/v1/compare", &json!({ "sandboxes": [quick, slow] }).to_string());
    assert_eq!(compared.status, 200, "{}", compared.body);
    let guard = r#"{"run":{"command":["sh","-c","echo new > b.txt"]}}"#;
    let guarded = server.own("POST", "/v1/guard", guard);
    assert_eq!(guarded.json()["promoted"], true, "{}", guarded.body);
    assert_eq!(server.own("POST", "/v1/undo", "{}").json()["verdict"], "applied");
    let promoted = server.own("POST", &format!("/v1/sandboxes/{slow}/promote"), "");
    assert_eq!(promoted.status, 200, "{}", promoted.body);
    let verdict = promoted.json()["verdict"].as_str().expect("a word").to_owned();
    let calls = json!({ "calls": [
        { "tool": "find", "sandbox": quick, "input": { "pattern": "x" } },
        { "tool": "read", "sandbox": quick, "input": { "path": 5 } },
        { "tool": "say", "sandbox": quick, "input": {} },
        { "tool": "nothing", "sandbox": quick, "input": {} },
    ]});
    let called = server.own("POST", "/v1/calls", &calls.to_string());
    let missing = json!({ "sandbox": quick, "input": { "path": "absent" } }).to_string();
    server.own("POST", "/v1/tools/read", &missing).refusal(404, "not_found");
    let page = server.own("GET", "/metrics", "").body;
    for line in [
        "fractal_runs_total{outcome=\"exited\"} 2",
        "fractal_runs_total{outcome=\"timeout\"} 1",
        "fractal_limits_total{limit=\"timeout\"} 1",
        "fractal_promotions_total{verdict=\"applied\"} 1",
        &format!("fractal_promotions_total{{verdict=\"{verdict}\"}} 1"),
        "fractal_tool_calls_total{kind=\"verb\",outcome=\"ok\"} 1",
        "fractal_tool_calls_total{kind=\"verb\",outcome=\"invalid\"} 1",
        "fractal_tool_calls_total{kind=\"verb\",outcome=\"not_found\"} 1",
        "fractal_tool_calls_total{kind=\"program\",outcome=\"ok\"} 1",
        "fractal_tool_calls_total{kind=\"unknown\",outcome=\"not_found\"} 1",
        "fractal_sandboxes{state=\"running\"} 0",
    ] {
        assert!(page.lines().any(|one| one == line), "{line} is not in\n{page}{}", called.body);
    }
}
