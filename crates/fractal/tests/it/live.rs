//! Verbs on a sandbox in which something runs: it is caught in one moment, and
//! nobody inside notices.

use crate::world::{World, shell};
use fractal::model::{Limits, Outcome, Policy, RunReply};
use fractal::{Action, Caller, Code, Engine, Reply, Run};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

/// Writes `a`, then `b`, for ever, each in one step.
const WRITER: &str = "i=0; while :; do i=$((i+1)); echo $i > t; mv t a; echo $i > t; mv t b; done";

impl World {
    /// Runs a script in a sandbox on a thread, and waits until `mark` exists.
    fn start<'s>(
        &'s self,
        scope: &'s std::thread::Scope<'s, '_>,
        sandbox: &str,
        script: &str,
        mark: &str,
    ) -> ScopedJoinHandle<'s, Result<RunReply, Code>> {
        let run = Run {
            command: shell(script),
            sandbox: Some(sandbox.into()),
            ask: Policy {
                limits: Limits { time_ms: Some(60_000), ..Limits::default() },
                ..Policy::default()
            },
            ..Run::default()
        };
        let handle = scope.spawn(move || self.run(run));
        self.until(sandbox, &format!("test -e {mark}"));
        handle
    }

    /// Waits until a script in the sandbox succeeds.
    fn until(&self, sandbox: &str, script: &str) {
        let start = Instant::now();
        while self.sh(sandbox, script).unwrap().exit != 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "{script}");
            sleep(Duration::from_millis(5));
        }
    }

    fn number(&self, sandbox: &str, file: &str) -> u64 {
        let reply = self.sh(sandbox, &format!("cat {file} || echo 0")).unwrap();
        reply.stdout.trim().parse().unwrap_or_else(|_| panic!("{:?}", reply.stdout))
    }

    /// Whether a file inside counts on.
    fn counts(&self, sandbox: &str) -> bool {
        let (before, start) = (self.number(sandbox, "a"), Instant::now());
        while start.elapsed() < Duration::from_secs(5) {
            if self.number(sandbox, "a") > before {
                return true;
            }
        }
        false
    }

    fn since(&self, sandbox: &str, snapshot: &str) -> Vec<String> {
        let action =
            Action::Diff { sandbox: Some(sandbox.into()), since: Some(snapshot.to_owned()) };
        let Ok(Reply::Diff(diff)) = self.apply(action) else { panic!("no diff") };
        diff.changes
            .iter()
            .map(|change| format!("{} {}", change.kind.letter(), change.path))
            .collect()
    }

    fn snapshot_names(&self, sandbox: &str) -> Vec<String> {
        let Ok(Reply::Show(show)) = self.apply(Action::Show { sandbox: Some(sandbox.into()) })
        else {
            panic!("no answer")
        };
        show.snapshots.iter().map(|snapshot| snapshot.name.clone()).collect()
    }
}

#[test]
fn forks_of_a_writer_see_one_moment_and_the_writer_goes_on() {
    let world = World::new();
    world.make("x", "echo kept > old; mkdir d; echo 1 > d/f").unwrap();
    std::thread::scope(|scope| {
        let writer = world.start(scope, "x", WRITER, "b");
        let mut last = 0;
        for round in 0..12 {
            let name = format!("f{round}");
            world.fork("x", &name, &Policy::default()).unwrap();
            let (a, b) = (world.number(&name, "a"), world.number(&name, "b"));
            assert!(a == b || a == b + 1, "b was written after a: {a} {b}");
            assert!(a > last, "the writer goes on: {a} {last}");
            assert_eq!(world.sh(&name, "cat old d/f").unwrap().stdout, "kept\n1\n");
            last = a;
        }
        assert!(world.counts("x"));
        world.rollback("x", "base").unwrap();
        let reply = writer.join().unwrap().unwrap();
        assert_eq!((reply.exit, reply.outcome), (137, Outcome::Signalled));
    });
    assert_eq!(world.sh("x", "ls").unwrap().stdout, "");
    world.rollback("x", "before-rollback-1").unwrap();
    assert!(world.number("x", "a") >= world.number("x", "b"));
}

