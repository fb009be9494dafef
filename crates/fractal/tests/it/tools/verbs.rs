//! The verbs as tools, and who may use which.

use super::{call, records};
use crate::world::World;
use fractal::model::{Reply, ToolCall, Verb};
use fractal::{Action, Caller, Code, Config, Policy};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn an_agent_works_from_run_to_promote() {
    let world = World::new();
    std::fs::write(world.project().join("f"), "one\n").unwrap();
    let ran = call(
        &world,
        "",
        "run",
        json!({ "command": "cat; echo two >> f", "stdin": "in", "name": "s" }),
    )
    .unwrap();
    assert_eq!(
        (&ran["stdout"], &ran["exit"], &ran["sandbox"]),
        (&json!("in"), &json!(0), &json!("s"))
    );
    let failed =
        call(&world, "s", "run", json!({ "command": "echo oh >&2; exit 3", "discard": true }))
            .unwrap();
    assert_eq!((&failed["exit"], &failed["stderr"]), (&json!(3), &json!("oh\n")));
    call(&world, "s", "snapshot", json!({ "name": "good" })).unwrap();
    call(&world, "s", "run", json!({ "command": "rm f" })).unwrap();
    call(&world, "s", "rollback", json!({ "to": "good" })).unwrap();
    let child = call(&world, "s", "fork", json!({ "name": "c" })).unwrap();
    assert_eq!((&child["sandbox"], &child["parent"]), (&json!("c"), &json!("s")));
    call(&world, "s", "edit", json!({ "sandbox": "c", "path": "f", "old": "two", "new": "three" }))
        .unwrap();
    let up = call(&world, "c", "promote", json!({})).unwrap();
    assert_eq!((&up["verdict"], &up["stage"]), (&json!("applied"), &json!("s")), "{up}");
    let diff = call(&world, "s", "diff", json!({ "patch": true })).unwrap();
    assert_eq!(diff["total"], 1);
    assert!(diff["patch"].as_str().unwrap().contains("+three"), "{diff}");
    let real = call(&world, "s", "promote", json!({ "dry_run": true })).unwrap();
    assert_eq!(real["verdict"], "planned", "{real}");
    assert_eq!(std::fs::read_to_string(world.project().join("f")).unwrap(), "one\n");
    let told = records(&world);
    assert_eq!(told.len(), 10, "{told:?}");
    assert!(told.iter().all(|(_, outcome, tries)| outcome == "done" && *tries == 1));
}

#[test]
fn what_was_learned_comes_along_with_a_run_that_asks_for_it() {
    let world = World::new();
    world.make("s", "true > f").unwrap();
    let ran = call(&world, "s", "run", json!({ "command": "tick tock", "known": true })).unwrap();
    assert_eq!(ran["known"], json!([]), "{ran}");
    let failure = json!({ "title": "tick tock never ends", "kind": "failure", "tags": ["time"],
        "body": "Seen twice.", "outcome": "failed" });
    let noted = call(&world, "s", "note", failure).unwrap();
    let fix = json!({ "title": "tick needs a battery",
        "relations": [{ "type": "fixes", "to": noted["id"] }] });
    call(&world, "", "note", fix).unwrap();
    let found = call(&world, "", "recall", json!({ "question": "tick tock" })).unwrap();
    let titles: Vec<_> = found["hits"].as_array().unwrap().iter().map(|it| &it["title"]).collect();
    assert_eq!(titles, ["tick tock never ends", "tick needs a battery"], "{found}");
    let only = json!({ "question": "tick", "kinds": ["failure"], "tags": ["time"], "limit": 1 });
    let only = call(&world, "", "recall", only).unwrap();
    assert_eq!(only["hits"][0]["outcome"], "failed", "{only}");
    let ran = call(&world, "s", "run", json!({ "command": "tick tock", "known": true })).unwrap();
    let first = ran["known"][0].as_str().unwrap();
    assert!(first.starts_with("failure: tick tock never ends ("), "{ran}");
    let quiet = call(&world, "s", "run", json!({ "command": "tick tock" })).unwrap();
    assert!(quiet.get("known").is_none(), "{quiet}");
}

