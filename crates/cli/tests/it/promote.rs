//! `promote`, `undo`, `update`, `guard` and `verify` from outside: fields and
//! statuses that scripts rely on, and what a person reads.

use crate::world::{Answer, FRACTAL, World, able};
use serde_json::json;

fn world(files: &[(&str, &str)]) -> Option<World> {
    if !able() {
        return None;
    }
    let world = World::new();
    files.iter().for_each(|(name, text)| world.write(name, text));
    Some(world)
}

fn read(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.project().join(name)).expect("it is there")
}

fn make(world: &World, name: &str, script: &str) {
    world.ok(&["run", "--name", name, "--", "sh", "-c", script]);
}

#[test]
fn the_answer_has_the_fields_that_scripts_read() {
    let Some(world) = world(&[("a", "1\n")]) else { return };
    make(&world, "s", "echo 2 > a; echo n > new");
    let (status, reply) = world.json(&["promote", "s", "--json"]);
    assert_eq!((status, &reply["stage"]), (0, &json!("reality")));
    let at = |name: &str| world.project().join(name).canonicalize().expect("it exists");
    let applied = json!([
        { "path": at("a"), "kind": "modified" },
        { "path": at("new"), "kind": "added" },
    ]);
    assert_eq!(reply["applied"], applied);
    assert_eq!(reply["conflicts"], json!([]));
    let undo = reply["undo"].as_str().expect("an id").to_owned();
    let (status, reply) = world.json(&["undo", &undo, "--json"]);
    assert_eq!((status, reply["applied"].as_array().map(Vec::len)), (0, Some(2)));
    assert_eq!(read(&world, "a"), "1\n");
    assert_eq!(world.fractal(&["undo"]).status, 6, "there is nothing left to take back");
}

#[test]
fn statuses_tell_gate_denial_and_conflict_apart() {
    let Some(world) = world(&[("a", "1\n")]) else { return };
    make(&world, "s", "echo 2 > a");
    let (status, reply) = world.json(&["promote", "s", "--check", "no=false", "--json"]);
    assert_eq!((status, &reply["verdict"]), (3, &json!("gate")));
    assert_eq!(reply["checks"][0]["result"], "fail");
    let (status, reply) = world.json(&["promote", "s", "--check", "gone=no-such-thing", "--json"]);
    assert_eq!((status, &reply["checks"][0]["result"]), (3, &json!("error")));
    make(&world, "sly", "echo x > .envrc");
    let answer = world.fractal(&["promote", "sly"]);
    assert_eq!(answer.status, 4);
    assert!(answer.err.contains("hint: ") && answer.err.contains(".envrc"), "{}", answer.err);
    world.write("a", "3\n");
    let (status, reply) = world.json(&["promote", "s", "--json"]);
    assert_eq!((status, reply["conflicts"].as_array().map(Vec::len)), (5, Some(1)));
    assert_eq!((read(&world, "a").as_str(), &reply["undo"]), ("3\n", &json!(null)));
    assert_eq!(world.fractal(&["promote", "nobody"]).status, 6);
    assert_eq!(world.fractal(&["promote", "s", "--as", "tarball"]).status, 2);
    assert_eq!(world.fractal(&["promote", "s", "--check", "nameless"]).status, 2);
}

#[test]
fn what_only_makes_a_patch_or_a_commit_does_not_say_applied() {
    let Some(world) = world(&[("a", "1\n")]) else { return };
    let git = |args: &[&str]| {
        let mut git = world.command("git");
        git.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(args);
        assert!(git.status().is_ok_and(|status| status.success()), "git {args:?}");
    };
    git(&["init", "-q"]);
    git(&["config", "user.name", "t"]);
    git(&["config", "user.email", "t@example.org"]);
    git(&["add", "a"]);
    git(&["commit", "-qm", "first"]);
    make(&world, "s", "echo 2 > a");
    for (form, stage) in
        [(&["patch"][..], "patch"), (&["commit"], "commit"), (&["branch", "b"], "git:b")]
    {
        let mut args = vec!["promote", "s", "--json", "--as"];
        args.extend(form);
        let (status, reply) = world.json(&args);
        assert_eq!(
            (status, &reply["verdict"], &reply["stage"]),
            (0, &json!("made"), &json!(stage))
        );
        assert_eq!((read(&world, "a").as_str(), &reply["undo"]), ("1\n", &json!(null)));
        assert!(reply["made"].is_string(), "{reply}");
    }
}

