//! Shapes of `--json`, which programs read.

use crate::world::{World, able};
use serde_json::{Value, json};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default()
}

fn assert_has(value: &Value, names: &[&str]) {
    for name in names {
        assert!(keys(value).contains(name), "no `{name}` in {value}");
    }
}

#[test]
fn run_answers_with_one_object() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("a", "1\n");
    let script = "echo out; echo err >&2; echo 2 > a; echo > b; exit 7";
    let (status, reply) = world.json(&["run", "--name", "x", "--json", "--", "sh", "-c", script]);
    assert_eq!(status, 7);
    assert_has(
        &reply,
        &[
            "sandbox",
            "exit",
            "outcome",
            "stdout",
            "stderr",
            "truncated",
            "usage",
            "isolation",
            "changes",
        ],
    );
    assert_eq!(reply["sandbox"], "x");
    assert_eq!(reply["exit"], 7);
    assert_eq!(reply["outcome"], "exited");
    assert_eq!((&reply["stdout"], &reply["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!(reply["truncated"], false);
    assert_has(&reply["usage"], &["wall_ms", "cpu_ms", "memory_peak_bytes"]);
    assert!(
        ["clone", "masked", "rootless", "copied"]
            .contains(&reply["isolation"]["tier"].as_str().unwrap_or(""))
    );
    let project = world.project().canonicalize().expect("it exists").display().to_string();
    let changes: Vec<(&str, &str)> = reply["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| {
            (change["path"].as_str().expect("text"), change["kind"].as_str().expect("text"))
        })
        .collect();
    let (a, b) = (format!("{project}/a"), format!("{project}/b"));
    assert_eq!(changes, [(a.as_str(), "modified"), (b.as_str(), "added")]);
}

#[test]
fn every_outcome_has_its_word() {
    if !able() {
        return;
    }
    let world = World::new();
    let outcome = |args: &[&str]| {
        let args = [&["run", "--rm", "--json"], args].concat();
        world.json(&args).1["outcome"].clone()
    };
    assert_eq!(outcome(&["--", "false"]), "exited");
    assert_eq!(outcome(&["--", "sh", "-c", "kill -9 $$"]), "signalled");
    assert_eq!(outcome(&["--time", "200ms", "--", "sleep", "9"]), "timeout");
    assert_eq!(outcome(&["--output", "10k", "--", "yes"]), "output");
}

#[test]
fn list_show_diff_and_log_answer_with_their_fields() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&["run", "--name", "x", "--", "touch", "new"]);
    world.ok(&["fork", "x", "y"]);
    let (_, list) = world.json(&["list", "--json"]);
    let sandboxes = list["sandboxes"].as_array().expect("a list");
    assert_eq!(sandboxes.len(), 2);
    for info in sandboxes {
        assert_has(info, &["name", "parent", "base", "state", "created", "size_bytes", "policy"]);
    }
    assert_eq!(sandboxes[1]["parent"], "x");
    let (_, show) = world.json(&["show", "x", "--json"]);
    assert_has(&show, &["name", "snapshots", "children", "changes", "mounts"]);
    assert_eq!(show["children"], json!(["y"]));
    let (_, diff) = world.json(&["diff", "x", "--json"]);
    assert_eq!(diff["changes"][0]["kind"], "added");
    let (_, log) = world.json(&["log", "--json"]);
    assert_eq!(log["records"][0]["action"], "fork");
    assert_eq!(log["records"][1]["action"], "run");
    let (_, dropped) = world.json(&["drop", "x", "y", "--json"]);
    assert_eq!(dropped, json!({ "dropped": ["x", "y"] }));
}

#[test]
fn errors_are_objects_too() {
    let world = World::new();
    let (status, reply) = world.json(&["show", "nothing", "--json"]);
    assert_eq!(status, 6);
    assert_eq!(reply["error"]["code"], "not_found");
    assert_has(&reply["error"], &["code", "message", "hint"]);
    let (status, reply) = world.json(&["run", "--json", "--cpus", "-1", "--", "true"]);
    assert_eq!((status, &reply["error"]["code"]), (2, &json!("invalid")));
    let (_, reply) = world.json(&["doctor", "--json"]);
    assert_has(&reply, &["tier", "probes", "state"]);
    let (_, reply) = world.json(&["config", "show", "--json"]);
    assert_has(&reply["settings"][0], &["name", "value", "origin"]);
    assert_eq!(
        world.json(&["version", "--json"]).1,
        json!({ "version": env!("CARGO_PKG_VERSION") })
    );
}
