//! Any verb by one route, and what the owner takes along.

use super::client::Server;
use crate::world::{World, able};
use serde_json::json;

fn apply(server: &Server, headers: &[&str], action: &serde_json::Value) -> super::client::Response {
    server.own_with("POST", "/v1/apply", headers, &action.to_string())
}

#[test]
fn any_verb_is_carried_out_as_an_action() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let run = json!({ "action": "run", "command": ["sh", "-c", "cat; echo hi > f"],
                      "name": "a", "stdin": "in" });
    let ran = apply(&server, &[], &run);
    assert_eq!(ran.status, 200, "{}", ran.body);
    assert_eq!(ran.json()["stdout"], "in");
    let forked = apply(&server, &[], &json!({ "action": "fork", "sandbox": "a", "name": "b" }));
    assert_eq!(forked.json()["parent"], "a", "{}", forked.body);
    let listed = apply(&server, &[], &json!({ "action": "list" })).json();
    assert_eq!(listed["sandboxes"].as_array().map(Vec::len), Some(2), "{listed}");
    apply(&server, &[], &json!({ "action": "show", "sandbox": "none" })).refusal(404, "not_found");
    for bad in [
        json!({}),
        json!([]),
        json!({ "action": "fly" }),
        json!({ "action": "show", "sandbox": 1 }),
    ] {
        apply(&server, &[], &bad).refusal(400, "invalid");
    }
    let part = json!({ "action": "run", "command": ["true"], "part": "score" });
    apply(&server, &[], &part).refusal(400, "invalid");
}

#[test]
fn the_owner_takes_directory_name_and_environment_along() {
    if !able() {
        return;
    }
    let world = World::new();
    let other = world.root().join("other");
    std::fs::create_dir(&other).expect("a directory");
    let server = Server::start(&world);
    let directory = format!("Fractal-Directory: {}", other.display());
    let variables = "Fractal-Environment: PATH=/usr/bin:/bin%00LANG=de%20%25%00";
    let headers = [directory.as_str(), "Fractal-Who: ann", variables];
    let run = json!({ "action": "run", "command": ["sh", "-c", "pwd; echo \"$LANG\""],
                      "discard": true });
    let ran = apply(&server, &headers, &run);
    assert_eq!(ran.json()["stdout"], format!("{}\nde %\n", other.display()), "{}", ran.body);
    let log = apply(&server, &headers, &json!({ "action": "log", "here": true })).json();
    assert_eq!(log["records"][0]["who"], "ann", "{log}");
    for bad in ["Fractal-Who: not a name", "Fractal-Environment: A", "Fractal-Settings: x"] {
        apply(&server, &[bad], &json!({ "action": "list" })).refusal(400, "invalid");
    }
}

#[test]
fn a_key_takes_nothing_along_and_names_no_path_of_the_host() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let key = server.key(r#"{"role":"operator"}"#);
    let bearer = format!("Authorization: Bearer {key}");
    let list = json!({ "action": "list" });
    let all = [
        "Fractal-Who: ann",
        "Fractal-Directory: /",
        "Fractal-Environment: A=b%00",
        "Fractal-Settings: /x",
    ];
    for header in all {
        apply(&server, &[&bearer, header], &list).refusal(403, "denied");
    }
    assert_eq!(apply(&server, &[&bearer], &list).status, 200);
    let made = json!({ "action": "run", "command": ["true"], "name": "a" });
    assert_eq!(apply(&server, &[&bearer], &made).status, 200);
    let target = world.root().join("out.tar.zst");
    for action in [
        json!({ "action": "export", "sandbox": "a", "to": target }),
        json!({ "action": "copy", "from": "a:/etc/hostname", "to": target }),
        json!({ "action": "copy", "from": "/etc/hostname", "to": "a:/tmp/x" }),
        json!({ "action": "import", "from": "/etc/hostname", "name": "b" }),
        json!({ "action": "volume", "volume": "import", "name": "v", "from": "/etc" }),
        json!({ "action": "key", "key": "list" }),
    ] {
        let answer = apply(&server, &[&bearer], &action);
        assert_eq!(answer.status, 403, "{action}: {}", answer.body);
    }
    assert!(!target.exists());
}

#[test]
fn a_broken_setting_stands_in_the_way_of_what_acts_on_it_alone() {
    let world = World::new();
    let server = Server::start(&world);
    world.write("fractal.toml", "limits = 1\n");
    assert_eq!(apply(&server, &[], &json!({ "action": "list" })).status, 200);
    let run = json!({ "action": "run", "command": ["true"] });
    apply(&server, &[], &run).refusal(400, "invalid");
}
