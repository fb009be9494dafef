//! Programs described by `tool.toml`.

use super::{call, records};
use crate::world::World;
use fractal::model::ToolCall;
use fractal::tools::Options;
use fractal::{Action, Code, Error, Reply};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

/// A tool of the project whose program is this script.
fn describe(world: &World, name: &str, script: &str, more: &str) {
    let dir = world.project().join("tools").join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let text = format!(
        "name = \"{name}\"\ndescription = \"A test.\"\ncommand = [\"./main.sh\"]\ntime = \"5s\"\n{more}\n\
         [input]\ntype = \"object\"\n[input.properties.n]\ntype = \"integer\"\n\
         [output]\ntype = \"object\"\nrequired = [\"sum\"]\n[output.properties.sum]\ntype = \"integer\"\n"
    );
    std::fs::write(dir.join("tool.toml"), text).unwrap();
    std::fs::write(dir.join("main.sh"), format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(dir.join("main.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn world(script: &str, more: &str) -> World {
    let world = World::new();
    describe(&world, "t", script, more);
    world.make("s", "echo 40 > base").unwrap();
    world
}

fn ask(world: &World, input: Value) -> Result<Value, Error> {
    call(world, "s", "t", input)
}

const ADD: &str = r#"n=$(sed 's/.*:\([0-9]*\)}/\1/'); echo working >&2
printf '{"sum": %d}' $((n + $(cat base))); cat "$FRACTAL_TOOL_DIR/main.sh" > copy"#;

#[test]
fn a_program_reads_and_answers_json_inside_the_sandbox() {
    let world = world(ADD, "");
    assert_eq!(ask(&world, json!({ "n": 2 })).unwrap(), json!({ "sum": 42 }));
    assert!(!world.project().join("copy").exists());
    assert_eq!(world.sh("s", "test -s copy && echo there").unwrap().stdout, "there\n");
    assert_eq!(records(&world), [("t".to_owned(), "done".to_owned(), 1)]);
    // Without a sandbox it works in a new one.
    std::fs::write(world.project().join("base"), "1").unwrap();
    assert_eq!(call(&world, "", "t", json!({ "n": 2 })).unwrap(), json!({ "sum": 3 }));
}

#[test]
fn a_bad_input_never_reaches_the_program() {
    let world = world("echo ran > ran; echo '{\"sum\": 1}'", "");
    let error = ask(&world, json!({ "n": "secret" })).unwrap_err();
    assert_eq!(error.code, Code::Invalid);
    assert!(error.message.contains("/n: it is not of type \"integer\" (rule `type`)"), "{error}");
    assert!(error.hint.unwrap().contains("fractal tool show t"));
    assert_eq!(world.sh("s", "ls").unwrap().stdout, "base\ntools\n");
    assert_eq!(records(&world), [("t".to_owned(), "invalid".to_owned(), 0)]);
    let large = ask(&world, json!({ "text": "x".repeat(2 << 20) })).unwrap_err();
    assert_eq!(large.code, Code::Limit);
}

#[test]
fn what_goes_wrong_in_a_program_is_told() {
    let check = |script: &str, code: Code, words: &[&str]| {
        let error = ask(&world(script, ""), json!({})).expect_err(script);
        assert_eq!(error.code, code, "{script}: {error}");
        for word in words {
            assert!(error.message.contains(word), "{script}: {error}");
        }
        assert!(error.message.len() < 4096, "{}", error.message.len());
    };
    check("echo hello", Code::Failed, &["no JSON", "hello"]);
    check("echo '{\"sum\": 1} x'", Code::Failed, &["no JSON"]);
    check("echo '{\"sum\": \"1\"}'", Code::Failed, &["/sum", "rule `type`"]);
    check("echo '{}'", Code::Failed, &["/sum", "rule `required`"]);
    check("echo oh dear >&2; exit 3", Code::Failed, &["exit status 3", "oh dear"]);
    check("yes | head -c 20000 >&2; exit 1", Code::Failed, &["…"]);
    check("kill -9 $$", Code::Failed, &["signal"]);
    check("yes", Code::Limit, &["wrote more than"]);
    check(
        "head -c 1090000 /dev/zero | tr '\\0' ' '",
        Code::Limit,
        &["answered 1.0", "are allowed"],
    );
}

#[test]
fn a_program_that_takes_too_long_is_ended() {
    let world = world("sleep 60 & sleep 60", "");
    let call = ToolCall {
        tool: "t".into(),
        input: json!({}),
        sandbox: Some("s".into()),
        time_ms: Some(300),
    };
    let (registry, _) = world.engine.tools_for(&world.caller);
    let start = std::time::Instant::now();
    let reply = registry.call_with(&world.engine, &world.caller, &call, &Options::default());
    assert_eq!(reply.error().map(|error| error.code), Some(Code::Timeout));
    assert!(start.elapsed().as_secs() < 30, "it was ended and not waited for");
    assert_eq!(world.sh("s", "echo on").unwrap().stdout, "on\n");
}

#[test]
fn programs_that_are_called_off_are_ended() {
    let world = world("sleep 60; echo '{\"sum\": 1}'", "");
    let (registry, _) = world.engine.tools_for(&world.caller);
    let options = Options { jobs: Some(2), ..Options::default() };
    let one = |tool: &str, input| ToolCall {
        tool: tool.into(),
        input,
        sandbox: Some("s".into()),
        time_ms: None,
    };
    let calls = [one("t", json!({})), one("run", json!({ "command": "sleep 60" }))];
    let start = std::time::Instant::now();
    let replies = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            options.cancel.cancel();
        });
        registry.call_many(&world.engine, &world.caller, &calls, &options).unwrap()
    });
    assert!(start.elapsed().as_secs() < 30, "they were ended and not waited for");
    for reply in replies {
        assert!(reply.error().unwrap().message.contains("called off"), "{reply:?}");
    }
    assert_eq!(world.sh("s", "echo on").unwrap().stdout, "on\n");
}

#[test]
fn a_program_cannot_rewrite_its_own_directory() {
    let world =
        world("echo '# broken' >> \"$FRACTAL_TOOL_DIR/main.sh\" && echo '{\"sum\": 1}'", "");
    let tier = world.sh("s", "true").unwrap().isolation.tier;
    let wrote = ask(&world, json!({}));
    assert_eq!(wrote.is_ok(), tier == fractal::model::Tier::Copied, "{wrote:?}");
    let code = std::fs::read_to_string(world.project().join("tools/t/main.sh")).unwrap();
    assert!(!code.contains("\n# broken"), "the host's is as it was");
}

#[test]
fn a_broken_description_is_told_and_others_load() {
    let world = world("echo '{\"sum\": 1}'", "");
    let bad = world.project().join("tools/bad");
    std::fs::create_dir(&bad).unwrap();
    std::fs::write(bad.join("tool.toml"), "name = \"bad\"\nnmae = 1\n").unwrap();
    describe(&world, "run", "true", "");
    let action = Action::Tools { sandbox: None };
    let Reply::Tools(tools) = world.apply(action).unwrap() else { panic!("tools") };
    assert!(tools.tools.iter().any(|tool| tool.name == "t" && tool.kind == "program"));
    let told: Vec<&str> = tools.broken.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains("tools/bad/tool.toml:2: unknown field `nmae`, expected one of"),
        "{told:?}"
    );
    assert!(told[1].contains("already a tool `run` (a verb)"), "{told:?}");
    assert!(call(&world, "s", "bad", json!({})).unwrap_err().message.contains("tool.toml:2"));
    assert_eq!(call(&world, "s", "gone", json!({})).unwrap_err().code, Code::NotFound);
}
