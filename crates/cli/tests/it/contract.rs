//! Exit statuses that scripts rely on.

use crate::world::{Answer, World, able};

fn check(world: &World, args: &[&str], status: i32) {
    let answer = world.fractal(args);
    assert_eq!(answer.status, status, "fractal {args:?}: {}{}", answer.out, answer.err);
}

#[test]
fn a_programs_own_status_passes_through() {
    if !able() {
        return;
    }
    let world = World::new();
    for status in [0, 1, 2, 6, 42, 124, 125, 255] {
        check(&world, &["run", "--rm", "--", "sh", "-c", &format!("exit {status}")], status);
    }
    check(&world, &["run", "--rm", "--", "sh", "-c", "kill -TERM $$"], 128 + 15);
    check(&world, &["run", "--rm", "--", "no-such-program"], 127);
    check(&world, &["run", "--rm", "--", "/etc/passwd"], 126);
}

#[test]
fn limits_have_statuses_of_their_own() {
    if !able() {
        return;
    }
    let world = World::new();
    let started = std::time::Instant::now();
    let answer = world.fractal(&[
        "run",
        "--rm",
        "--time",
        "300ms",
        "--",
        "sh",
        "-c",
        "trap '' TERM INT; sleep 60",
    ]);
    assert_eq!((answer.status, answer.notes()), (124, vec!["stopped: time limit"]));
    assert!(started.elapsed().as_secs() < 20);
    let hog = "x=$(head -c 400000000 /dev/zero | tr '\\0' x); echo ${#x}";
    let answer = world.fractal(&["run", "--rm", "--memory", "32m", "--", "sh", "-c", hog]);
    assert_eq!(
        (answer.status, answer.notes().last().copied()),
        (137, Some("stopped: memory limit")),
        "{}",
        answer.err
    );
    let answer = world.fractal(&["run", "--rm", "--output", "100k", "--", "sh", "-c", "yes"]);
    assert_eq!(answer.notes().last().copied(), Some("stopped: output limit"));
}

#[test]
fn output_ends_at_its_limit() {
    let answer = World::new().fractal(&["run", "--rm", "--output", "100k", "--", "yes"]);
    assert!(answer.out.len() <= 300 << 10, "{} bytes came out", answer.out.len());
}

#[test]
fn refusals_tell_usage_denied_and_not_found_apart() {
    let world = World::new();
    check(&world, &["run", "--memory", "lots", "--", "true"], 2);
    check(&world, &["frobnicate"], 2);
    check(&world, &["show", "nothing"], 6);
    check(&world, &["diff"], 6);
    if !able() {
        return;
    }
    world.ok(&["run", "--name", "fenced", "--", "true"]);
    check(&world, &["run", "--in", "fenced", "--net", "host", "--", "true"], 4);
    check(&world, &["run", "--in", "nothing", "--", "true"], 6);
    check(&world, &["run", "--name", "fenced", "--", "true"], 125);
}

#[test]
fn words_around_a_run_do_not_reach_its_output() {
    if !able() {
        return;
    }
    let world = World::new();
    let answer = world.fractal(&["run", "--", "sh", "-c", "echo out; echo err >&2; touch new"]);
    assert_eq!((answer.status, answer.out.as_str()), (0, "out\n"));
    let lines = answer.notes();
    assert_eq!(lines[0], "err");
    assert!(lines.last().expect("a line").starts_with("kept "), "{lines:?}");
    let answer = world.fractal(&["run", "-q", "--", "sh", "-c", "echo err >&2; touch new"]);
    assert_eq!(answer.err, "err\n");
    assert!(!world.project().join("new").exists());
}

#[test]
fn a_run_without_changes_leaves_nothing() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&["run", "--", "true"]);
    world.ok(&["run", "--rm", "--", "touch", "new"]);
    let (_, list) = world.json(&["list", "--json"]);
    assert_eq!(list, serde_json::json!({ "sandboxes": [] }));
}

#[test]
fn input_and_variables_reach_the_program() {
    if !able() {
        return;
    }
    let world = World::new();
    let script = "echo one two | fractal run --rm -- wc -w; printf abc | fractal run --rm --json -- cat; \
                  fractal run --rm -- cat < /dev/null; \
                  TOKEN=t OTHER=o fractal run --rm -e TOKEN -e X=1 -- sh -c 'echo $TOKEN.$OTHER.$X'; \
                  FRACTAL_TIME=200ms fractal -q run --rm -- sleep 9; echo $?; \
                  fractal -C / run --rm -- pwd";
    let answer = crate::world::Answer::of(world.command("sh").args(["-c", script]));
    let lines: Vec<&str> = answer.out.lines().collect();
    assert_eq!(lines[0].trim(), "2");
    assert!(lines[1].contains("\"stdout\":\"abc\""), "{}", lines[1]);
    assert_eq!(&lines[2..], ["t..1", "124", "/"], "{}", answer.err);
}