#[test]
fn several_ways_are_tried_and_ranked() {
    let world = World::new();
    let input = json!({
        "attempts": [
            { "name": "bad", "command": "echo no > f" },
            { "name": "good", "command": "echo yes > f" },
        ],
        "checks": [{ "name": "says-yes", "command": "grep -q yes f" }],
    });
    let tried = call(&world, "", "try", input).unwrap();
    assert_eq!(tried["winner"], "good", "{tried}");
    let sandbox = tried["attempts"][0]["sandbox"].as_str().unwrap();
    assert_eq!(call(&world, sandbox, "read", json!({ "path": "f" })).unwrap()["content"], "yes\n");
}

#[test]
fn inputs_of_verbs_are_checked_by_field() {
    let world = World::new();
    world.make("s", "true > f").unwrap();
    let check = |tool: &str, input: Value, words: &str| {
        let error = call(&world, "s", tool, input).expect_err(tool);
        assert!(error.code == Code::Invalid && error.message.contains(words), "{tool}: {error}");
    };
    check("read", json!({}), "/path: \"path\" is a required property");
    check("read", json!({ "path": "f", "ofset": 3 }), "/ofset");
    check("read", json!({ "path": "f", "offset": 0 }), "/offset");
    check("run", json!({ "command": ["ls"] }), "/command: it is not of type \"string\"");
    check("edit", json!({ "path": "f", "old": "", "new": 3 }), "/new");
    check("find", json!([]), "the whole");
}

#[test]
fn templates_and_policies_say_which_tools_there_are() {
    let mut world = World::new();
    let text = "template = \"narrow\"\n[templates.narrow]\ntools = [\"read\", \"run\"]\n";
    std::fs::write(world.project().join("fractal.toml"), text).unwrap();
    world.caller.config = Config::load(&world.project(), None).unwrap();
    let names = |caller: &Caller, sandbox: Option<&str>| -> Vec<String> {
        let action = Action::Tools { sandbox: sandbox.map(str::to_owned) };
        let Ok(Reply::Tools(reply)) = world.engine.apply(caller, action) else { panic!("tools") };
        reply.tools.into_iter().map(|tool| tool.name).collect()
    };
    assert_eq!(names(&world.caller, None), ["read", "run"]);
    let ran = call(&world, "", "run", json!({ "command": "echo 1 > f", "name": "s" })).unwrap();
    assert_eq!(ran["exit"], 0);
    world.fork("s", "c", &Policy::default()).unwrap();
    assert_eq!(names(&world.caller, Some("c")), ["read", "run"], "a child is never wider");
    let denied = call(&world, "s", "write", json!({ "path": "f", "content": "2" })).unwrap_err();
    assert_eq!(denied.code, Code::Denied);
    let mut key = world.caller.clone();
    key.policy.tools = Some(BTreeSet::from(["read".to_owned(), "diff".to_owned()]));
    assert_eq!(names(&key, Some("s")), ["read"]);
}

#[test]
fn a_tool_needs_the_right_to_its_verb() {
    let world = World::new();
    world.make("s", "true > f").unwrap();
    let may = |verbs: &[Verb], tool: &str, input: Value| {
        let mut caller = world.caller.clone();
        caller.policy.allow = Some(verbs.iter().copied().collect());
        let call = ToolCall { tool: tool.into(), input, sandbox: Some("s".into()), time_ms: None };
        world
            .engine
            .tools()
            .call(&world.engine, &caller, &call)
            .result()
            .map_err(|error| error.code)
    };
    let read = || json!({ "path": "f" });
    assert!(may(&[Verb::Copy], "read", read()).is_ok());
    assert_eq!(may(&[Verb::Diff, Verb::Tool], "read", read()), Err(Code::Denied));
    assert_eq!(may(&[Verb::Copy], "run", json!({ "command": "true" })), Err(Code::Denied));
    assert_eq!(may(&[Verb::Run], "promote", json!({})), Err(Code::Denied));
}
