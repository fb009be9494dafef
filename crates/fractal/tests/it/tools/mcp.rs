//! Tools of other MCP servers, which run inside sandboxes.

use super::{call, done, records};
use crate::world::World;
use fractal::model::{ToolCall, ToolReply, ToolsReply};
use fractal::tools::Options;
use fractal::{Action, Caller, Code, Config, Engine, Error, Policy, Reply};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A project that names the test's server, of some kind, as `demo`.
fn world(how: &str, more: &str) -> World {
    let mut world = World::new();
    std::fs::write(world.project().join("server.py"), include_str!("server.py")).unwrap();
    configure(&mut world, how, more);
    world.make("s", "echo here > base").unwrap();
    world
}

/// The last argument is for finding the process from outside.
fn configure(world: &mut World, how: &str, more: &str) {
    let mark = mark(world);
    let text = format!(
        "[mcp.demo]\ncommand = [\"python3\", \"server.py\", \"{how}\", \"{mark}\"]\n{more}\n"
    );
    std::fs::write(world.project().join("fractal.toml"), text).unwrap();
    world.caller.config = Config::load(&world.project(), None).unwrap();
}

fn mark(world: &World) -> String {
    format!("mark={}", world.dir.path().display())
}

/// Processes of this world's servers, as the machine sees them.
fn at_work(world: &World) -> usize {
    let mark = mark(world);
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(&mark)).count()
}

