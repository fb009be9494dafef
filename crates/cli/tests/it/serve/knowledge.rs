//! What was learned, over HTTP: by whom it is found, and by whom not.

use super::client::Server;
use crate::world::{World, able};
use serde_json::{Value, json};

fn note(server: &Server, key: Option<&str>, title: &str) -> Value {
    let body = json!({ "title": title, "body": "and more of it", "tags": ["t"] }).to_string();
    let answer = match key {
        Some(key) => server.with_key(key, "POST", "/v1/notes", &body),
        None => server.own("POST", "/v1/notes", &body),
    };
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}

/// Titles of what is found.
fn titles(found: &Value) -> Vec<&str> {
    found["hits"].as_array().into_iter().flatten().filter_map(|hit| hit["title"].as_str()).collect()
}

#[test]
fn a_note_is_found_by_words_filters_and_relations() {
    let world = World::new();
    let server = Server::start(&world);
    let first = note(&server, None, "yaml needs an old cython");
    let (id, file) = (first["noted"].as_str().expect("an id"), first["file"].as_str());
    assert!(std::path::Path::new(file.expect("the owner may know")).exists(), "{first}");
    let fix = json!({ "title": "pin pyyaml", "kind": "pattern",
        "relations": [{ "type": "fixes", "to": id }] });
    assert_eq!(server.own("POST", "/v1/notes", &fix.to_string()).status, 201);
    let find = |query: &str| server.own("GET", &format!("/v1/find?{query}"), "").json();
    assert_eq!(titles(&find("q=old%20cython&limit=1")), ["yaml needs an old cython"]);
    assert_eq!(titles(&find("q=cython+pyyaml&kinds=pattern,decision")), ["pin pyyaml"]);
    assert_eq!(titles(&find("q=cython+pyyaml&tags=t")), ["yaml needs an old cython"]);
    let long = json!({ "text": "cython", "kinds": ["insight"] }).to_string();
    let long = server.own("POST", "/v1/find", &long).json();
    assert_eq!(titles(&long), ["yaml needs an old cython"], "{long}");
    let graph = server.own("GET", &format!("/v1/graph?around={id}"), "").json();
    assert_eq!(graph["edges"][0]["type"], "fixes", "{graph}");
    let learned = server.own("GET", "/v1/learned", "").json();
    assert_eq!(learned["learned"].as_array().map(Vec::len), Some(2), "{learned}");
    let later = server.own("GET", "/v1/learned?since_ms=9999999999999", "").json();
    assert_eq!(later["learned"], json!([]));
    let action = json!({ "action": "find", "text": "cython" }).to_string();
    assert!(!titles(&server.own("POST", "/v1/apply", &action).json()).is_empty());
    server.own("GET", "/v1/find", "").refusal(400, "invalid");
    server.own("GET", "/v1/find?q=x&kind=insight", "").refusal(400, "invalid");
    server.own("POST", "/v1/notes", r#"{"title":" "}"#).refusal(400, "invalid");
    server.own("GET", "/v1/graph?around=01AAAAAAAAAAAAAAAAAAAAAAAA", "").refusal(404, "not_found");
    let page = server.own("GET", "/metrics", "").body;
    for line in [
        "fractal_notes_total{outcome=\"ok\"} 2",
        "fractal_notes_total{outcome=\"invalid\"} 1",
        "fractal_questions_total{outcome=\"found\"} 5",
        "fractal_find_seconds_count 5",
    ] {
        assert!(page.lines().any(|one| one == line), "{line} is not in\n{page}");
    }
}

#[test]
fn the_index_is_looked_after_through_the_door() {
    let world = World::new();
    let server = Server::start(&world);
    note(&server, None, "one");
    let status = server.own("GET", "/v1/index", "").json();
    assert_eq!((&status["indexed"], &status["faulty"]), (&json!(1), &json!(0)), "{status}");
    let rebuilt = server.own("POST", "/v1/index/rebuild", "");
    assert_eq!((rebuilt.status, &rebuilt.json()["indexed"]), (200, &json!(1)), "{}", rebuilt.body);
    for what in ["lint", "verify"] {
        let told = server.own("GET", &format!("/v1/index/{what}"), "");
        assert_eq!((told.status, &told.json()["faults"]), (200, &json!([])), "{}", told.body);
    }
    // Nothing is broken: somebody has to add a model.
    server.own("POST", "/v1/index/embed", "").refusal(409, "unsupported");
}

#[test]
fn experiments_are_made_shown_and_archived_by_name() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let made = server.own("POST", "/v1/skunks", r#"{"title":"Slow queries","with":"empty"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    let name = made.json()["skunk"]["name"].as_str().expect("a name").to_owned();
    let part = json!({ "title": "No index", "with": "empty", "within": name }).to_string();
    let part = server.own("POST", "/v1/skunks", &part).json();
    let below = part["skunk"]["name"].as_str().expect("a name").to_owned();
    assert!(below.starts_with(&format!("{name}/")), "{below}");
    let run = json!({ "command": ["sh", "-c", "exit 3"], "experiment": below }).to_string();
    let ran = server.own("POST", "/v1/run", &run).json();
    assert_eq!(ran["recorded"]["experiment"], json!(below), "{ran}");
    let shown = server.own("GET", &format!("/v1/skunks/{}", below.replace('/', "%2F")), "").json();
    assert_eq!(shown["skunk"]["records"]["failure"], 1, "{shown}");
    let out = server.own("POST", &format!("/v1/skunks/{name}/extract"), r#"{"insight":"yes"}"#);
    assert_eq!(out.status, 201, "{}", out.body);
    let archived = server.own("POST", &format!("/v1/skunks/{name}/archive"), "");
    assert_eq!(archived.json()["skunk"]["status"], "archived", "{}", archived.body);
    let names = |query: &str| {
        let list = server.own("GET", &format!("/v1/skunks{query}"), "").json();
        list["skunks"].as_array().map(Vec::len)
    };
    assert_eq!((names(""), names("?all=true")), (Some(1), Some(2)));
    server.own("GET", "/v1/skunks/none", "").refusal(404, "not_found");
}

/// Two tenants and the owner: nobody finds, names or counts what others wrote,
/// but for the owner, who sees all of it.
#[test]
fn what_one_tenant_learned_is_as_if_it_did_not_exist_for_another() {
    let world = World::new();
    let server = Server::start(&world);
    let [one, two] = ["one", "two"]
        .map(|tenant| server.key(&json!({ "role": "operator", "tenant": tenant }).to_string()));
    let own = note(&server, None, "zebra of the owner");
    let first = note(&server, Some(&one), "zebra of the first");
    note(&server, Some(&two), "zebra of the second");
    assert_eq!((&first["root"], &first["file"]), (&json!("notes"), &Value::Null), "{first}");
    let find = |key: &str| server.with_key(key, "GET", "/v1/find?q=zebra", "");
    assert_eq!(titles(&find(&one).json()), ["zebra of the first"]);
    assert_eq!(titles(&find(&two).json()), ["zebra of the second"]);
    assert_eq!(titles(&server.own("GET", "/v1/find?q=zebra", "").json()).len(), 3);
    // The same for who counts and lists.
    for (path, field) in [("/v1/learned", "learned"), ("/v1/graph", "nodes")] {
        let told = server.with_key(&two, "GET", path, "");
        assert_eq!(told.json()[field].as_array().map(Vec::len), Some(1), "{}", told.body);
        assert!(told.body.contains("of the second"), "{}", told.body);
        assert!(!told.body.contains("\"file\""), "{}", told.body);
    }
    let status = server.with_key(&two, "GET", "/v1/index", "").json();
    assert_eq!(status["indexed"], 1, "{status}");
    // By id, and by path, others' are what does not exist.
    let of = |note: &Value, field: &str| note[field].as_str().expect("text").to_owned();
    let absent = "01AAAAAAAAAAAAAAAAAAAAAAAA".to_owned();
    for (theirs, none) in [
        (of(&first, "noted"), absent.clone()),
        (of(&own, "noted"), absent),
        (of(&first, "path"), "insights/none.md".to_owned()),
    ] {
        let ask = |name: &str| {
            let path = format!("/v1/graph?around={}", name.replace('/', "%2F"));
            let around = server.with_key(&two, "GET", &path, "");
            let cites = json!({ "title": "x", "relations": [{ "type": "cites", "to": name }] });
            let cites = server.with_key(&two, "POST", "/v1/notes", &cites.to_string());
            [around, cites].map(|answer| (answer.status, answer.body.replace(name, "NAME")))
        };
        assert_eq!(ask(&theirs), ask(&none), "{theirs}");
        assert_eq!(ask(&theirs)[0].0, 404, "{theirs}");
    }
    // Who shares a tenant shares its notes.
    let viewer = server.key(r#"{"role":"viewer","tenant":"one"}"#);
    assert_eq!(titles(&find(&viewer).json()), ["zebra of the first"]);
    let refused = server.with_key(&viewer, "POST", "/v1/notes", r#"{"title":"x"}"#);
    refused.refusal(403, "denied");
    // Experiments and files of the host are the owner's.
    let body = json!({ "title": "x", "experiment": "any" }).to_string();
    server.with_key(&one, "POST", "/v1/notes", &body).refusal(403, "denied");
    for verb in [
        json!({ "action": "skunk", "skunk": "import", "from": "/etc" }),
        json!({ "action": "index", "index": "add-model", "from": "/etc" }),
    ] {
        server.with_key(&one, "POST", "/v1/apply", &verb.to_string()).refusal(403, "denied");
    }
}

#[test]
fn a_key_for_one_sandbox_has_notes_of_its_own() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    let whole = server.key(r#"{"role":"operator","tenant":"one"}"#);
    note(&server, Some(&whole), "zebra of the tenant");
    let narrow = ["a", "b"].map(|name| {
        let body = json!({ "name": name }).to_string();
        let made = server.with_key(&whole, "POST", "/v1/sandboxes", &body).json();
        let key = json!({ "role": "runner", "tenant": "one", "scope": made["id"] });
        server.key(&key.to_string())
    });
    for (key, title) in narrow.iter().zip(["zebra of a", "zebra of b"]) {
        note(&server, Some(key), title);
    }
    let find = |key: &str| server.with_key(key, "GET", "/v1/find?q=zebra", "").json();
    assert_eq!(titles(&find(&narrow[0])), ["zebra of a"]);
    assert_eq!(titles(&find(&narrow[1])), ["zebra of b"]);
    assert_eq!(titles(&find(&whole)), ["zebra of the tenant"]);
    assert_eq!(titles(&server.own("GET", "/v1/find?q=zebra", "").json()).len(), 3);
}
