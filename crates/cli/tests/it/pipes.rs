//! Ends of pipes, terminals and processes that go away.

use crate::world::{Answer, FRACTAL, World, able};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[test]
fn a_reader_that_left_ends_us_quietly() {
    let world = World::new();
    if able() {
        world.ok(&["run", "--name", "x", "--", "sh", "-c", "seq 100000 > numbers"]);
    }
    let calls: &[&[&str]] = &[
        &["list"],
        &["list", "--json"],
        &["log"],
        &["help", "run"],
        &["completions", "bash"],
        &["diff", "x"],
        &["--help"],
        &["config", "show"],
    ];
    for args in calls {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let answer = Answer::of(world.command(FRACTAL).args(*args).stdout(writer));
        if *args == ["diff", "x"] && !able() {
            continue;
        }
        assert!(
            !answer.err.contains("error") && !answer.err.contains("panic"),
            "{args:?}: {}",
            answer.err
        );
        assert_eq!(answer.status, 0, "{args:?}");
    }
}

/// What cannot be written is an error, whoever wrote it.
#[test]
fn output_that_does_not_fit_is_an_error() {
    let world = World::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    if able() {
        world.ok(&["run", "-q", "--name", "x", "--", "sh", "-c", "seq 100000 > numbers"]);
    }
    let calls: &[&[&str]] = &[
        &["list"],
        &["list", "--json"],
        &["help", "run"],
        &["--help"],
        &["completions", "bash"],
        &["diff", "x"],
        &["diff", "x", "--stat"],
        &["run", "--rm", "--", "echo", "hi"],
        &["run", "--rm", "--", "seq", "100000"],
        &["run", "--rm", "--json", "--", "true"],
    ];
    for args in calls.iter().filter(|args| able() || !["diff", "run"].contains(&args[0])) {
        let answer = Answer::of(world.command(FRACTAL).args(*args).stdout(full()));
        assert_eq!(answer.status, 125, "{args:?}: {}", answer.err);
        assert!(answer.err.contains("o space left"), "{args:?}: {}", answer.err);
    }
}

#[test]
fn a_program_whose_reader_left_ends_as_in_any_pipe() {
    if !able() {
        return;
    }
    let world = World::new();
    let line = "fractal run -q --rm -- sh -c 'yes; echo $? >&2' | head -n 1";
    let answer = Answer::of(world.command("sh").args(["-c", line]));
    assert_eq!((answer.out.as_str(), answer.err.trim()), ("y\n", "141"));
}

/// Lines that a program writes in turn to its output and its errors.
#[test]
fn output_and_errors_that_go_to_one_place_keep_their_order() {
    if !able() {
        return;
    }
    let world = World::new();
    let turns = "i=0; while [ $i -lt 200 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done";
    let run = format!("fractal run -q --rm -- sh -c '{turns}'");
    let expect: String = (0..200).map(|i| format!("o{i}\ne{i}\n")).collect();
    for line in [
        format!("{run} 2>&1 | cat"),
        format!("{run} > log 2>&1; cat log"),
        format!(": > log; {run} >> log 2>> log; cat log"),
    ] {
        let answer = Answer::of(world.command("sh").args(["-c", &line]));
        assert_eq!(answer.out, expect, "{line}: {}", answer.err);
    }
    let apart = format!("{run} > out 2> err; cat out");
    let answer = Answer::of(world.command("sh").args(["-c", &apart]));
    assert_eq!(answer.out.lines().filter(|line| line.starts_with('e')).count(), 0);
}

/// Runs a command line in a terminal made by `script`, if there is one.
fn in_terminal(world: &World, line: &str) -> Option<Answer> {
    let probe = world.command("script").arg("--version").output();
    if probe.is_err() {
        eprintln!("skipped: no script(1) to make a terminal");
        return None;
    }
    Some(Answer::of(world.command("script").env("TERM", "xterm").args(["-qec", line, "/dev/null"])))
}

#[test]
fn colour_is_for_terminals_and_can_be_declined() {
    let world = World::new();
    let Some(answer) = in_terminal(&world, "fractal show nothing") else { return };
    assert!(answer.out.contains("\x1b[1;31merror:\x1b[0m"), "{:?}", answer.out);
    let declined = in_terminal(&world, "NO_COLOR=1 fractal show nothing").expect("as before");
    assert!(
        declined.out.contains("error:") && !declined.out.contains('\x1b'),
        "{:?}",
        declined.out
    );
    let help = in_terminal(&world, "NO_COLOR=1 fractal --help").expect("as before");
    assert!(!help.out.contains('\x1b'));
}