#[test]
fn snapshots_of_a_writer_can_be_compared_and_returned_to() {
    let world = World::new();
    world.make("x", "echo 1 > kept").unwrap();
    world.snapshot("x", "start").unwrap();
    std::thread::scope(|scope| {
        let script = "echo 1 > first; echo 1 > both; touch ready; until test -e go; do sleep 0.01; \
                      done; rm first; echo 2 > both; echo 1 > second; rm go; touch done; sleep 50";
        let run = world.start(scope, "x", script, "ready");
        world.snapshot("x", "middle").unwrap();
        world.sh("x", "touch go").unwrap();
        world.until("x", "test -e done");
        let root = world.project().display().to_string();
        let expect = ["A done", "M both", "D first", "A second"];
        let mut expect: Vec<String> =
            expect.iter().map(|line| line.replace(' ', &format!(" {root}/"))).collect();
        expect.sort_by_key(|line| line[2..].to_owned());
        assert_eq!(world.since("x", "middle"), expect);
        world.snapshot("x", "late").unwrap();
        assert_eq!(world.since("x", "late"), Vec::<String>::new());
        world.rollback("x", "middle").unwrap();
        assert_eq!(run.join().unwrap().unwrap().exit, 137);
    });
    assert_eq!(
        world.sh("x", "cat first both kept; ls").unwrap().stdout,
        "1\n1\n1\nboth\nfirst\nkept\nready\n"
    );
    world.rollback("x", "late").unwrap();
    assert_eq!(world.sh("x", "cat both second").unwrap().stdout, "2\n1\n");
    world.rollback("x", "start").unwrap();
    assert_eq!(world.sh("x", "ls").unwrap().stdout, "kept\n");
}

#[test]
fn all_runs_of_a_sandbox_are_caught_in_the_same_moment() {
    let world = World::new();
    world.make("x", "true").unwrap();
    std::thread::scope(|scope| {
        let first = world.start(scope, "x", WRITER, "b");
        let copier = "while :; do cat a > u; mv u c; done";
        let second = world.start(scope, "x", copier, "c");
        for round in 0..8 {
            let name = format!("f{round}");
            world.fork("x", &name, &Policy::default()).unwrap();
            let (a, c) = (world.number(&name, "a"), world.number(&name, "c"));
            assert!(c <= a, "c is a copy of a: {c} {a}");
        }
        world.rollback("x", "base").unwrap();
        assert_eq!(first.join().unwrap().unwrap().exit, 137);
        assert_eq!(second.join().unwrap().unwrap().exit, 137);
    });
}

/// Four threads, each of which writes its `a` and then its `b`, and starts
/// programs as most do, with `vfork`.
const THREADS: &str = r#"
import os, subprocess, threading
def write(name, text):
    with open("t" + name, "w") as file:
        file.write(text)
    os.rename("t" + name, name)
def work(index):
    turn = 0
    while True:
        turn += 1
        write(f"a{index}", str(turn))
        write(f"b{index}", str(turn))
        if turn % 50 == 0:
            subprocess.run(["true"])
for index in range(4):
    threading.Thread(target=work, args=(index,)).start()
"#;

#[test]
fn threads_are_caught_in_the_same_moment_too() {
    let world = World::new();
    world.make("x", "true").unwrap();
    if world.sh("x", "python3 -c 0").unwrap().exit != 0 {
        return println!("skipped: no python3");
    }
    std::thread::scope(|scope| {
        let script = format!("exec python3 -c '{THREADS}'");
        let run = world.start(scope, "x", &script, "b3");
        for round in 0..12 {
            let name = format!("f{round}");
            world.fork("x", &name, &Policy::default()).unwrap();
            for index in 0..4 {
                let (a, b) = (format!("a{index}"), format!("b{index}"));
                let (a, b) = (world.number(&name, &a), world.number(&name, &b));
                assert!(a == b || a == b + 1, "b was written after a: {a} {b}");
            }
        }
        world.rollback("x", "base").unwrap();
        assert_eq!(run.join().unwrap().unwrap().exit, 137);
    });
}

#[test]
fn what_was_stopped_stays_stopped_and_the_rest_goes_on() {
    let world = World::new();
    world.make("x", "true").unwrap();
    let state = "state() { sed 's/.*) //' /proc/$1/stat | cut -d' ' -f1; }";
    let script = format!(
        "{state}; sleep 1000 & s=$!; sleep 1000 & r=$!; kill -STOP $s; \
         until [ $(state $s) = T ]; do :; done; touch ready; \
         until test -e go; do sleep 0.01; done; echo $(state $s) $(state $r); kill -9 $s $r"
    );
    std::thread::scope(|scope| {
        let run = world.start(scope, "x", &script, "ready");
        for round in 0..10 {
            world.snapshot("x", &format!("s{round}")).unwrap();
        }
        world.sh("x", "touch go").unwrap();
        assert_eq!(run.join().unwrap().unwrap().stdout, "T S\n");
    });
}

#[test]
fn a_shell_with_job_control_does_not_notice() {
    let world = World::new();
    world.make("x", "true").unwrap();
    // Foreground jobs one after another: a shell that saw one stop would
    // leave it behind and say so.
    let jobs = "touch ready; until test -e go; do sleep 0.02 || echo bad; done; jobs; echo end";
    let script = format!("exec script -qec \"bash -mc '{jobs}'\" /dev/null");
    std::thread::scope(|scope| {
        let run = world.start(scope, "x", &script, "ready");
        for round in 0..40 {
            world.snapshot("x", &format!("s{round}")).unwrap();
        }
        world.sh("x", "touch go").unwrap();
        let reply = run.join().unwrap().unwrap();
        assert_eq!((reply.stdout.as_str(), reply.stderr.as_str()), ("end\r\n", ""));
    });
}