#[test]
fn paths_can_be_fenced_and_the_plan_be_read() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("a", "1\n");
    world.write("secret", "2\n");
    let script = "echo 3 > a || echo refused; cat secret";
    let fenced = ["run", "--rm", "--ro", "a", "--hide", "secret", "--", "sh", "-c", script];
    assert_eq!(world.fractal(&fenced).out, "refused\n");
    let (_, plan) = world.json(&["run", "--explain", "--json", "--rm", "--", "true"]);
    assert!(plan["steps"].as_array().is_some_and(|steps| steps.len() > 10), "{plan}");
    let said = world.fractal(&["run", "--rm", "-v", "--", "true"]).err;
    assert!(said.contains("isolation: ") && said.contains("of cpu"), "{said}");
    let (_, freed) = world.json(&["gc", "--dry-run", "--json"]);
    assert_eq!(freed["expired"], serde_json::json!([]));
}

/// What a run used counts also when it was ended for it.
#[test]
fn a_run_that_is_ended_tells_what_it_used() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("busy.py", "x = b'1' * (50 << 20)\nwhile True: pass\n");
    let (status, reply) =
        world.json(&["run", "--rm", "--json", "--time", "2s", "--", "python3", "busy.py"]);
    assert_eq!((status, reply["outcome"].as_str()), (124, Some("timeout")));
    if reply["isolation"]["tier"] != "copied" {
        assert!(reply["usage"]["cpu_ms"].as_u64() > Some(200), "{reply}");
        assert!(reply["usage"]["memory_peak_bytes"].as_u64() > Some(50 << 20), "{reply}");
    }
}

#[test]
fn the_output_limit_bounds_what_is_passed_on() {
    if !able() {
        return;
    }
    let world = World::new();
    let answer = world.fractal(&["run", "-q", "--rm", "--output", "10k", "--", "yes"]);
    assert_eq!(answer.out.len(), 10 << 10, "{}", answer.err);
    let (_, reply) = world.json(&["run", "--rm", "--json", "--output", "10k", "--", "yes"]);
    assert_eq!(
        (reply["outcome"].as_str(), reply["truncated"].as_bool()),
        (Some("output"), Some(true))
    );
}

#[test]
fn a_dropped_sandbox_gives_its_run_an_answer() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&["run", "-q", "--name", "d", "--", "true"]);
    std::thread::scope(|scope| {
        let run =
            scope.spawn(|| world.json(&["run", "--in", "d", "--json", "--", "sleep", "1000"]));
        while !world.ok(&["list"]).out.contains("running") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        world.ok(&["drop", "d"]);
        let (status, reply) = run.join().expect("it ran");
        assert_eq!((status, reply["outcome"].as_str()), (137, Some("signalled")));
    });
    assert_eq!(world.fractal(&["show", "d"]).status, 6);
}

#[test]
fn a_fork_cannot_ask_for_more_network_than_its_parent_has() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&["run", "-q", "--name", "n", "--", "true"]);
    assert_eq!(world.fractal(&["fork", "n", "m", "--net", "host"]).status, 4);
    assert_eq!(world.fractal(&["fork", "n", "m", "--net", "allow:example.org"]).status, 4);
    world.ok(&["fork", "n", "m", "--net", "none"]);
}

#[test]
fn a_missing_layer_is_told_and_does_not_hide_other_sandboxes() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&["run", "-q", "--name", "whole", "--", "true"]);
    world.ok(&["run", "-q", "--name", "torn", "--", "touch", "f"]);
    let (_, list) = world.json(&["list", "--json"]);
    let torn = list["sandboxes"].as_array().expect("a list").iter().find(|s| s["name"] == "torn");
    let layers = world.state().join("layers");
    let (_, show) = world.json(&["show", "torn", "--json"]);
    let top = show["top"].as_str().or(torn.and_then(|torn| torn["top"].as_str()));
    match top {
        Some(top) => std::fs::remove_dir_all(layers.join(top)).expect("it is ours"),
        // The newest directory is the top of the sandbox that was made last.
        None => {
            let mut names: Vec<_> = std::fs::read_dir(&layers).expect("layers").flatten().collect();
            names.sort_by_key(std::fs::DirEntry::file_name);
            std::fs::remove_dir_all(names.last().expect("a layer").path()).expect("it is ours");
        }
    }
    assert!(world.ok(&["list"]).out.contains("whole"));
    let answer = world.fractal(&["run", "--in", "torn", "--", "true"]);
    assert_eq!(answer.status, 125, "{}", answer.err);
    assert!(answer.err.contains("missing") && answer.err.contains("fractal drop torn"));
    world.ok(&["drop", "torn"]);
    world.ok(&["run", "--in", "whole", "--", "true"]);
}

