//! Exit statuses that scripts rely on.

use crate::world::{World, able};

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