/// Whoever was told to end may take a moment to be gone.
fn assert_none_at_work(world: &World) {
    let start = Instant::now();
    while at_work(world) > 0 {
        assert!(start.elapsed().as_secs() < 60, "a server is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn list(world: &World) -> ToolsReply {
    match world.apply(Action::Tools { sandbox: None }).unwrap() {
        Reply::Tools(tools) => tools,
        other => panic!("tools answered {other:?}"),
    }
}

fn one(tool: &str, input: Value, sandbox: &str) -> ToolCall {
    let sandbox = Some(sandbox.to_owned()).filter(|name| !name.is_empty());
    ToolCall { tool: tool.into(), input, sandbox, time_ms: None }
}

/// One call that may take so long.
fn within(world: &World, tool: &str, time_ms: u64) -> ToolReply {
    let call = ToolCall { time_ms: Some(time_ms), ..one(tool, json!({}), "s") };
    let (registry, _) = world.engine.tools_for(&world.caller);
    registry.call_with(&world.engine, &world.caller, &call, &Options::default())
}

fn text(words: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": words }] })
}

#[test]
fn a_server_works_in_the_sandbox_and_nowhere_else() {
    let world = world("good", "");
    let tools = list(&world);
    let names: Vec<&str> = tools.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert!(names.contains(&"demo_write_file") && names.contains(&"demo_odd-name"), "{names:?}");
    let add = tools.tools.iter().find(|tool| tool.name == "demo_add").unwrap();
    assert_eq!((add.kind.as_str(), add.read_only, add.idempotent), ("mcp", true, true));
    assert_eq!(tools.broken.len(), 1, "{:?}", tools.broken);
    assert!(tools.broken[0].message.contains("`bad name\\u{1b}[31m` of the server `demo`"));

    let input = json!({ "path": "new.txt", "text": "from a server" });
    assert_eq!(call(&world, "s", "demo_write_file", input.clone()).unwrap(), text("written"));
    assert!(!world.project().join("new.txt").exists(), "it is not in reality");
    let changed = world.changed("s").unwrap();
    assert!(changed.contains(&('A', "new.txt".to_owned())), "{changed:?}");
    assert_eq!(world.sh("s", "cat new.txt").unwrap().stdout, "from a server");
    let sum = call(&world, "s", "demo_add", json!({ "a": 40, "b": 2 })).unwrap();
    assert_eq!(sum, json!({ "sum": 42 }));
    // Without a sandbox it works in a new one, which is kept for what it did.
    let (registry, _) = world.engine.tools_for(&world.caller);
    let reply = registry.call(&world.engine, &world.caller, &one("demo_write_file", input, ""));
    let made = reply.sandbox.clone().expect("it was kept");
    assert_eq!(done(&reply), text("written"));
    assert_eq!(world.sh(&made, "cat new.txt").unwrap().stdout, "from a server");
    assert_eq!(records(&world)[0], ("demo_write_file".to_owned(), "done".to_owned(), 1));
    assert_none_at_work(&world);
}

#[test]
fn a_bad_input_never_reaches_a_server() {
    let world = world("good", "");
    let check = |tool: &str, input: Value, words: &str| {
        let error = call(&world, "s", tool, input).unwrap_err();
        assert_eq!(error.code, Code::Invalid, "{error}");
        assert!(error.message.contains(words), "{error}");
    };
    check("demo_add", json!({ "a": "secret", "b": 1 }), "/a: it is not of type \"integer\"");
    check("demo_add", json!({ "a": 1 }), "/b: \"b\" is a required property (rule `required`)");
    check("demo_add", json!({ "a": 1, "b": 1, "c": 1 }), "/c: ");
    check("demo_ref", json!({ "n": "x" }), "/n: it is not of type \"integer\"");
    let runs = world.engine.apply(
        &world.caller,
        Action::Log { sandbox: Some("s".into()), limit: Some(99), here: false, whole: false },
    );
    let Ok(Reply::Log(log)) = runs else { panic!("log") };
    let runs = log.records.iter().filter(|record| record.body.action == "run").count();
    assert_eq!(runs, 1, "nothing ran in it but what made it");
    let missing = call(&world, "s", "demo_gone", json!({})).unwrap_err();
    assert_eq!(missing.code, Code::NotFound);
}

#[test]
fn what_goes_wrong_in_a_call_is_told_and_bounded() {
    let world = world("good", "time = \"60s\"");
    let check = |tool: &str, code: Code, words: &str| {
        let error = call(&world, "s", &format!("demo_{tool}"), json!({})).expect_err(tool);
        assert_eq!(error.code, code, "{tool}: {error}");
        assert!(error.message.contains(words), "{tool}: {error}");
        assert!(error.message.len() < 4096, "{}", error.message.len());
    };
    check("fail", Code::Failed, "`demo_fail` failed: there is no such thing");
    check("refuse", Code::Failed, "the server `demo` says: not like this (-32602)");
    check("die", Code::Failed, "the server `demo` ended with exit status 7: oh dear");
    check("lie", Code::Failed, "/sum: it is not of type \"integer\"");
    check("wrong", Code::Failed, "no list of content");
    check("flood", Code::Failed, "nobody asked for");
    check("noise", Code::Failed, "no messages");
    check("large", Code::Failed, "a line of more than");
    check("big", Code::Limit, "are allowed");
    // What a server asks for is refused, and it goes on.
    let back = call(&world, "s", "demo_back", json!({})).unwrap();
    assert_eq!(back, text("[-32601, -32601, -32601, \"fine\"]"));
    assert_none_at_work(&world);
    assert_eq!(world.sh("s", "echo on").unwrap().stdout, "on\n");
}

#[test]
fn who_hangs_or_does_not_want_to_end_is_ended() {
    let mut world = world("stubborn", "");
    assert!(list(&world).tools.iter().any(|tool| tool.name == "demo_hang"));
    let start = Instant::now();
    let late = within(&world, "demo_hang", 2000);
    assert_eq!(late.error().map(|error| error.code), Some(Code::Timeout), "{late:?}");
    assert!(start.elapsed().as_secs() < 60, "it was ended and not waited for");
    assert_none_at_work(&world);
    configure(&mut world, "good", "");
    let (registry, _) = world.engine.tools_for(&world.caller);
    let options = Options::default();
    let start = Instant::now();
    let reply = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(700));
            options.cancel.cancel();
        });
        let hang = one("demo_hang", json!({}), "s");
        registry.call_with(&world.engine, &world.caller, &hang, &options)
    });
    assert!(reply.error().unwrap().message.contains("called off"), "{reply:?}");
    assert!(start.elapsed().as_secs() < 60, "it was ended and not waited for");
    assert_none_at_work(&world);
    assert_eq!(world.sh("s", "echo on").unwrap().stdout, "on\n");
}