#[test]
fn a_terminal_is_given_when_there_is_one() {
    if !able() {
        return;
    }
    let world = World::new();
    let Some(answer) =
        in_terminal(&world, "fractal run --rm -- sh -c 'test -t 0 && test -t 1 && echo yes'")
    else {
        return;
    };
    // script(1) types an end-of-file character, which a terminal may echo.
    assert!(answer.status == 0 && answer.out.contains("yes"), "{:?}", answer.out);
    let piped = in_terminal(&world, "fractal run --rm -- sh -c 'test -t 1 || echo no' | cat")
        .expect("as before");
    assert!(piped.out.contains("no"), "{:?}", piped.out);
    let answer = Answer::of(
        world.command("sh").args(["-c", "echo 'echo $((6*7)); exit 5' | fractal enter"]),
    );
    assert_eq!((answer.status, answer.out.trim()), (5, "42"), "{}", answer.err);
}

/// Host processes whose command line holds a text.
pub fn processes(text: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc").expect("proc").flatten().map(|entry| entry.path());
    let holds = |path: &Path| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").starts_with(text)
    };
    all.filter(|path| holds(path)).collect()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A killed command cannot set its terminal back; its monitor does. A shell
/// that would do it as well must not be the judge, so there is none between.
#[test]
fn killing_an_interactive_run_leaves_a_usable_terminal() {
    if !able() {
        return;
    }
    let world = World::new();
    let seconds = format!("7{:07}", std::process::id());
    let judge = format!(
        "import os, signal, subprocess, termios, time\n\
         before = termios.tcgetattr(0)\n\
         run = subprocess.Popen(['fractal', 'run', '--rm', '--', 'sleep', '{seconds}'])\n\
         until = time.monotonic() + 10\n\
         def wait(done):\n\
         \twhile not done() and time.monotonic() < until: time.sleep(0.01)\n\
         wait(lambda: termios.tcgetattr(0) != before)\n\
         print('raw', termios.tcgetattr(0) != before)\n\
         os.kill(run.pid, signal.SIGKILL)\n\
         run.wait()\n\
         wait(lambda: termios.tcgetattr(0) == before)\n\
         print('restored', termios.tcgetattr(0) == before)\n"
    );
    world.write("judge.py", &judge);
    let Some(answer) = in_terminal(&world, "python3 judge.py") else { return };
    assert!(answer.out.contains("raw True"), "{:?}", answer.out);
    assert!(answer.out.contains("restored True"), "{:?}", answer.out);
    wait_for("the end of all processes", || processes(&format!("sleep {seconds}")).is_empty());
}

/// Directories of the control groups a process is in, apart from the roots.
pub fn groups(process: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let place = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) =
            (parts.next()?.to_owned(), parts.next()?.trim_start_matches('/').to_owned());
        (path.contains("fractal"))
            .then(|| PathBuf::from("/sys/fs/cgroup").join(controllers).join(path))
    };
    text.lines().filter_map(place).collect()
}

#[test]
fn killing_the_command_line_leaves_nothing_behind() {
    if !able() {
        return;
    }
    let world = World::new();
    let seconds = format!("sleep 8{:07}", std::process::id());
    for flag in ["--rm", "--name=k"] {
        let script = format!("trap '' TERM HUP INT; {seconds} & {seconds} & wait");
        let mut child = world
            .command(FRACTAL)
            .args(["run", flag, "--", "sh", "-c", &script])
            .spawn()
            .expect("it starts");
        wait_for("the start", || processes(&seconds).len() == 2);
        let groups = groups(&processes(&seconds)[0]);
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        wait_for("the end of all processes", || processes(&seconds).is_empty());
        wait_for("the end of control groups", || groups.iter().all(|group| !group.exists()));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        assert!(!mounts.contains(&world.state().display().to_string()), "a mount was left");
    }
    let told = |world: &World| {
        let (_, log) = world.json(&["log", "--json"]);
        let records = log["records"].as_array().expect("a list").clone();
        records.iter().filter(|record| record["detail"]["outcome"] == "lost").count()
    };
    wait_for("a record of both", || told(&world) == 2);
    let (_, list) = world.json(&["list", "--json"]);
    let states: Vec<_> =
        list["sandboxes"].as_array().expect("a list").iter().map(|info| &info["state"]).collect();
    assert_eq!(states, ["idle"], "the named one is there and at rest");
    world.ok(&["run", "--in", "k", "--", "true"]);
}
