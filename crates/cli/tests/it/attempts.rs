//! `try` and `compare` as scripts and people meet them.

use crate::world::{Answer, FRACTAL, World, able};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A project in which `a` must hold the word `right`.
fn project() -> World {
    let world = World::new();
    world.write("a", "wrong\n");
    world
}

const CHECK: &str = "test=grep -qx right a";

fn three(more: &[&str]) -> Vec<String> {
    let each = ["good=echo right > a", "bad=echo other > a", "ugly=echo x >&2; exit 101"];
    let mut args = vec!["try".to_owned(), "--check".to_owned(), CHECK.to_owned()];
    each.iter().for_each(|each| args.extend(["--each".to_owned(), (*each).to_owned()]));
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    args
}

fn call(world: &World, args: &[String]) -> Answer {
    world.fractal(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {}", answer.out))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map(|map| map.keys().map(String::as_str).collect()).unwrap_or_default()
}

#[test]
fn the_answer_has_the_fields_that_scripts_rely_on() {
    if !able() {
        return;
    }
    let world = project();
    let answer = call(&world, &three(&["--json"]));
    assert_eq!((answer.status, answer.err.as_str()), (0, ""));
    let reply = json_of(&answer);
    assert_eq!((&reply["winner"], &reply["base"]["kind"]), (&json!("good"), &json!("live")));
    assert_eq!(reply["base"]["behind"], 0);
    let first = &reply["attempts"][0];
    for name in [
        "name",
        "sandbox",
        "outcome",
        "exit",
        "checks",
        "score",
        "usage",
        "files_changed",
        "lines_changed",
        "rank",
        "why",
    ] {
        assert!(keys(first).contains(&name), "no `{name}` in {first}");
    }
    let check = &first["checks"][0];
    assert_eq!((&check["name"], &check["result"]), (&json!("test"), &json!("pass")));
    assert_eq!(check["required"], true);
    assert_eq!((&first["files_changed"], &first["lines_changed"]), (&json!(1), &json!(2)));
    let ugly = &reply["attempts"][2];
    assert_eq!((&ugly["exit"], &ugly["rank"]), (&json!(101), &Value::Null));
    assert_eq!(ugly["why"], "ruled out: exit 101");
}

#[test]
fn the_exit_status_says_whether_there_is_a_winner() {
    if !able() {
        return;
    }
    let world = project();
    let none = world.fractal(&["try", "--each", "exit 1", "--each", "exit 2", "--json"]);
    assert_eq!((none.status, &json_of(&none)["winner"]), (3, &Value::Null));
    let text = world.fractal(&["try", "--each", "exit 1"]);
    assert_eq!(text.status, 3);
    assert!(text.err.contains("none passes; reality is as it was"), "{}", text.err);
    // Times differ from run to run, and are no part of this.
    world.write("fractal.toml", "[try]\ncriteria = [\"lines\"]\n");
    let one = world.fractal(&["try", "-n", "2", "--", "sh", "-c", "echo $FRACTAL_ATTEMPT > n"]);
    assert_eq!(one.status, 0, "{}", one.err);
    assert!(one.out.contains("winner: a1 — exit 0; tie with a2"), "{}", one.out);
    assert!(one.err.contains("note: tie: a1 and a2; a1 was declared first"), "{}", one.err);
}

#[test]
fn the_table_reads_and_names_the_next_command() {
    if !able() {
        return;
    }
    let world = project();
    let answer = call(&world, &three(&[]));
    let lines: Vec<&str> = answer.out.lines().collect();
    assert!(lines[0].starts_with("#  attempt  checks    lines  files"), "{}", answer.out);
    assert!(lines[1].starts_with("1  good     ✓"), "{}", answer.out);
    assert!(lines[4].starts_with("   (base)   ✗"), "{}", answer.out);
    assert!(answer.out.contains("\nbad: ruled out: check `test` failed (exit 1)\n"));
    assert!(answer.out.contains("\nugly: ruled out: exit 101\n  | x\n"));
    assert!(answer.out.ends_with("winner: good — passes `test`; the only one not ruled out\n"));
    assert!(answer.out.lines().all(|line| line.chars().count() <= 80));
    assert!(!answer.out.contains('\x1b') && !answer.err.contains('\x1b'));
    assert!(answer.err.contains("next: fractal promote try-"), "{}", answer.err);
    // Without a terminal, one line when an attempt begins and one when it ends.
    assert!(answer.err.contains("good: running\n"), "{}", answer.err);
    let quiet = call(&world, &three(&["-q"]));
    assert_eq!(quiet.err, "");
}

#[test]
fn the_winner_can_be_promoted_at_once_and_taken_back() {
    if !able() {
        return;
    }
    let world = project();
    let read = || std::fs::read_to_string(world.project().join("a")).expect("it is there");
    let answer = call(&world, &three(&["--promote", "--json"]));
    assert_eq!(answer.status, 0, "{}", answer.err);
    assert_eq!(json_of(&answer)["promotion"]["verdict"], "applied");
    assert_eq!(read(), "right\n");
    world.ok(&["undo"]);
    assert_eq!(read(), "wrong\n");
    let args = ["try", "--promote", "--each", "echo x > a", "--check", "test=false"];
    assert_eq!(world.fractal(&args).status, 3);
    assert_eq!(read(), "wrong\n");
}

#[test]
fn a_project_can_declare_all_of_it() {
    if !able() {
        return;
    }
    let world = project();
    let text = "[[attempt]]\nname = \"good\"\ncommand = \"echo right > a\"\n\n\
                [[check]]\nname = \"test\"\ncommand = \"grep -qx right a\"\n";
    world.write("fractal.toml", text);
    let (status, reply) = world.json(&["try", "--json"]);
    assert_eq!((status, &reply["winner"]), (0, &json!("good")));
    let shown = world.ok(&["config", "show"]).out;
    assert!(shown.contains("check ") && shown.contains("test: grep -qx right a"), "{shown}");
    assert!(shown.contains("good: echo right > a"), "{shown}");
    world.write("fractal.toml", &format!("{text}tim = \"1s\"\n"));
    let bad = world.fractal(&["try"]);
    assert_eq!(bad.status, 2);
    assert!(bad.err.contains("fractal.toml:8: unknown field `tim`"), "{}", bad.err);
    assert!(bad.err.contains("`name`, `command`, `required`, `time`"), "{}", bad.err);
}

#[test]
fn what_makes_no_sense_is_refused_with_a_hint() {
    let world = World::new();
    let check = |args: &[&str], words: &str| {
        let answer = world.fractal(args);
        assert_eq!(answer.status, 2, "{args:?} {}", answer.err);
        assert!(answer.err.contains(words), "{args:?} {}", answer.err);
    };
    check(&["try"], "there is nothing to try");
    check(&["try", "-n", "3"], "required");
    check(&["try", "--", "true"], "required");
    check(&["try", "--each", "true", "-n", "2", "--", "true"], "cannot be used with");
    check(&["try", "--each", "a=true", "--each", "a=true"], "two attempts `a`");
    check(&["try", "--each", "true", "--check", "grep x"], "NAME=CMD");
    check(&["try", "--each", "true", "--base", "molten"], "live or frozen");
    check(&["try", "--each", "true", "--repeat", "0"], "above zero");
    check(&["compare", "x"], "required");
}

#[test]
fn sandboxes_are_compared_with_their_clashes_and_diffs() {
    if !able() {
        return;
    }
    let world = project();
    world.ok(&["run", "--name", "x", "--", "sh", "-c", "echo 1 > a; echo s > same"]);
    world.ok(&["run", "--name", "y", "--", "sh", "-c", "echo 2 > a; echo s > same; seq 40 > b"]);
    let text = world.ok(&["compare", "x", "y"]);
    assert!(text.out.contains("clash  a  (x y)\n"), "{}", text.out);
    assert!(text.out.contains("same   same  (x y)\n"), "{}", text.out);
    assert!(text.out.contains("winner: x — exit 0; against y: "), "{}", text.out);
    let with = world.ok(&["compare", "x", "y", "--diff", "a"]);
    assert!(with.out.contains("\nx (-) and y (+)\ndiff --git a/a b/a\n"), "{}", with.out);
    assert!(with.out.contains("-1\n+2\n") && !with.out.contains("+40\n"), "{}", with.out);
    let (_, reply) = world.json(&["compare", "x", "y", "--diff", "--json"]);
    assert_eq!((&reply["diffs"][0]["from"], &reply["diffs"][0]["to"]), (&json!("x"), &json!("y")));
    assert!(reply["diffs"][0]["patch"].as_str().is_some_and(|patch| patch.contains("+40\n")));
    assert_eq!(world.fractal(&["compare", "x", "z"]).status, 6);
}

#[test]
fn two_sandboxes_are_shown_side_by_side_with_their_base() {
    if !able() {
        return;
    }
    let world = project();
    world.ok(&[
        "run",
        "--name",
        "x",
        "--",
        "sh",
        "-c",
        "echo right > a; printf '漢字\\tx\\n' >> a",
    ]);
    world.ok(&["run", "--name", "y", "--", "sh", "-c", "echo right > a; echo more >> a"]);
    let answer = world.ok(&["compare", "x", "y", "-y", "--check", CHECK]);
    assert!(answer.out.contains("\n   (base)   ✗\n"), "{}", answer.out);
    let from = answer.out.find("\n   x  ").expect("the names stand above");
    let lines: Vec<&str> = answer.out[from + 1..].lines().collect();
    assert_eq!(lines[1..3], ["── a", "@@ -1,2 +1,2 @@"]);
    // 35 columns each, of which a wide character takes two.
    assert_eq!(lines[3], format!(" 1 {:<35}    1 right", "right"));
    assert_eq!(lines[4], format!(" 2 漢字    x{} |  2 more", " ".repeat(26)));
    let mut narrow = world.command(FRACTAL);
    narrow.env("COLUMNS", "40").args(["compare", "x", "y", "--side-by-side", "--diff", "a"]);
    let narrow = Answer::of(&mut narrow);
    assert!(narrow.out.contains(&format!(" 1 {:<15}    1 right\n", "right")), "{}", narrow.out);
    let (_, reply) = world.json(&["compare", "x", "y", "--json", "--check", CHECK]);
    assert_eq!(reply["base"]["checks"][0]["result"], "fail");
    let first = &reply["attempts"][0];
    assert_eq!((&first["outcome"], &first["exit"]), (&json!("exited"), &json!(0)));
}

#[test]
fn an_interrupt_ends_every_attempt_and_leaves_the_story() {
    if !able() {
        return;
    }
    let world = World::new();
    let mark = format!("95{}", std::process::id());
    let sleep = format!("sleep {mark}");
    let child = world
        .command(FRACTAL)
        .args(["try", "--jobs", "2", "--each", &sleep, "--each", &sleep, "--promote"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    until(|| count(&mark) == 2);
    let pid = child.id().to_string();
    assert!(
        Command::new("kill").args(["-INT", &pid]).status().is_ok_and(|status| status.success())
    );
    let answer = Answer::from(child.wait_with_output().expect("it ends"));
    assert_eq!(answer.status, 130, "{}", answer.err);
    until(|| count(&mark) == 0);
    let (_, list) = world.json(&["list", "--json"]);
    let names = list["sandboxes"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|info| info["name"].as_str()).collect();
    assert_eq!(names.len(), 2);
    let kept = answer.err.lines().find(|line| line.starts_with("kept: ")).expect("a line");
    assert!(names.iter().all(|name| kept.contains(name)), "{kept} {names:?}");
    let log = world.ok(&["log"]).out;
    assert!(log.contains("interrupted: 2 attempts"), "{log}");
    // What it left is in order, and can be dropped.
    world.ok(&["drop", "--all"]);
}

#[test]
fn the_log_is_of_this_directory_and_without_checks() {
    if !able() {
        return;
    }
    let world = project();
    call(&world, &three(&["-q"]));
    let verbs = |args: &[&str]| -> Vec<String> {
        let lines = world.ok(args).out;
        let verb = |line: &str| line.split_whitespace().nth(3).unwrap_or_default().to_owned();
        lines.lines().map(verb).collect()
    };
    assert_eq!(verbs(&["log"]), ["try", "run", "run", "run"]);
    // Two attempts came to be checked, and the base.
    let all = verbs(&["log", "--checks"]);
    assert_eq!(all.iter().filter(|verb| *verb == "check").count(), 3, "{all:?}");
    let (_, reply) = world.json(&["log", "--json"]);
    let records = reply["records"].as_array().into_iter().flatten();
    let checks = records.filter(|record| record["detail"]["kind"] == "check");
    assert!(checks.map(|record| &record["detail"]["check"]).all(|name| name == "test"));
    let other = world.root().to_string_lossy().into_owned();
    let nothing = world.ok(&["-C", &other, "log"]);
    assert_eq!(nothing.out, "");
    assert_eq!(nothing.err, "nothing happened in this directory (fractal log --all)\n");
    assert_eq!(verbs(&["-C", &other, "log", "--all"]).len(), 4);
}

/// Programs that run under this mark.
fn count(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("it is there").flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(format!("sleep\0{mark}").as_bytes())).count()
}

fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not come to pass");
        std::thread::sleep(Duration::from_millis(20));
    }
}
