//! Help, completions and the generated reference.

use crate::world::World;
use serde_json::Value;

fn tree(world: &World) -> Value {
    world.json(&["help", "--json"]).1
}

/// Every command below the root as the words that call it.
fn paths(command: &Value, above: &[String], list: &mut Vec<Vec<String>>) {
    for sub in command["commands"].as_array().into_iter().flatten() {
        let name = sub["name"].as_str().expect("a name").to_owned();
        let path = [above, &[name]].concat();
        paths(sub, &path, list);
        list.push(path);
    }
}

#[test]
fn every_verb_and_flag_is_explained() {
    let world = World::new();
    let mut list = Vec::new();
    paths(&tree(&world), &[], &mut list);
    assert!(list.len() > 20, "{list:?}");
    for path in list {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let asked = world.ok(&[words.as_slice(), &["--help"]].concat());
        let told = world.ok(&[&["help"], words.as_slice()].concat());
        assert!(asked.out.contains("Usage: fractal"), "{path:?}");
        assert_eq!(asked.out, told.out);
        let (_, described) = world.json(&[&["help", "--json"], words.as_slice()].concat());
        assert!(described["about"].is_string(), "{path:?}");
        for arg in described["args"].as_array().expect("a list") {
            assert!(arg["help"].is_string(), "{path:?} {arg}");
        }
    }
}

#[test]
fn bounds_have_variables_shown_in_the_help() {
    let help = World::new().ok(&["run", "--help"]).out;
    for name in [
        "MEMORY",
        "CPUS",
        "PIDS",
        "DISK",
        "TIME",
        "NET",
        "TEMPLATE",
        "ISOLATION",
        "HOME",
        "JSON",
        "OUTPUT",
    ] {
        assert!(help.contains(&format!("[env: FRACTAL_{name}")), "{name} in {help}");
    }
}

#[test]
fn completions_exist_for_the_usual_shells() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = world.ok(&["completions", shell]).out;
        assert!(script.contains("rollback"), "{shell}");
    }
    let answer = world.fractal(&["completions", "tcsh"]);
    assert_eq!(answer.status, 2);
}

#[test]
fn a_bare_call_shows_the_help_and_fails() {
    let answer = World::new().fractal(&[]);
    assert_eq!((answer.status, answer.out.as_str()), (2, ""));
    assert!(answer.err.contains("Usage: fractal"), "{}", answer.err);
}

#[test]
fn the_reference_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let written = std::fs::read_to_string(path).unwrap_or_default();
    let generated = World::new().ok(&["help", "--markdown"]).out;
    assert!(written == generated, "write it again: fractal help --markdown > docs/cli.md");
}

#[test]
fn no_colour_where_nobody_looks() {
    let world = World::new();
    for args in [&["show", "nothing"] as &[&str], &["run", "--help"], &["frobnicate"]] {
        let answer = world.fractal(args);
        assert!(!answer.out.contains('\x1b') && !answer.err.contains('\x1b'), "{args:?}");
    }
}