/// Runs as a child of the test below: freezes and copies until it is killed.
#[test]
fn child_that_takes_snapshots_until_it_is_killed() {
    let Ok(home) = std::env::var("FRACTAL_TEST_SNAPSHOTS") else { return };
    let engine = Engine::open(Path::new(&home)).unwrap();
    let caller = Caller::owner("/");
    loop {
        let action = Action::Snapshot { sandbox: Some("x".into()), name: None };
        engine.apply(&caller, action).unwrap();
    }
}

#[test]
fn nobody_stays_frozen_when_the_freezer_is_killed() {
    let world = World::new();
    world
        .make("x", "mkdir many; i=0; while [ $i -lt 400 ]; do echo > many/$i; i=$((i+1)); done")
        .unwrap();
    std::thread::scope(|scope| {
        let writer = world.start(scope, "x", WRITER, "b");
        for round in 0..25u64 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["live::child_that_takes_snapshots_until_it_is_killed", "--exact"])
                .env("FRACTAL_TEST_SNAPSHOTS", world.engine.home())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // Once it is at it, at any moment of what it does.
            let (taken, start) = (world.snapshot_names("x").len(), Instant::now());
            while world.snapshot_names("x").len() == taken {
                assert!(start.elapsed() < Duration::from_secs(20), "the child takes snapshots");
                sleep(Duration::from_millis(2));
            }
            sleep(Duration::from_micros(round * 700));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(world.counts("x"), "round {round}");
        }
        world.rollback("x", "base").unwrap();
        writer.join().unwrap().unwrap();
    });
    let diagnosis = fractal::Diagnosis::examine(world.engine.home());
    assert!(diagnosis.state.is_empty(), "{:?}", diagnosis.state);
}

#[test]
fn a_fork_bomb_is_frozen_like_anything_else() {
    let world = World::new();
    let limits = Limits { pids: Some(150), time_ms: Some(60_000), ..Limits::default() };
    let run = Run {
        command: shell(
            "bomb() { while :; do (bomb) & sh -c : ; done; }; bomb 2>/dev/null & sleep 90",
        ),
        name: Some("x".into()),
        ask: Policy { limits, ..Policy::default() },
        ..Run::default()
    };
    std::thread::scope(|scope| {
        let bomb = scope.spawn(|| world.run(run));
        while world.list().is_empty() {
            sleep(Duration::from_millis(5));
        }
        sleep(Duration::from_millis(300));
        // On a slow machine some are `busy`; all four come in the end.
        let (start, mut taken) = (Instant::now(), 0);
        while taken < 4 {
            match world.snapshot("x", &format!("s{taken}")) {
                Ok(()) => taken += 1,
                Err(code) => assert_eq!(code, Code::Busy),
            }
            assert!(start.elapsed() < Duration::from_secs(40), "{taken} of 4");
        }
        world.rollback("x", "base").unwrap();
        assert_eq!(bomb.join().unwrap().unwrap().exit, 137);
    });
}

#[test]
fn the_deadline_holds_for_a_frozen_run_and_visitors_cannot_block_it() {
    let world = World::new();
    world.make("x", "true").unwrap();
    let limits = Limits { time_ms: Some(1500), ..Limits::default() };
    let run = Run {
        command: shell("touch ready; sleep 100"),
        sandbox: Some("x".into()),
        ask: Policy { limits, ..Policy::default() },
        ..Run::default()
    };
    std::thread::scope(|scope| {
        let run = scope.spawn(|| world.run(run));
        world.until("x", "test -e ready");
        let layers = world.engine.home().join("layers");
        // The run that looked for the file may not be cleaned up yet: its
        // socket answers nobody.
        let find = || {
            let layers_found = std::fs::read_dir(&layers).unwrap().flatten();
            layers_found.into_iter().find_map(|layer| {
                let names = std::fs::read_dir(layer.path()).ok()?.flatten();
                let layer = layer.file_name().into_string().unwrap();
                names.into_iter().find_map(|entry| {
                    let name = entry.file_name().into_string().unwrap();
                    let label = name.strip_prefix("living-")?.to_owned();
                    let frozen = fractal_jail::Frozen::freeze(&layers, &layer, &label).ok()?;
                    Some((layer.clone(), label, frozen))
                })
            })
        };
        let found = (0..200).find_map(|_| {
            sleep(Duration::from_millis(5));
            find()
        });
        let (layer, label, frozen) = found.expect("a living run");
        assert!(frozen.holds());
        let reply = run.join().unwrap().unwrap();
        assert_eq!((reply.exit, reply.outcome), (124, Outcome::Timeout));
        assert!(!frozen.holds());
        assert!(frozen.thaw().is_err());
        assert!(fractal_jail::Frozen::freeze(&layers, &layer, &label).is_err());
        assert!(!fractal_jail::end(&layers, &layer, &label));
    });
}

