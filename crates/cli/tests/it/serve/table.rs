//! Every operation that the server describes × every role × a sandbox of
//! somebody else: one table. An operation that is not in it fails the test.

use super::client::Server;
use crate::world::{World, able};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What everybody who has a key may ask.
const FREE: &str = "";
/// What tells of everybody's sandboxes, or of the project: no key of one
/// tenant may ask.
const WHOLE: &str = "*";

/// What asks for a WebSocket, beside the request.
const UPGRADE: &[&str] = &[
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
];

/// Method, path, body (or BYTES, or UPGRADE for a WebSocket), and the verb that a key needs. SANDBOX stands for one
/// that the key cannot see, or for one that does not exist.
const OPERATIONS: &[(&str, &str, &str, &str)] = &[
    ("GET", "/docs", "", FREE),
    ("GET", "/healthz", "", FREE),
    ("GET", "/readyz", "", FREE),
    ("GET", "/metrics", "", WHOLE),
    ("GET", "/v1/openapi.json", "", FREE),
    ("GET", "/v1/version", "", FREE),
    ("POST", "/v1/apply", r#"{"action":"show","sandbox":"SANDBOX"}"#, "show"),
    ("POST", "/v1/approve", r#"{"sandbox":"SANDBOX"}"#, "approve"),
    ("POST", "/v1/reject", r#"{"sandbox":"SANDBOX"}"#, "reject"),
    ("GET", "/v1/audit", "", "audit"),
    ("GET", "/v1/audit/verify", "", WHOLE),
    (
        "POST",
        "/v1/calls",
        r#"{"calls":[{"tool":"read","input":{"path":"a"},"sandbox":"SANDBOX"}]}"#,
        "tool",
    ),
    ("POST", "/v1/compare", r#"{"sandboxes":["SANDBOX"]}"#, "compare"),
    ("GET", "/v1/events", "", "audit"),
    ("GET", "/v1/find?q=anything", "", "find"),
    ("POST", "/v1/find", r#"{"text":"anything"}"#, "find"),
    ("POST", "/v1/gc", r#"{"dry_run":true}"#, "gc"),
    ("GET", "/v1/graph", "", "find"),
    ("POST", "/v1/guard", r#"{"run":{"command":["true"]}}"#, "guard"),
    ("POST", "/v1/import", "BYTES", "import"),
    ("POST", "/v1/input/SANDBOX", "BYTES", "run"),
    ("GET", "/v1/index", "", "find"),
    ("POST", "/v1/index/embed", "", "index"),
    ("GET", "/v1/index/lint", "", "find"),
    ("POST", "/v1/index/rebuild", "", "index"),
    ("GET", "/v1/index/verify", "", "find"),
    ("GET", "/v1/keys", "", "key"),
    ("POST", "/v1/keys", r#"{"role":"viewer"}"#, "key"),
    ("GET", "/v1/keys/SANDBOX", "", "key"),
    ("DELETE", "/v1/keys/SANDBOX", "", "key"),
    ("POST", "/v1/keys/SANDBOX/rotate", "{}", "key"),
    ("GET", "/v1/learned", "", "find"),
    ("POST", "/v1/notes", r#"{"title":"written by ROLE"}"#, "note"),
    ("GET", "/v1/roles", "", "key"),
    ("POST", "/v1/run", r#"{"command":["true"],"sandbox":"SANDBOX"}"#, "run"),
    ("GET", "/v1/sandboxes", "", "list"),
    ("POST", "/v1/sandboxes", "{}", "fork"),
    ("GET", "/v1/sandboxes/SANDBOX", "", "show"),
    ("DELETE", "/v1/sandboxes/SANDBOX", "", "drop"),
    ("GET", "/v1/sandboxes/SANDBOX/diff", "", "diff"),
    ("GET", "/v1/sandboxes/SANDBOX/export", "", "export"),
    ("GET", "/v1/sandboxes/SANDBOX/files", "", "diff"),
    ("GET", "/v1/sandboxes/SANDBOX/files/FILE", "", "diff"),
    ("PUT", "/v1/sandboxes/SANDBOX/files/FILE", "BYTES", "copy"),
    ("DELETE", "/v1/sandboxes/SANDBOX/files/FILE", "", "copy"),
    ("POST", "/v1/sandboxes/SANDBOX/fork", "{}", "fork"),
    ("GET", "/v1/sandboxes/SANDBOX/log", "", "log"),
    ("GET", "/v1/sandboxes/SANDBOX/patch", "", "diff"),
    ("POST", "/v1/sandboxes/SANDBOX/promote", "{}", "promote"),
    ("POST", "/v1/sandboxes/SANDBOX/rollback", r#"{"to":"x"}"#, "rollback"),
    ("POST", "/v1/sandboxes/SANDBOX/run", r#"{"command":["true"]}"#, "run"),
    ("POST", "/v1/sandboxes/SANDBOX/snapshot", "{}", "snapshot"),
    ("POST", "/v1/sandboxes/SANDBOX/stop", "", "run"),
    ("POST", "/v1/sandboxes/SANDBOX/update", "{}", "update"),
    ("GET", "/v1/sandboxes/SANDBOX/terminal", "UPGRADE", "run"),
    ("GET", "/v1/sandboxes/SANDBOX/usage", "", "log"),
    ("GET", "/v1/skunks", "", WHOLE),
    ("POST", "/v1/skunks", r#"{"title":"a problem","with":"empty"}"#, WHOLE),
    ("GET", "/v1/skunks/SANDBOX", "", WHOLE),
    ("POST", "/v1/skunks/SANDBOX/archive", "{}", WHOLE),
    ("POST", "/v1/skunks/SANDBOX/extract", "{}", WHOLE),
    ("GET", "/v1/stages", "", "stages"),
    ("GET", "/v1/tools", "", "list"),
    ("POST", "/v1/tools/read", r#"{"input":{"path":"a"},"sandbox":"SANDBOX"}"#, "tool"),
    ("POST", "/v1/try", r#"{"attempts":[{"name":"a","command":["true"]}]}"#, "try"),
    ("POST", "/v1/undo", r#"{"promotion":"01AAAAAAAAAAAAAAAAAAAAAAAA"}"#, "undo"),
    ("POST", "/v1/verify", r#"{"promotion":"01AAAAAAAAAAAAAAAAAAAAAAAA"}"#, "verify"),
    ("GET", "/v1/volumes", "", "volume"),
    ("POST", "/v1/volumes", r#"{"name":"v-ROLE"}"#, "volume"),
    ("GET", "/v1/volumes/SANDBOX", "", "volume"),
    ("DELETE", "/v1/volumes/SANDBOX", "", "volume"),
];

#[test]
fn the_table_has_every_operation() {
    let world = World::new();
    let server = Server::start(&world);
    let document = server.own("GET", "/v1/openapi.json", "").json();
    let paths = document["paths"].as_object().expect("paths").iter();
    let described: BTreeSet<(String, String)> = paths
        .flat_map(|(path, operations)| {
            let methods = operations.as_object().expect("operations").keys();
            methods.map(move |method| (method.to_uppercase(), plain(path)))
        })
        .collect();
    let listed = OPERATIONS.iter().map(|(method, path, ..)| (method.to_string(), plain(path)));
    assert_eq!(listed.collect::<BTreeSet<_>>(), described);
}

/// A path without what stands for something in it.
fn plain(path: &str) -> String {
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    let parts = path.split('/').map(|part| match part {
        "SANDBOX" | "FILE" | "read" => "_",
        part if part.starts_with('{') => "_",
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn nobody_may_more_than_their_role_and_nobody_learns_of_others() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let others = server.key(r#"{"role":"operator","tenant":"others"}"#);
    let body = r#"{"name":"theirs","command":["sh","-c","echo secret > a"]}"#;
    let made = server.with_key(&others, "POST", "/v1/run", body).json();
    let id = made["id"].as_str().expect("an id").to_owned();
    let mut wrong = Vec::new();
    for (role, allow) in roles(&server) {
        let fields = json!({ "role": role, "tenant": "us", "name": role });
        let key = server.key(&fields.to_string());
        let asked = OPERATIONS.iter();
        wrong.extend(asked.filter_map(|operation| {
            check(&server, &key, &role, allow.as_ref(), operation, &id).err()
        }));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Everything is as it was, and nothing of it was told.
    let diff = server.with_key(&others, "GET", "/v1/sandboxes/theirs/diff", "").json();
    assert_eq!(diff["changes"].as_array().map(Vec::len), Some(1), "{diff}");
}

/// The built-in roles, and the verbs that each allows; `None` for all.
fn roles(server: &Server) -> BTreeMap<String, Option<BTreeSet<String>>> {
    let answer = server.own("GET", "/v1/roles", "").json();
    let roles = answer["roles"].as_array().expect("roles").iter();
    let verbs = |allow: &Value| {
        let list = allow.as_array()?;
        Some(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    };
    roles
        .map(|role| {
            (role["name"].as_str().expect("a name").to_owned(), verbs(&role["policy"]["allow"]))
        })
        .collect()
}

/// What is wrong with the answers to one operation, if something is.
fn check(
    server: &Server,
    key: &str,
    role: &str,
    allow: Option<&BTreeSet<String>>,
    &(method, path, body, verb): &(&str, &str, &str, &str),
    id: &str,
) -> Result<(), String> {
    if path == "/v1/events" && allow.is_none() {
        // It never ends for who may follow it.
        return Ok(());
    }
    let ask = |name: &str| {
        let (path, body) = (path.replace("SANDBOX", name), body.replace("SANDBOX", name));
        let bearer = format!("Authorization: Bearer {key}");
        let answer = match body.as_str() {
            "BYTES" => server.content(Some(key), method, &path, b"bytes"),
            "UPGRADE" => server.by_port(method, &path, &[&[bearer.as_str()], UPGRADE].concat(), ""),
            body => server.with_key(key, method, &path, &body.replace("ROLE", role)),
        };
        (answer.status, without_times(&answer.body).replace(name, "NAME"))
    };
    let may = verb == FREE || (verb != WHOLE && allow.is_none_or(|allow| allow.contains(verb)));
    let names_one = path.contains("SANDBOX") || body.contains("SANDBOX");
    let pairs = match names_one {
        true => vec![("theirs", "absent"), (id, "01AAAAAAAAAAAAAAAAAAAAAAAA")],
        false => vec![("none", "none")],
    };
    for (theirs, absent) in pairs {
        let (status, text) = ask(theirs);
        let tell = |what: &str| Err(format!("{role} {method} {path}: {what}: {status} {text}"));
        if names_one && (status, text.clone()) != ask(absent) {
            return tell("not as if it were absent");
        }
        // A list of calls is carried out, and says in it what was not.
        let is_right = match (may, names_one && path != "/v1/calls") {
            (false, _) => status == 403,
            (true, true) => status == 404,
            (true, false) => status != 403 && status < 500,
        };
        if !is_right {
            return tell(if may { "allowed" } else { "not allowed" });
        }
    }
    Ok(())
}

/// The text without the milliseconds that a call took.
fn without_times(text: &str) -> String {
    let mut pieces = text.split("\"wall_ms\":");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces
        .fold(first, |whole, piece| whole + piece.trim_start_matches(|c: char| c.is_ascii_digit()))
}
