//! Each bad input gives one clear error with a hint, and loses nothing.

use crate::world::{Answer, World, able, is_root};

/// One `error:` line, one `hint:` line, nothing else.
fn assert_clear(answer: &Answer, status: i32, message: &str) {
    let lines: Vec<&str> = answer.err.lines().collect();
    assert_eq!(answer.status, status, "{lines:?}");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("error: ") && lines[0].contains(message), "{lines:?}");
    assert!(lines[1].starts_with("hint: "), "{lines:?}");
    assert_eq!(answer.out, "");
}

/// Flags that only a new sandbox can follow are not silently ignored.
#[test]
fn flags_for_a_new_sandbox_on_one_that_exists() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&["run", "-q", "--name", "x", "--", "true"]);
    for flag in [["--template", "standard"], ["--ttl", "1d"], ["--base", "frozen"]] {
        let answer = world.fractal(&[&["run", "--in", "x"], &flag[..], &["--", "true"]].concat());
        assert_clear(&answer, 2, &format!("{} is for a new sandbox", flag[0]));
    }
    assert_clear(&world.fractal(&["enter", "x", "--template", "standard"]), 2, "--template");
    // Variables are defaults for sandboxes to come.
    let mut command = world.command(crate::world::FRACTAL);
    command.envs([
        ("FRACTAL_TEMPLATE", "standard"),
        ("FRACTAL_TTL", "1d"),
        ("FRACTAL_BASE", "frozen"),
    ]);
    let answer = Answer::of(command.args(["run", "-q", "--in", "x", "--", "true"]));
    assert_eq!(answer.status, 0, "{}", answer.err);
}

#[test]
fn arguments_that_make_no_sense() {
    let world = World::new();
    let check = |args: &[&str], status: i32, message: &str| {
        assert_clear(&world.fractal(args), status, message);
    };
    check(&["run", "--memory", "5 apples", "--", "true"], 2, "--memory: `5 apples` is not a size");
    check(&["run", "--memory", "0", "--", "true"], 2, "--memory: `0` is not above zero");
    check(&["run", "--disk", "1e9x", "--", "true"], 2, "--disk");
    check(&["run", "--time", "1y", "--", "true"], 2, "--time: `1y` is not a duration");
    check(&["run", "--cpus", "inf", "--", "true"], 2, "--cpus");
    check(&["run", "--cpus", "0", "--", "true"], 2, "--cpus");
    check(&["run", "--pids", "many", "--", "true"], 2, "--pids: `many` is not a count");
    check(&["run", "--net", "allow:", "--", "true"], 2, "--net");
    check(&["run", "--isolation", "total", "--", "true"], 2, "--isolation");
    check(&["run", "--rm", "--name", "x", "--", "true"], 2, "'--rm' cannot be used with '--name");
    check(&["run", "--name", "y", "--in", "x", "--", "true"], 2, "cannot be used with");
    check(&["run", "--rm"], 2, "required");
    check(&["run", "-e", "=x", "--", "true"], 2, "has no name");
    check(&["run", "--memry", "5m", "--", "true"], 2, "--memry");
    check(&["volume"], 2, "requires a subcommand");
    check(&["help", "frobnicate"], 6, "frobnicate");
    check(&["drop"], 2, "required");
    check(&["-C", "/no/such/directory", "list"], 6, "/no/such/directory");
    for verb in ["show", "diff", "drop", "snapshot", "export"] {
        let rest: &[&str] = if verb == "export" { &["-o", "x.tar.zst"] } else { &[] };
        let answer = world.fractal(&[&[verb, "nothing"], rest].concat());
        assert_eq!(answer.status, 6, "{verb}: {}", answer.err);
    }
    check(&["rollback", "nothing", "s"], 6, "there is no sandbox `nothing`");
    let answer = world.fractal(&["import", "missing.tar.zst"]);
    assert_eq!(answer.status, 6, "{}", answer.err);
    check(&["volume", "create", "../escape"], 2, "is not a name");
}

#[test]
fn runs_that_cannot_be() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("file", "x");
    let check = |args: &[&str], status: i32, message: &str| {
        assert_clear(&world.fractal(args), status, message);
    };
    check(&["run", "-w", "/no/such", "--", "true"], 6, "/no/such");
    check(&["run", "-w", "file", "--", "true"], 6, "file");
    check(&["run", "--in", "nothing", "--", "true"], 6, "there is no sandbox `nothing`");
    check(&["run", "--template", "nothing", "--", "true"], 6, "there is no template `nothing`");
    check(&["run", "--name", "-bad-", "--", "true"], 2, "");
    check(&["run", "--name", "a/b", "--", "true"], 2, "is not a name");
    world.write("fractal.toml", "memroy = 5\n");
    check(&["run", "--rm", "--", "true"], 2, "fractal.toml:1: unknown field `memroy`");
}

/// One status for all that has none of its own; the code and the hint tell.
#[test]
fn names_that_are_taken() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&["run", "-q", "--name", "x", "--", "touch", "f"]);
    world.ok(&["snapshot", "x", "s"]);
    world.ok(&["volume", "create", "v"]);
    world.ok(&["export", "x", "-o", "x.tar.zst"]);
    let calls: &[&[&str]] = &[
        &["run", "--name", "x", "--", "true"],
        &["fork", "x", "x"],
        &["snapshot", "x", "s"],
        &["volume", "create", "v"],
        &["import", "x.tar.zst", "--name", "x"],
    ];
    for args in calls {
        assert_clear(&world.fractal(args), 125, "already");
        let (status, reply) = world.json(&[&["--json"], *args].concat());
        assert_eq!((status, reply["error"]["code"].as_str()), (125, Some("exists")), "{args:?}");
    }
}