#[test]
fn many_snapshots_and_forks_of_one_sandbox_at_once_all_succeed() {
    let world = World::new();
    world.make("x", "echo 1 > f").unwrap();
    std::thread::scope(|scope| {
        for index in 0..6 {
            let world = &world;
            scope.spawn(move || world.snapshot("x", &format!("s{index}")).unwrap());
            scope.spawn(move || {
                world.fork("x", &format!("f{index}"), &Policy::default()).unwrap();
            });
        }
    });
    assert_eq!(world.snapshot_names("x").len(), 6);
    assert_eq!(world.list().len(), 7);
    for index in 0..6 {
        assert_eq!(world.sh(&format!("f{index}"), "cat f").unwrap().stdout, "1\n");
    }
}

#[test]
fn a_run_that_changed_nothing_needs_no_snapshot_before_a_rollback() {
    let world = World::new();
    world.make("x", "mkdir -p d/e; echo 1 > d/e/f").unwrap();
    world.snapshot("x", "one").unwrap();
    world.sh("x", "cat d/e/f").unwrap();
    world.rollback("x", "one").unwrap();
    assert_eq!(world.snapshot_names("x"), ["one"]);
    world.sh("x", "chmod 700 d").unwrap();
    world.rollback("x", "one").unwrap();
    assert_eq!(world.snapshot_names("x").len(), 2);
    assert_eq!(world.sh("x", "stat -c %a d; cat d/e/f").unwrap().stdout, "755\n1\n");
}

/// Connects as often as it is allowed, says nothing, half a word or nonsense,
/// freezes without ever thawing, and stays.
const RUDE: &str = r#"
import glob, socket, sys, time
paths, kept = glob.glob(sys.argv[1] + "/layers/*/living-*"), []
for turn in range(40):
    guest = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guest.settimeout(0.2)
    try:
        guest.connect(paths[0])
        kept.append(guest)
        if turn % 4 == 1:
            guest.send(b"x")
        if turn % 4 == 2:
            guest.send(b"\x2b" + bytes(59))
        if turn % 4 == 3:
            guest.send(b"\x29" + bytes(59))
    except OSError:
        pass
print("rude", flush=True)
time.sleep(float(sys.argv[2]))
"#;

#[test]
fn visitors_who_misbehave_are_seen_off() {
    let world = World::new();
    world.make("x", "true").unwrap();
    std::thread::scope(|scope| {
        let writer = world.start(scope, "x", WRITER, "b");
        let spawned = Command::new("python3")
            .args(["-c", RUDE])
            .arg(world.engine.home())
            .arg("60")
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut rude) = spawned else { return println!("skipped: no python3") };
        let mut said = [0u8; 5];
        std::io::Read::read_exact(rude.stdout.as_mut().unwrap(), &mut said).unwrap();
        // Somebody holds it frozen now; others are still served: it can be
        // joined, and ended. From inside, the door is not to be seen.
        let home = world.engine.home().display();
        let look = format!("echo joined; ls -A {home}; ls {home}/layers/*/living-* 2>/dev/null");
        assert_eq!(world.sh("x", &look).unwrap().stdout, "joined\n");
        rude.kill().unwrap();
        rude.wait().unwrap();
        assert!(world.counts("x"));
        world.snapshot("x", "s").unwrap();
        world.rollback("x", "base").unwrap();
        assert_eq!(writer.join().unwrap().unwrap().exit, 137);
    });
}

#[test]
fn rollbacks_among_runs_that_come_and_go_succeed_or_are_busy() {
    let world = World::new();
    world.make("x", "echo 1 > f").unwrap();
    world.snapshot("x", "s").unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let runner = || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let reply = world.sh("x", "echo 2 > f; echo 2 > g; sleep 0.05").unwrap();
                assert!([0, 137].contains(&reply.exit), "{}", reply.exit);
            }
        };
        let runners = [scope.spawn(runner), scope.spawn(runner)];
        let mut done = 0;
        for _ in 0..12 {
            match world.rollback("x", "s") {
                Ok(()) => done += 1,
                Err(code) => assert_eq!(code, Code::Busy),
            }
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        runners.into_iter().for_each(|runner| runner.join().unwrap());
        assert!(done > 0, "none of 12");
    });
    world.rollback("x", "s").unwrap();
    assert_eq!(world.sh("x", "cat f; ls").unwrap().stdout, "1\nf\n");
    let diagnosis = fractal::Diagnosis::examine(world.engine.home());
    assert!(diagnosis.state.is_empty(), "{:?}", diagnosis.state);
}