#[test]
fn what_is_equal_already_is_nothing_to_promote() {
    let Some(world) = world(&[("a", "1\n"), ("gone", "1\n")]) else { return };
    make(&world, "s", "echo 2 > a; rm gone; echo 3 > b");
    world.ok(&["promote", "s", "--only", "a", "gone"]);
    for path in ["a", "gone"] {
        let again = world.ok(&["promote", "s", "--only", path]);
        assert_eq!(again.notes().last(), Some(&"nothing to promote into reality: already equal"));
    }
    let unknown = world.fractal(&["promote", "s", "--only", "nowhere"]);
    assert_eq!(unknown.status, 6, "{}", unknown.err);
    assert!(unknown.err.contains("`s` has nothing at "), "{}", unknown.err);
    assert!(!world.project().join("b").exists());
}

#[test]
fn any_name_can_be_chosen() {
    use std::os::unix::ffi::OsStrExt;
    let Some(world) = world(&[("b", "1\n")]) else { return };
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let write = |text: &str| std::fs::write(world.project().join(name), text).expect("written");
    write("1\n");
    make(&world, "s", "for f in *; do echo 2 > $f; done");
    let call = |verb: &str, flag: &str| {
        let mut command = world.command(FRACTAL);
        Answer::of(command.args([verb, "s", flag]).arg(name)).status
    };
    assert_eq!(call("promote", "--only"), 0);
    let bytes = std::fs::read(world.project().join(name)).expect("it is there");
    assert_eq!((bytes.as_slice(), read(&world, "b").as_str()), (&b"2\n"[..], "1\n"));
    // The other side moves on, and so does ours.
    world.ok(&["run", "--in", "s", "--", "sh", "-c", "for f in c*; do echo 3 > $f; done"]);
    write("4\n");
    assert_eq!(world.fractal(&["update", "s"]).status, 5);
    assert_eq!(call("update", "--ours"), 0);
    write("5\n");
    assert_eq!(world.fractal(&["promote", "s"]).status, 5);
    assert_eq!(call("promote", "--theirs"), 0);
    assert_eq!(read(&world, "b"), "2\n");
}

#[test]
fn an_attestation_that_does_not_hold_has_a_status_of_its_own() {
    let Some(world) = world(&[("a", "1\n")]) else { return };
    make(&world, "s", "echo 2 > a");
    let (_, reply) = world.json(&["promote", "s", "--json"]);
    let undo = reply["undo"].as_str().expect("an id");
    assert_eq!(world.fractal(&["verify"]).status, 0);
    let file = world.state().join("undo").join(undo).join("attestation.json");
    let text = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, text.replace("\"sig\":\"", "\"sig\":\"AAAA")).expect("written");
    let broken = world.fractal(&["verify"]);
    assert_eq!(broken.status, 3, "{}", broken.err);
    assert!(broken.err.contains("does not hold"), "{}", broken.err);
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(world.fractal(&["verify"]).status, 6);
}

#[test]
fn a_guard_promotes_only_what_succeeds_and_passes() {
    let Some(world) = world(&[("a", "1\n")]) else { return };
    let guard = |script: &str| {
        world.fractal(&[
            "guard",
            "--check",
            "small=test $(wc -c < a) -lt 9",
            "--",
            "sh",
            "-c",
            script,
        ])
    };
    let failed = guard("echo 2 > a; exit 7");
    assert_eq!((failed.status, read(&world, "a").as_str()), (7, "1\n"));
    assert!(failed.err.contains("not promoted: exit status 7"), "{}", failed.err);
    let refused = guard("echo much too long a line > a");
    assert_eq!((refused.status, read(&world, "a").as_str()), (3, "1\n"));
    assert_eq!(guard("true").status, 0);
    let passed = guard("echo out; echo 3 > a");
    assert_eq!((passed.status, read(&world, "a").as_str()), (0, "3\n"), "{}", passed.err);
    assert!(passed.out.starts_with("out\n"), "{}", passed.out);
    let (_, log) = world.json(&["log", "--json"]);
    let records = log["records"].as_array().expect("a list");
    let stories = records.iter().filter(|record| record["action"] == "guard").count();
    assert_eq!(stories, 4, "one record each tells the story");
}

#[test]
fn staleness_is_said_and_a_disjoint_promotion_succeeds() {
    let Some(world) = world(&[("a", "1\n"), ("b", "1\n"), ("c", "1\n"), ("d", "1\n")]) else {
        return;
    };
    make(&world, "s", "echo 2 > d");
    for name in ["a", "b", "c"] {
        world.write(name, "edited\n");
    }
    let shown = world.ok(&["show", "s"]);
    assert!(format!("{}{}", shown.out, shown.err).contains("3 files changed"), "{}", shown.out);
    world.ok(&["promote", "s"]);
    assert_eq!((read(&world, "a").as_str(), read(&world, "d").as_str()), ("edited\n", "2\n"));
}