/// One path in a repository's own directory would spoil the whole patch.
#[test]
fn a_patch_applies_also_when_the_repository_itself_changed() {
    if !able() {
        return;
    }
    let world = World::new();
    let git = |args: &str| {
        let script = format!("git -c user.name=n -c user.email=e@x {args}");
        Answer::of(world.command("sh").args(["-c", &script]))
    };
    world.write("a", "one\n");
    assert_eq!(
        git("init -q . && git add a && git -c user.name=n -c user.email=e@x commit -qm 1").status,
        0
    );
    let script = "echo two >> a; mkdir d; echo x > d/f; \
                  git -c user.name=n -c user.email=e@x commit -qam 2";
    world.ok(&["run", "-q", "--name", "g", "--", "sh", "-ec", script]);
    let diff = world.ok(&["diff", "g"]);
    assert!(!diff.out.contains(".git/"), "{}", diff.out);
    assert!(diff.err.contains("cannot hold"), "{}", diff.err);
    world.write("../p", &diff.out);
    let applied = git("apply ../p");
    assert_eq!(applied.status, 0, "{}", applied.err);
    assert_eq!(std::fs::read_to_string(world.project().join("d/f")).expect("it came"), "x\n");
}

/// A program can nest directories deeper than any path reaches.
#[test]
fn what_is_too_deep_does_not_hide_other_changes() {
    if !able() {
        return;
    }
    let world = World::new();
    let script = "echo x > shallow; i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done; \
                  echo y > deep";
    world.ok(&["run", "-q", "--name", "x", "--", "sh", "-c", script]);
    let patch = world.ok(&["diff", "x"]);
    assert!(patch.out.contains("+++ b/shallow"), "{}", patch.out);
    assert!(patch.err.contains("too deep"), "{}", patch.err);
    world.write("../p", &patch.out);
    let applied = Answer::of(world.command("git").args(["apply", "../p"]));
    assert_eq!(applied.status, 0, "{}", applied.err);
    let (status, reply) = world.json(&["diff", "x", "--json"]);
    assert_eq!((status, reply["truncated"].as_bool()), (0, Some(true)));
    assert!(reply["changes"].as_array().is_some_and(|list| list.len() > 200), "{reply}");
    let (_, show) = world.json(&["show", "x", "--json"]);
    assert!(show["changes"].as_u64() > Some(200), "{show}");
    // Whoever would carry the changes elsewhere does not do so by half.
    let export = world.fractal(&["export", "x", "-o", "x.tar.zst"]);
    assert_eq!(export.status, 125, "{}", export.err);
    assert!(export.err.contains("hint: ") && !world.project().join("x.tar.zst").exists());
    world.ok(&["drop", "x"]);
}

#[test]
fn short_forms_of_a_diff_name_paths_as_people_do() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("old", "1\n");
    // The copy of a project is all that there is in the tier `copied`.
    let script = "echo 2 > old; mkdir d; echo 3 > 'd/a b'; echo 4 > ../beside; chmod 700 .; true";
    world.ok(&["run", "-q", "--name", "x", "--", "sh", "-c", script]);
    let root = world.root().canonicalize().expect("it exists").display().to_string();
    let out = world.ok(&["diff", "x", "--name-status"]).out;
    let lines: Vec<&str> = out.lines().filter(|line| *line != "M\t./").collect();
    assert_eq!(lines[..3], ["A\td/", "A\td/a b", "M\told"], "{out}");
    let outside = format!("A\t{root}/beside");
    assert!(lines[3..].is_empty() || lines[3..] == [outside.as_str()], "{out}");
    let stat = world.ok(&["diff", "x", "--stat"]).out;
    assert!(stat.starts_with(" d/a b "), "{stat}");
    assert_eq!(stat.contains("/beside "), lines.len() == 4, "{stat}");
    let (_, reply) = world.json(&["diff", "x", "--json"]);
    let paths = reply["changes"].as_array().expect("a list");
    assert!(paths.iter().all(|change| change["path"].as_str().expect("text").starts_with('/')));
}