#[test]
fn a_server_that_cannot_say_what_it_offers_is_told_and_others_are_there() {
    let mut world = world("dies", "");
    let tools = list(&world);
    assert!(tools.tools.iter().any(|tool| tool.name == "run"));
    let [error] = tools.broken.as_slice() else { panic!("{:?}", tools.broken) };
    assert!(error.message.contains("exit status 3: cannot find the module"), "{error}");
    configure(&mut world, "garbage", "");
    let error = list(&world).broken.remove(0);
    assert!(error.message.contains("no messages"), "{error}");
    assert!(error.hint.unwrap().contains("{ this is no JSON"));
    configure(&mut world, "silent", "");
    let error = within(&world, "demo_add", 1500).result().unwrap_err();
    assert_eq!(error.code, Code::Timeout);
    assert!(error.hint.unwrap().contains("Listening on port 1234"));
    let text = "[mcp.demo]\ncommand = [\"/no/such/program\"]\n";
    std::fs::write(world.project().join("fractal.toml"), text).unwrap();
    world.caller.config = Config::load(&world.project(), None).unwrap();
    let error = list(&world).broken.remove(0);
    assert!(error.message.contains("/no/such/program"), "{error}");
    let again = call(&world, "s", "demo_add", json!({ "a": 1, "b": 1 })).unwrap_err();
    assert_eq!(again.message, error.message);
    assert_none_at_work(&world);
}

#[test]
fn giant_lists_and_bombs_are_bounded() {
    let mut world = world("giant", "");
    let tools = list(&world);
    let count = tools.tools.iter().filter(|tool| tool.kind == "mcp").count();
    assert_eq!(count, 256);
    assert!(tools.broken[0].message.contains("more than 256 tools"), "{:?}", tools.broken);
    configure(&mut world, "giant", "tools = [\"t7\", \"gone\"]");
    let tools = list(&world);
    assert_eq!(tools.tools.iter().filter(|tool| tool.kind == "mcp").count(), 1);
    assert!(tools.broken[1].message.contains("has no tool `gone`"), "{:?}", tools.broken);
    configure(&mut world, "bomb", "");
    let start = Instant::now();
    let told = list(&world).broken;
    assert!(
        told.len() == 1 && told[0].code == Code::Failed,
        "a list that nests too deep: {told:?}"
    );
    assert!(start.elapsed().as_secs() < 60, "it took {:?}", start.elapsed());
    assert_none_at_work(&world);
}

#[test]
fn servers_of_either_age_are_understood() {
    for how in ["modern", "greets"] {
        let world = world(how, "");
        let sum = call(&world, "s", "demo_add", json!({ "a": 1, "b": 2 })).unwrap();
        assert_eq!(sum, json!({ "sum": 3 }), "{how}");
    }
}

#[test]
fn calls_of_one_list_share_a_server_and_requests_do_not() {
    let world = world("good", "");
    world.make("t", "echo there > base").unwrap();
    let calls = ["s", "t", "s", "s"].map(|sandbox| one("demo_count", json!({}), sandbox));
    let (registry, _) = world.engine.tools_for(&world.caller);
    let options = Options { jobs: Some(4), ..Options::default() };
    let replies = registry.call_many(&world.engine, &world.caller, &calls, &options).unwrap();
    let counts: Vec<Value> = replies.iter().map(done).collect();
    assert_eq!(counts[1], text("1"), "another sandbox, another server");
    let of_s: BTreeSet<String> = [0, 2, 3].map(|at| counts[at].to_string()).into();
    assert_eq!(of_s, ["1", "2", "3"].map(|count| text(count).to_string()).into());
    assert_none_at_work(&world);
    assert_eq!(call(&world, "s", "demo_count", json!({})).unwrap(), text("1"));
}

/// A long-lived engine on the same state directory.
fn keeping(world: &World) -> Arc<Engine> {
    let engine = Arc::new(Engine::open(&world.dir.path().join("home")).unwrap());
    engine.keep_servers();
    engine
}

fn ask(engine: &Engine, caller: &Caller, tool: &str, input: Value) -> Result<Value, Error> {
    match engine.apply(caller, Action::Tool(Box::new(one(tool, input, "s"))))? {
        Reply::Tool(reply) => reply.result(),
        other => panic!("a tool answered {other:?}"),
    }
}