/// Looking and cleaning up need no settings; a run does.
#[test]
fn settings_that_cannot_be_read() {
    let world = World::new();
    if able() {
        world.ok(&["run", "-q", "--name", "x", "--", "touch", "f"]);
    }
    world.write("fractal.toml", "net = \"none\"\nmemroy = 5\n");
    let free: &[&[&str]] = &[
        &["list"],
        &["log"],
        &["config", "show"],
        &["gc"],
        &["show", "x"],
        &["diff", "x"],
        &["drop", "x"],
    ];
    for args in free.iter().filter(|args| able() || args.len() < 2 || args[0] == "config") {
        let answer = world.ok(args);
        let warnings = answer.err.lines().filter(|line| line.starts_with("warning: "));
        let warnings: Vec<&str> = warnings.collect();
        assert_eq!(warnings.len(), 1, "{args:?}: {}", answer.err);
        assert!(warnings[0].contains("fractal.toml:2: unknown field `memroy`"), "{warnings:?}");
    }
    assert!(world.fractal(&["doctor"]).err.contains("fractal.toml:2: "));
    let run = ["run", "--rm", "--", "true"];
    assert_clear(
        &world.fractal(&run),
        2,
        "fractal.toml:2: unknown field `memroy`, expected one of `template`",
    );
    world.write("fractal.toml", "[limits]\nmemory = \"5 apples\"\n");
    assert_clear(
        &world.fractal(&run),
        2,
        "fractal.toml:2: limits.memory: `5 apples` is not a size",
    );
    world.write("fractal.toml", "net = \"some\"\n");
    let answer = world.fractal(&run);
    assert_clear(&answer, 2, "fractal.toml:1: net: ");
    assert!(answer.err.contains("none"), "{}", answer.err);
}

#[test]
fn state_directories_that_cannot_be_used() {
    let world = World::new();
    let check = |home: &std::path::Path, status: i32, message: &str| {
        let answer =
            Answer::of(world.command(crate::world::FRACTAL).arg("list").env("FRACTAL_HOME", home));
        assert_clear(&answer, status, message);
    };
    world.write("file", "x");
    check(&world.project().join("file/state"), 4, "file");
    check(&world.project().join("file"), 4, "file");

    let damaged = world.root().join("damaged");
    std::fs::create_dir(&damaged).expect("a directory");
    let garbage = vec![b'x'; 8192];
    std::fs::write(damaged.join("state.db"), &garbage).expect("a file");
    check(&damaged, 125, "damaged");
    assert_eq!(std::fs::read(damaged.join("state.db")).expect("it is there"), garbage);
    let doctor = |args: &[&str]| {
        Answer::of(
            world
                .command(crate::world::FRACTAL)
                .arg("doctor")
                .args(args)
                .env("FRACTAL_HOME", &damaged),
        )
    };
    assert_eq!(doctor(&[]).status, 125);
    let repaired = doctor(&["--repair"]);
    assert!(
        repaired.out.contains("repaired: moved the damaged state.db"),
        "{}{}",
        repaired.out,
        repaired.err
    );
    let kept = std::fs::read_dir(&damaged).expect("it is there").flatten();
    let kept = kept.filter(|entry| std::fs::read(entry.path()).is_ok_and(|bytes| bytes == garbage));
    assert_eq!(kept.count(), 1, "the damaged file is put aside, not lost");
}

#[test]
fn a_state_directory_of_a_newer_version_is_left_alone() {
    let world = World::new();
    world.ok(&["list"]);
    let db = world.state().join("state.db");
    let mut bytes = std::fs::read(&db).expect("it is there");
    // SQLite keeps the application's format number at this place.
    const USER_VERSION: std::ops::Range<usize> = 60..64;
    bytes[USER_VERSION].copy_from_slice(&9_999u32.to_be_bytes());
    for name in ["state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(world.state().join(name));
    }
    std::fs::write(&db, &bytes).expect("it can be written");
    assert_clear(&world.fractal(&["list"]), 125, "newer fractal");
    assert_eq!(std::fs::read(&db).expect("it is there"), bytes);
}

/// Calls fractal where `mount` put something at its state directory.
fn with_mount(world: &World, options: &str, args: &str) -> Option<Answer> {
    if !is_root() {
        eprintln!("skipped: no right to mount");
        return None;
    }
    let state = world.state().display().to_string();
    let script = format!(
        "mkdir -p {state} && mount -t tmpfs -o {options} none {state} && exec fractal {args}"
    );
    Some(Answer::of(world.command("unshare").args(["-m", "sh", "-c", &script])))
}

#[test]
fn a_read_only_home() {
    let world = World::new();
    let Some(answer) = with_mount(&world, "ro", "list") else { return };
    assert_clear(&answer, 4, "ead-only");
}

#[test]
fn a_full_disk() {
    // From too small for a database to too small for one more record.
    for size in ["size=16k", "size=64k", "size=128k"] {
        let world = World::new();
        let Some(answer) = with_mount(&world, size, "run --name x -- true") else { return };
        assert_clear(&answer, 125, "space");
    }
}