#[test]
fn an_update_moves_and_a_promotion_verifies() {
    let Some(world) = world(&[("a", "1\n2\n3\n4\n")]) else { return };
    make(&world, "s", "sed -i s/1/one/ a");
    world.write("a", "1\n2\n3\nfour\n");
    assert_eq!(world.ok(&["update", "s"]).out, "M\ta (joined with an edit outside)\n");
    world.ok(&["promote", "s"]);
    assert_eq!(read(&world, "a"), "one\n2\n3\nfour\n");
    let verified = world.ok(&["verify"]);
    assert!(verified.err.contains("the attestation holds"), "{}", verified.err);
    let (_, reply) = world.json(&["verify", "--json"]);
    assert_eq!(reply["statement"]["_type"], "https://in-toto.io/Statement/v1");
}

#[test]
fn a_killed_promotion_is_finished_or_undone_by_the_next_command() {
    let Some(world) = world(&[]) else { return };
    for n in 0..300 {
        world.write(&format!("f{n}"), "old\n");
    }
    make(&world, "s", "for f in f*; do echo new > $f; done");
    let mut outcomes = std::collections::BTreeSet::new();
    for delay_ms in [0, 5, 10, 20, 30, 50, 80, 120] {
        let mut child = world.command(FRACTAL).args(["promote", "s"]).spawn().expect("it starts");
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        world.ok(&["list"]);
        let new = (0..300).filter(|n| read(&world, &format!("f{n}")) == "new\n").count();
        assert!(new == 0 || new == 300, "{new} of 300 are new after {delay_ms} ms");
        let entries = std::fs::read_dir(world.project()).expect("it is there").count();
        assert_eq!(entries, 300, "nothing of ours is left");
        outcomes.insert(new);
        if new == 300 {
            world.ok(&["undo"]);
            assert_eq!(read(&world, "f7"), "old\n");
        }
    }
    assert!(outcomes.contains(&0), "the first was killed before it began");
}

#[test]
fn what_chose_an_attempt_judges_its_promotion_too() {
    let Some(world) = world(&[("a", "1\n")]) else { return };
    world.ok(&["try", "--check", "free=test ! -e taken", "--each", "echo 2 > a"]);
    world.write("taken", "");
    let (status, reply) = world.json(&["promote", "--json"]);
    assert_eq!((status, &reply["checks"][0]["name"]), (3, &json!("free")));
    std::fs::remove_file(world.project().join("taken")).expect("it is there");
    world.ok(&["promote"]);
    assert_eq!(read(&world, "a"), "2\n");
}

#[test]
fn quiet_leaves_out_notes_and_never_why_nothing_was_done() {
    let Some(world) = world(&[("a", "1\n")]) else { return };
    make(&world, "s", "echo 2 > a");
    world.write("a", "3\n");
    let answer = world.fractal(&["-q", "promote", "s"]);
    assert!(answer.status == 5 && answer.err.contains("conflict: a:"), "{}", answer.err);
    world.write("a", "1\n");
    let answer = world.fractal(&["-q", "promote", "s"]);
    assert_eq!((answer.status, answer.err.as_str()), (0, ""));
    assert_eq!(world.fractal(&["try", "--rank", "copland", "--each", "true"]).status, 2);
}

#[test]
fn the_gate_is_the_projects_and_only_grows() {
    let Some(world) = world(&[("a", "1\n")]) else { return };
    world.write("fractal.toml", "[[check]]\nname = \"x\"\ncommand = \"false\"\n");
    make(&world, "s", "echo 2 > a");
    let project = world.project().display().to_string();
    let elsewhere = world.root().display().to_string();
    for directory in [&project, &elsewhere] {
        assert_eq!(world.fractal(&["-C", directory, "promote", "s"]).status, 3, "{directory}");
    }
    assert_eq!(world.fractal(&["promote", "s", "--check", "x=true"]).status, 3);
    let (ours, theirs) = (["--ours", "a"], ["--theirs", "a"]);
    let both = [&["promote", "s"][..], &ours, &theirs].concat();
    assert_eq!(world.fractal(&both).status, 2, "one path cannot be both");
    assert_eq!(read(&world, "a"), "1\n");
}

#[test]
fn a_link_in_the_place_of_a_watched_directory_needs_a_word() {
    let Some(world) = world(&[]) else { return };
    make(&world, "s", "mkdir d; echo {} > d/tasks.json; ln -s d .vscode");
    let answer = world.fractal(&["promote", "s"]);
    assert!(answer.status == 4 && answer.err.contains(".vscode"), "{}", answer.err);
}