#[test]
fn a_process_that_lives_long_keeps_servers_and_ends_them() {
    let world = world("good", "");
    let (engine, caller) = (keeping(&world), &world.caller);
    let count = |caller: &Caller| ask(&engine, caller, "demo_count", json!({})).unwrap();
    assert_eq!((count(caller), count(caller)), (text("1"), text("2")));
    assert!(at_work(&world) > 0, "it is kept");
    assert_eq!(world.sh("s", "echo beside it").unwrap().stdout, "beside it\n");
    // Who has other rights has another server.
    let tools = Some(["demo_count".to_owned(), "write".to_owned()].into());
    let policy = Policy { tools, ..Policy::default() };
    assert_eq!(count(&Caller { policy, ..caller.clone() }), text("1"));
    assert_eq!(count(caller), text("3"));
    // Who must be alone in the sandbox is not kept waiting by idle servers.
    let input = json!({ "path": "a.txt", "content": "x" });
    ask(&engine, caller, "write", input).unwrap();
    assert_none_at_work(&world);
    assert_eq!(count(caller), text("1"), "a new one");
    // One that died, or hangs, is replaced.
    let died = ask(&engine, caller, "demo_die", json!({})).unwrap_err();
    assert!(died.message.contains("exit status 7"), "{died}");
    assert_eq!(count(caller), text("1"));
    let hang = ToolCall { time_ms: Some(500), ..one("demo_hang", json!({}), "s") };
    let late = engine.apply(caller, Action::Tool(Box::new(hang))).unwrap_err();
    assert_eq!(late.code, Code::Timeout);
    assert_eq!(count(caller), text("1"));
    let drop = Action::Drop { sandboxes: vec!["s".into()], force: false };
    engine.apply(caller, drop).unwrap();
    assert_none_at_work(&world);
    world.make("s", "echo again > base").unwrap();
    assert_eq!(count(caller), text("1"));
    engine.end_servers();
    assert_none_at_work(&world);
    assert!(world.list().iter().all(|sandbox| sandbox.state == "idle"));
}

#[test]
fn templates_and_keys_say_which_tools_of_a_server_may_be_used() {
    let mut world = world("good", "");
    let only = |names: &[&str]| Policy {
        tools: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..Policy::default()
    };
    world.caller.policy = only(&["demo_count", "read"]);
    let names: Vec<String> = list(&world).tools.into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["demo_count", "read"]);
    let add = json!({ "a": 1, "b": 2 });
    let denied = call(&world, "s", "demo_add", add.clone()).unwrap_err();
    assert_eq!(denied.code, Code::Denied, "{denied}");
    call(&world, "s", "demo_count", json!({})).unwrap();
    // Who may use none of them starts nothing.
    let runs = || records_of(&world, "run");
    let before = runs();
    let caller = Caller { policy: only(&["read"]), ..world.caller.clone() };
    configure(&mut world, "good", "env = { NEW = \"settings\" }");
    let caller = Caller { config: world.caller.config.clone(), ..caller };
    let Reply::Tools(tools) = world.engine.apply(&caller, Action::Tools { sandbox: None }).unwrap()
    else {
        panic!("tools")
    };
    assert_eq!(tools.tools.len(), 1);
    let denied = world.engine.apply(&caller, Action::Tool(Box::new(one("demo_add", add, "s"))));
    assert!(denied.is_err());
    assert_eq!(records_of(&world, "run"), before);
    // A template says it for all sandboxes that are made from it.
    configure(&mut world, "good", "[templates.careful]\ntools = [\"demo_add\"]\n");
    let text = std::fs::read_to_string(world.project().join("fractal.toml")).unwrap();
    let text = format!("template = \"careful\"\n{text}");
    std::fs::write(world.project().join("fractal.toml"), text).unwrap();
    world.caller.config = Config::load(&world.project(), None).unwrap();
    world.caller.policy = Policy::default();
    let names: Vec<String> = list(&world).tools.into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["demo_add"]);
    world.make("careful", "true").unwrap();
    let denied = call(&world, "careful", "demo_count", json!({})).unwrap_err();
    assert_eq!(denied.code, Code::Denied, "{denied}");
}

fn records_of(world: &World, action: &str) -> usize {
    let log = Action::Log { sandbox: None, limit: Some(500), here: false, whole: false };
    let Reply::Log(log) = world.engine.apply(&Caller::owner(world.project()), log).unwrap() else {
        panic!("log")
    };
    log.records.iter().filter(|record| record.body.action == action).count()
}
