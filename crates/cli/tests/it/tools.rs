//! `fractal tool` as people and scripts call it.

use crate::world::{Answer, World, able};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

/// A call with something on its standard input.
fn fed(world: &World, args: &[&str], text: &str) -> Answer {
    let mut command = world.command(crate::world::FRACTAL);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    Answer::from(child.wait_with_output().expect("it ends"))
}

#[test]
fn a_new_tool_works_in_every_language_and_is_not_overwritten() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("f", "1\n2\n3\n");
    for lang in ["sh", "python"] {
        let made = world.ok(&["tool", "new", lang, "--lang", lang]);
        assert!(made.out.ends_with(&format!("project/tools/{lang}\n")), "{}", made.out);
        let (status, reply) = world.json(&["tool", "call", lang, "path=f", "--json"]);
        assert_eq!((status, &reply["output"]), (0, &json!({ "lines": 3 })), "{reply}");
        let before = std::fs::read(world.project().join("tools").join(lang).join("tool.toml"));
        let again = world.fractal(&["tool", "new", lang]);
        assert!(again.status == 125 && again.err.contains("exists already"), "{}", again.err);
        let after = std::fs::read(world.project().join("tools").join(lang).join("tool.toml"));
        assert_eq!(before.expect("it is there"), after.expect("it is there"));
    }
    assert_eq!(world.fractal(&["tool", "new", "../x"]).status, 2);
}

#[test]
fn input_comes_from_fields_files_and_pipes() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("in.json", "{\"path\": \"f\", \"content\": \"7\"}");
    world.ok(&["-q", "run", "--name", "box", "--", "sh", "-c", "echo 1 > f"]);
    let read =
        || world.json(&["tool", "call", "read", "path=f", "--in", "box"]).1["content"].clone();
    world.ok(&["tool", "call", "write", "--in", "box", "--input", "@in.json"]);
    assert_eq!(read(), "7");
    // Text where the schema wants text, whatever it looks like.
    world.ok(&["tool", "call", "write", "--in", "box", "path=f", "content=8"]);
    assert_eq!(read(), "8");
    let piped =
        fed(&world, &["tool", "call", "read", "--in", "box", "--input", "-"], "{\"path\": \"f\"}");
    assert_eq!(piped.status, 0, "{}", piped.err);
    for bad in [&["--input", "{"] as &[&str], &["--input", "[]", "path=f"], &["path"]] {
        let answer = world.fractal(&[&["tool", "call", "read", "--in", "box"], bad].concat());
        assert_eq!(answer.status, 2, "{bad:?}: {}", answer.err);
    }
    assert_eq!(world.fractal(&["tool", "call", "gone"]).status, 6);
    assert_eq!(world.fractal(&["tool", "call"]).status, 2);
}

#[test]
fn many_calls_answer_in_order() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&[
        "-q",
        "run",
        "--name",
        "box",
        "--",
        "sh",
        "-c",
        "for n in 1 2 3; do echo $n > f$n; done",
    ]);
    let calls = r#"[{"tool":"read","input":{"path":"f1"}},{"tool":"read","input":{"path":"gone"}},
                    {"tool":"run","input":{"command":"cat f2"}},{"tool":"read","input":{"path":"f3"}}]"#;
    let answer = fed(&world, &["tool", "call", "--many", "-", "--in", "box", "--jobs", "4"], calls);
    assert_eq!(answer.status, 6, "{}", answer.err);
    let replies: Vec<Value> = serde_json::from_str(&answer.out).expect("a list");
    assert_eq!(replies[0]["output"]["content"], "1\n");
    assert_eq!(replies[1]["error"]["code"], "not_found");
    assert_eq!(replies[2]["output"]["stdout"], "2\n");
    assert_eq!(replies[3]["output"]["content"], "3\n");
    let log = world.ok(&["log"]).out;
    assert!(log.contains("ok: read") && log.contains("not_found: read"), "{log}");
    assert_eq!(fed(&world, &["tool", "call", "--many", "-"], "{}").status, 2);
}
