//! Stages as scripts meet them: exit statuses, JSON, and a bad `fractal.toml`.

use crate::world::{Answer, World, able};

pub const CHECK: &str = "[[check]]\nname = \"good\"\ncommand = \"! grep -q bad app\"\n";

/// A project with stages and a sandbox `s` that changed a file.
pub fn staged(stages: &str, script: &str) -> World {
    let world = World::new();
    world.write("app", "v0\n");
    world.write("fractal.toml", &format!("{CHECK}{stages}"));
    world.ok(&["run", "--name", "s", "--", "sh", "-c", script]);
    world
}

fn last_lines(answer: &Answer, count: usize) -> Vec<&str> {
    let lines = answer.notes();
    lines[lines.len().saturating_sub(count)..].to_vec()
}

#[test]
fn a_bad_file_is_named_by_line_and_nothing_runs() {
    let check = |stages: &str, line: u32, words: &[&str]| {
        let world = World::new();
        world.write("fractal.toml", &format!("{CHECK}{stages}"));
        for args in [&["run", "--", "touch", "made"][..], &["stages"], &["promote", "s"]] {
            let answer = world.fractal(args);
            assert_eq!(answer.status, 2, "{}", answer.err);
            let place = format!("fractal.toml:{line}: ");
            assert!(answer.err.contains(&place), "{place} {}", answer.err);
            assert!(words.iter().all(|word| answer.err.contains(word)), "{words:?} {}", answer.err);
        }
        assert!(!world.project().join("made").exists());
        let (_, list) = world_without_file(&world).json(&["list", "--json"]);
        assert_eq!(list["sandboxes"].as_array().map(Vec::len), Some(0));
    };
    check("[[stage]]\nnmae = \"dev\"\n", 5, &["unknown field `nmae`", "`name`", "`approve`"]);
    check("[[stage]]\nchecks = [\"god\"]\n", 5, &["no check `god`", "there are: good"]);
    check("[[stage]]\n[[stage]]\nwait = \"5 apples\"\n", 6, &["5 apples", "ms, s, m, h or d"]);
    check("[[stage]]\nfreeze = [\"weekend\"]\n", 5, &["weekend", "fri 16:00-mon 08:00"]);
    check("[[stage]]\ngit = \"b\"\n[[stage]]\ngit = \"b\"\n", 6, &["cycle", "of its own"]);
    check("[[stage]]\nname = \"x y\"\n", 5, &["letters, digits"]);
    check(
        "[[stage]]\n[[stage]]\ngit = \"git:bad..name\"\n",
        6,
        &["stage.git", "`bad..name` is no name for a branch", "`..`", "release/1.2"],
    );
}

fn world_without_file(world: &World) -> &World {
    std::fs::remove_file(world.project().join("fractal.toml")).expect("it was written");
    world
}

#[test]
fn exit_statuses_tell_gate_approval_and_conflict_apart() {
    if !able() {
        return;
    }
    let world = staged("[[stage]]\n[[stage]]\napprove = 1\n", "echo bad > app");
    let answer = world.fractal(&["promote", "s"]);
    assert_eq!(answer.status, 3, "{}", answer.err);
    assert!(answer.err.contains("nothing was written into verified"), "{}", answer.err);
    world.ok(&["run", "--in", "s", "--", "sh", "-c", "echo v1 > app"]);
    let answer = world.fractal(&["promote", "s", "--to", "dev"]);
    assert_eq!(answer.status, 4, "{}", answer.err);
    assert_eq!(
        last_lines(&answer, 3),
        [
            "came through verified",
            "error: `dev` needs 1 approval of exactly this, and has 0; nothing was written into dev",
            "hint: somebody other than owner types `fractal approve verified`",
        ]
    );
    assert_eq!(world.fractal(&["approve"]).status, 4, "the author does not count");
    let (status, vote) = world.json(&["--who", "bob", "approve", "--json"]);
    assert_eq!(
        (status, vote["stage"].as_str(), vote["needed"].as_u64()),
        (0, Some("dev"), Some(1))
    );
    assert_eq!(world.fractal(&["--who", "cid", "reject", "verified", "-m", "no"]).status, 0);
    assert_eq!(world.fractal(&["promote", "verified"]).status, 4);
    world.ok(&["--who", "bob", "approve", "--stage", "dev"]);
    let (status, reply) = world.json(&["promote", "verified", "--json"]);
    assert_eq!((status, reply["stage"].as_str()), (0, Some("dev")));
    assert_eq!(reply["verdict"], "applied");
    let (_, stages) = world.json(&["stages", "--json"]);
    assert_eq!(stages["stages"][1]["stands"]["approvals"][0], "bob");
    assert_eq!(stages["stages"][1]["stands"]["checks"][0]["result"], "pass");
    assert_eq!(stages["stages"][0]["kind"], "virtual");

    world.ok(&["run", "--name", "t", "--", "sh", "-c", "echo other > app"]);
    assert_eq!(world.fractal(&["promote", "t"]).status, 5);
    assert_eq!(world.fractal(&["promote", "t", "--to", "nowhere"]).status, 6);
    assert_eq!(world.fractal(&["promote", "t", "--to", "reality"]).status, 4);
    assert_eq!(world.fractal(&["run", "--in", "dev", "--", "true"]).status, 4);
    assert_eq!(world.fractal(&["--who", "a b", "stages"]).status, 2);
    let log = world.ok(&["log", "-n", "40"]).out;
    for words in
        ["1 path into verified", "1 path from verified: no", "denied: from verified: `dev`"]
    {
        assert!(log.contains(words), "{words}: {log}");
    }
}

#[test]
fn without_stages_there_is_nothing_to_show_or_approve() {
    let world = World::new();
    assert_eq!(world.fractal(&["stages"]).status, 6);
    assert_eq!(world.fractal(&["approve"]).status, 2);
}
