//! What each verb promises, one test per sentence.

use crate::world::{World, kinds, shell};
use fractal::model::{BaseKind, ChangeKind, Limits, Network, Outcome, Policy, VolumeVerb};
use fractal::{Action, Code, DiffFormat, Reply, Run};

const LOG: Action = Action::Log { sandbox: None, limit: None, here: false, whole: false };

fn limited(limits: Limits) -> Policy {
    Policy { limits, ..Policy::default() }
}

fn discard(script: &str) -> Run {
    Run { command: shell(script), discard: true, ..Run::default() }
}

#[test]
fn a_fork_reaches_what_was_asked_for_and_never_more_than_its_parent() {
    let world = World::new();
    let asked = |sandbox: &str, name: &str, network: Option<Network>| Action::Fork {
        sandbox: Some(sandbox.into()),
        name: Some(name.into()),
        ask: Policy::default(),
        network,
        ttl_ms: None,
        world: None,
    };
    let open = Run {
        command: vec!["true".into()],
        name: Some("open".into()),
        network: Some(Network::Host),
        ..Run::default()
    };
    world.run(open).unwrap();
    for (parent, name, network, expect) in [
        ("open", "same", None, Ok(Network::Host)),
        ("open", "closed", Some(Network::None), Ok(Network::None)),
        ("closed", "below", None, Ok(Network::None)),
        ("closed", "wider", Some(Network::Host), Err(Code::Denied)),
    ] {
        let made = match world.apply(asked(parent, name, network)) {
            Ok(Reply::Sandbox(made)) => Ok(made.policy.network),
            Ok(other) => panic!("fork answered {other:?}"),
            Err(code) => Err(code),
        };
        assert_eq!(made, expect, "{name}");
    }
}

#[test]
fn a_run_that_changes_nothing_leaves_no_sandbox() {
    let world = World::new();
    let reply = world.run(Run { command: vec!["true".into()], ..Run::default() }).unwrap();
    assert!(!reply.kept && reply.exit == 0 && reply.changes.is_empty());
    assert!(world.list().is_empty());
    assert_eq!(std::fs::read_dir(world.engine.home().join("layers")).unwrap().count(), 0);
}

#[test]
fn a_run_that_changes_something_is_kept_and_reality_is_not_touched() {
    let world = World::new();
    std::fs::write(world.project().join("a"), "old").unwrap();
    let reply = world
        .run(Run { command: shell("echo new > a; mkdir d; echo x > d/b"), ..Run::default() })
        .unwrap();
    assert!(reply.kept);
    assert_eq!(std::fs::read_to_string(world.project().join("a")).unwrap(), "old");
    let root = world.project().display().to_string();
    let expect = vec![
        (ChangeKind::Modified, format!("{root}/a")),
        (ChangeKind::Added, format!("{root}/d")),
        (ChangeKind::Added, format!("{root}/d/b")),
    ];
    assert_eq!(kinds(&world.diff(&reply.sandbox).unwrap()), expect);
}

#[test]
fn a_sandbox_can_be_made_before_anything_runs_in_it() {
    let world = World::new();
    std::fs::write(world.project().join("a"), "old").unwrap();
    let named = |name: &str, base| Run {
        command: vec!["true".into()],
        name: Some(name.into()),
        base,
        ..Run::default()
    };
    for (name, base) in [("live", BaseKind::Live), ("frozen", BaseKind::Frozen)] {
        let made = world.engine.make(&world.caller, &named(name, base)).unwrap();
        assert_eq!((made.name.as_str(), made.state.as_str()), (name, "idle"));
        assert!(world.diff(name).unwrap().changes.is_empty());
        let again = world.engine.make(&world.caller, &named(name, base)).unwrap_err();
        assert_eq!(again.code, Code::Exists);
        let command = shell("cat a; echo new > a");
        let sandbox = Some(name.into());
        let reply = world.run(Run { command, sandbox, ..Run::default() }).unwrap();
        assert_eq!((reply.stdout.as_str(), reply.changes.len()), ("old", 1));
        let asked =
            Action::Log { sandbox: Some(name.into()), limit: None, here: false, whole: false };
        let Ok(Reply::Log(log)) = world.apply(asked) else { panic!() };
        let actions: Vec<&str> = log.records.iter().map(|it| it.body.action.as_str()).collect();
        assert_eq!(actions, ["run", "fork"]);
    }
    assert_eq!(world.list().len(), 2);
}

#[test]
fn a_thrown_away_run_reports_its_changes_and_leaves_a_record_only() {
    let world = World::new();
    let reply = world.run(discard("echo x > new; echo out; echo err >&2; exit 3")).unwrap();
    assert_eq!((reply.exit, reply.outcome, reply.kept), (3, Outcome::Exited, false));
    assert_eq!((reply.stdout.as_str(), reply.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(reply.changes.len(), 1);
    assert!(world.list().is_empty() && !world.project().join("new").exists());
    let Ok(Reply::Log(log)) = world.apply(LOG) else { panic!() };
    assert_eq!(log.records[0].body.action, "run");
    assert_eq!(log.records[0].body.detail["exit"], 3);
}

#[test]
fn signals_and_missing_programs_show_as_a_shell_shows_them() {
    let world = World::new();
    let reply = world.run(discard("kill -TERM $$")).unwrap();
    assert_eq!((reply.exit, reply.outcome), (143, Outcome::Signalled));
    let missing = Run { command: vec!["no-such-program".into()], discard: true, ..Run::default() };
    let reply = world.run(missing).unwrap();
    assert_eq!(reply.exit, 127);
    assert!(reply.stderr.contains("cannot execute"), "{}", reply.stderr);
    let directory = Run { command: vec!["/usr".into()], discard: true, ..Run::default() };
    assert_eq!(world.run(directory).unwrap().exit, 126);
}

#[test]
fn the_time_limit_ends_what_ignores_signals_and_its_children() {
    let world = World::new();
    let mark = format!("98{}", std::process::id());
    let script =
        format!("trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; sleep {mark}' & sleep {mark}");
    let mut run = discard(&script);
    run.ask = limited(Limits { time_ms: Some(400), ..Limits::default() });
    let reply = world.run(run).unwrap();
    assert_eq!((reply.exit, reply.outcome), (124, Outcome::Timeout));
    assert!(!is_running(&format!("sleep {mark}")));
}

/// Whether some process of this machine has this command line.
fn is_running(command: &str) -> bool {
    let wanted = command.replace(' ', "\0");
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|text| String::from_utf8_lossy(&text).starts_with(&wanted))
    })
}

#[test]
fn the_memory_limit_ends_a_hog_with_outcome_memory() {
    let world = World::new();
    let mut run = discard("head -c 400000000 /dev/zero | tail -c 300000000 > /dev/null");
    run.ask = limited(Limits { memory_bytes: Some(64 << 20), ..Limits::default() });
    let reply = world.run(run).unwrap();
    assert_eq!((reply.exit, reply.outcome), (137, Outcome::Memory));
    assert!(reply.usage.memory_peak_bytes > 32 << 20);
}

/// The kernel kills the hog and not the shell around it.
#[test]
fn a_memory_limit_that_only_a_child_felt_is_told() {
    let world = World::new();
    // It holds on to it for a moment: without a controller somebody has to see it.
    let hog = "head -c 400000000 /dev/zero | tail -c 300000000 | { sleep 2; cat > /dev/null; }";
    let check = |rest: &str, exit: i32, outcome: Outcome| {
        let mut run = discard(&format!("{hog}; {rest}"));
        run.ask = limited(Limits { memory_bytes: Some(64 << 20), ..Limits::default() });
        let reply = world.run(run).unwrap();
        // Without a controller the whole run ends with it.
        let ended = reply.isolation.missing.iter().any(|what| what.contains("`memory`"));
        let expect = if ended { (137, Outcome::Memory) } else { (exit, outcome) };
        assert_eq!((reply.exit, reply.outcome), expect, "{rest}");
        assert_eq!(reply.limits_reached, [Outcome::Memory], "{rest}");
    };
    check("true", 0, Outcome::Exited);
    check("exit 3", 137, Outcome::Memory);
}

#[test]
fn one_large_allocation_has_outcome_memory_too() {
    let world = World::new();
    let mut run = discard("python3 -c 'x = bytearray(1 << 30)'; exit 1");
    run.ask = limited(Limits { memory_bytes: Some(64 << 20), ..Limits::default() });
    let reply = world.run(run).unwrap();
    assert_eq!((reply.exit, reply.outcome), (137, Outcome::Memory), "{}", reply.stderr);
}

#[test]
fn without_a_controller_the_peak_is_that_of_all_processes() {
    let world = World::new();
    let one = "python3 -c 'import time; x = b\"1\" * (40 << 20); time.sleep(0.5)'";
    let mut run = discard(&format!("{one} & {one} & wait"));
    run.ask = limited(Limits { memory_bytes: Some(1 << 30), ..Limits::default() });
    let reply = world.run(run).unwrap();
    assert!(reply.usage.memory_peak_bytes > 80 << 20, "{:?}", reply.usage);
    assert!(reply.limits_reached.is_empty());
}

#[test]
fn the_pids_limit_stops_a_fork_bomb() {
    let world = World::new();
    let mut run = discard("for i in $(seq 200); do sleep 5 & done; wait");
    run.ask = limited(Limits { pids: Some(32), time_ms: Some(4000), ..Limits::default() });
    let reply = world.run(run).unwrap();
    assert!(reply.stderr.contains("ork"), "the shell must have been refused: {}", reply.stderr);
}

#[test]
fn the_disk_limit_stops_writers_in_memory_and_on_disk() {
    let world = World::new();
    let limits = Limits { disk_bytes: Some(8 << 20), ..Limits::default() };
    let mut run = discard("dd if=/dev/zero of=big bs=1M count=64");
    run.ask = limited(limits.clone());
    let reply = world.run(run).unwrap();
    assert_eq!((reply.exit, reply.outcome), (137, Outcome::Disk), "{}", reply.stderr);
    // One byte, far out: a signal ends the writer though hardly any room is used.
    let mut run = discard("dd if=/dev/zero of=big bs=1 count=1 seek=64M conv=notrunc");
    run.ask = limited(limits.clone());
    let reply = world.run(run).unwrap();
    assert_eq!((reply.exit, reply.outcome), (137, Outcome::Disk), "{}", reply.stderr);
    // Many small files, which no limit per file catches.
    let script = "i=0; while [ $i -lt 3000 ]; do head -c 100000 /dev/zero > f$i; i=$((i+1)); done";
    let mut run = Run { command: shell(script), name: Some("full".into()), ..Run::default() };
    run.ask = limited(limits);
    let reply = world.run(run).unwrap();
    assert_eq!((reply.exit, reply.outcome), (137, Outcome::Disk));
}

#[test]
fn a_disk_limit_that_only_a_child_felt_is_told() {
    let world = World::new();
    for name in [None, Some("kept".to_owned())] {
        let check = |name: Option<String>, rest: &str, exit: i32, outcome: Outcome| {
            let mut run = discard(&format!("dd if=/dev/zero of=big bs=1M count=64; {rest}"));
            (run.discard, run.name) = (name.is_none(), name);
            run.ask = limited(Limits { disk_bytes: Some(8 << 20), ..Limits::default() });
            let reply = world.run(run).unwrap();
            assert_eq!((reply.exit, reply.outcome), (exit, outcome), "{rest}: {}", reply.stderr);
            assert_eq!(reply.limits_reached, [Outcome::Disk], "{rest}");
        };
        check(name.clone(), "true", 0, Outcome::Exited);
        check(name.map(|name| name + "2"), "exit 3", 137, Outcome::Disk);
    }
}

#[test]
fn output_is_bounded_with_a_marker_and_a_limit_stops_the_run() {
    let world = World::new();
    let reply = world.run(discard("head -c 20000000 /dev/zero | tr '\\0' x")).unwrap();
    assert!(reply.truncated && reply.exit == 0);
    assert!(reply.stdout.len() < 5 << 20);
    assert!(reply.stdout.contains("[fractal: output truncated, "));
    let mut run = discard("yes");
    run.ask = limited(Limits { output_bytes: Some(1 << 20), ..Limits::default() });
    assert_eq!(world.run(run).unwrap().outcome, Outcome::Output);
}

#[test]
fn there_is_no_network_unless_asked_and_no_widening_later() {
    let world = World::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let probe = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let command = vec!["bash".to_owned(), "-c".into(), probe];
    let closed = Run { command: command.clone(), name: Some("closed".into()), ..Run::default() };
    assert_ne!(world.run(closed).unwrap().exit, 0);
    let open = Run {
        command: command.clone(),
        discard: true,
        network: Some(Network::Host),
        ..Run::default()
    };
    assert_eq!(world.run(open).unwrap().exit, 0);
    let widened = Run {
        command,
        sandbox: Some("closed".into()),
        network: Some(Network::Host),
        ..Run::default()
    };
    assert_eq!(world.run(widened), Err(Code::Denied));
}

#[test]
fn limits_of_a_sandbox_hold_for_later_runs_and_cannot_be_raised() {
    let world = World::new();
    let mut run = Run { command: vec!["true".into()], name: Some("x".into()), ..Run::default() };
    run.ask = limited(Limits { pids: Some(50), ..Limits::default() });
    world.run(run).unwrap();
    let mut more =
        Run { command: vec!["true".into()], sandbox: Some("x".into()), ..Run::default() };
    more.ask = limited(Limits { pids: Some(51), ..Limits::default() });
    assert_eq!(world.run(more.clone()), Err(Code::Denied));
    more.ask = limited(Limits { pids: Some(49), ..Limits::default() });
    assert!(world.run(more).is_ok());
}

#[test]
fn a_rollback_keeps_what_was_there_and_base_is_always_a_target() {
    let world = World::new();
    world.make("x", "echo 1 > f").unwrap();
    world.snapshot("x", "first").unwrap();
    world.sh("x", "echo 2 > f").unwrap();
    world.rollback("x", "first").unwrap();
    assert_eq!(world.files("x")["f"], "1");
    world.rollback("x", "before-rollback-1").unwrap();
    assert_eq!(world.files("x")["f"], "2");
    world.rollback("x", "base").unwrap();
    assert!(world.files("x").is_empty());
    assert_eq!(world.rollback("x", "nowhere"), Err(Code::NotFound));
}

#[test]
fn forks_reach_any_depth_and_outlive_their_parents() {
    let world = World::new();
    world.make("g0", "echo 0 > f0").unwrap();
    for level in 1..12 {
        world.fork(&format!("g{}", level - 1), &format!("g{level}"), &Policy::default()).unwrap();
        world
            .sh(&format!("g{level}"), &format!("echo {level} > f{level}; rm -f f{}", level - 1))
            .unwrap();
    }
    for level in 0..11 {
        world.drop(&format!("g{level}")).unwrap();
    }
    let files = world.files("g11");
    assert_eq!(files.keys().collect::<Vec<_>>(), ["f11"]);
}

#[test]
fn the_size_of_a_sandbox_counts_its_sealed_layers() {
    let world = World::new();
    world.make("x", "head -c 300000 /dev/zero > big").unwrap();
    let before = world.list()[0].size_bytes;
    assert!(before >= 300_000, "{before}");
    world.snapshot("x", "s").unwrap();
    for _ in 0..2 {
        let after = world.list()[0].size_bytes;
        assert!(after >= 300_000, "{after}");
    }
}

#[test]
fn dropping_twice_is_fine_and_leaves_no_layers() {
    let world = World::new();
    world.make("x", "echo 1 > f").unwrap();
    world.snapshot("x", "s").unwrap();
    world.sh("x", "echo 2 > f").unwrap();
    world.drop("x").unwrap();
    world.drop("x").unwrap();
    assert_eq!(world.drop("never-was"), Err(Code::NotFound));
    assert_eq!(std::fs::read_dir(world.engine.home().join("layers")).unwrap().count(), 0);
}

#[test]
fn files_are_copied_in_and_out_without_following_links() {
    let world = World::new();
    world.make("x", "ln -s /etc/passwd link; mkdir sub; echo in > sub/f").unwrap();
    let project = world.project();
    std::fs::create_dir_all(project.join("host/deep")).unwrap();
    std::fs::write(project.join("host/deep/file"), "from host").unwrap();
    let copy =
        |from: &str, to: &str| world.apply(Action::Copy { from: from.into(), to: to.into() });
    copy("host", "x:copied").unwrap();
    assert_eq!(world.sh("x", "cat copied/deep/file").unwrap().stdout, "from host");
    copy("x:sub", "out").unwrap();
    assert_eq!(std::fs::read_to_string(project.join("out/f")).unwrap(), "in\n");
    copy("x:link", "link").unwrap();
    assert!(std::fs::symlink_metadata(project.join("link")).unwrap().is_symlink());
    assert_eq!(copy("a", "b"), Err(Code::Invalid));
    assert_eq!(copy("x:none", "b"), Err(Code::NotFound));
}

#[test]
fn a_copy_that_would_lack_something_is_refused_whole() {
    let world = World::new();
    world.make("x", "echo in > f").unwrap();
    let mut deep = world.project().join("host");
    std::fs::create_dir(&deep).unwrap();
    std::fs::write(deep.join("file"), "of the host").unwrap();
    for _ in 0..300 {
        deep.push("d");
        std::fs::create_dir(&deep).unwrap();
    }
    let before = world.changed("x");
    let copy = Action::Copy { from: "host".into(), to: "x:copied".into() };
    assert_eq!(world.apply(copy), Err(Code::Limit));
    assert_eq!(world.changed("x"), before);
}

#[test]
fn an_export_comes_back_as_the_same_changes() {
    let world = World::new();
    std::fs::create_dir(world.project().join("d")).unwrap();
    std::fs::write(world.project().join("d/gone"), "x").unwrap();
    std::fs::write(world.project().join("gone"), "x").unwrap();
    world.make("x", "rm -r gone d; echo new > new; ln -s new l; mkdir -p e/f; chmod 700 e; printf '\\0\\1' > bin").unwrap();
    world
        .apply(Action::Export { sandbox: Some("x".into()), to: "x.tar.zst".into(), history: false })
        .unwrap();
    let imported = world.apply(Action::Import { from: "x.tar.zst".into(), name: Some("y".into()) });
    assert!(imported.is_ok(), "{imported:?}");
    assert_eq!(world.changed("x"), world.changed("y"));
    std::fs::write(world.project().join("bad"), "not an archive").unwrap();
    assert_eq!(world.apply(Action::Import { from: "bad".into(), name: None }), Err(Code::Invalid));
}

#[test]
fn an_export_carries_modes_of_directories_and_fifos() {
    let world = World::new();
    let root = world.project();
    std::fs::create_dir_all(root.join("old/deep")).unwrap();
    let script = "chmod 700 old; mkfifo -m 640 pipe; mkdir shut; echo x > shut/f; chmod 500 shut; \
                  python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"door\")'";
    let made = world.make("x", script).unwrap();
    let socket = u64::from(made.isolation.tier != fractal::model::Tier::Copied);
    assert_eq!(made.exit == 0, socket == 1, "{}", made.stderr);
    let exported = world
        .apply(Action::Export { sandbox: Some("x".into()), to: "x.tar.zst".into(), history: false })
        .unwrap();
    let Reply::Archive(reply) = exported else { panic!("export answered {exported:?}") };
    assert_eq!(reply.left_out, socket);
    world.apply(Action::Import { from: "x.tar.zst".into(), name: Some("y".into()) }).unwrap();
    let look = "stat -c '%n %F %a' old old/deep pipe shut shut/f";
    let (there, here) = (world.sh("x", look).unwrap(), world.sh("y", look).unwrap());
    assert_eq!(there.stdout, here.stdout, "{}", here.stderr);
    assert!(here.stdout.starts_with("old directory 700\n"), "{}", here.stdout);
    // What forbids writing stands in the way of whoever deletes the test's files.
    world.drop("x").and(world.drop("y")).unwrap();
}

#[test]
fn a_volume_is_shared_and_survives_its_sandboxes() {
    let world = World::new();
    let standard = |name: &str, script: &str| {
        let run = Run {
            command: shell(script),
            name: Some(name.into()),
            template: Some("standard".into()),
            ..Run::default()
        };
        world.run(run).unwrap()
    };
    let reply = standard(
        "a",
        "pwd; ls /data /workspace; echo kept > /data/output/f; touch /src/x || echo read-only",
    );
    assert!(reply.stdout.starts_with("/workspace\n"), "{}", reply.stdout);
    assert!(reply.stdout.ends_with("read-only\n"), "{} {}", reply.stdout, reply.stderr);
    assert_eq!(
        standard("b", "cat /data/output/f; echo $HOME; ls -A /root").stdout,
        "kept\n/root\n"
    );
    let info = world.list().into_iter().find(|info| info.name == "a").unwrap();
    assert_eq!(info.template, "standard");
    let Ok(Reply::Volumes { volumes }) = world.apply(Action::Volume(VolumeVerb::List)) else {
        panic!()
    };
    let volume = volumes[0].name.clone();
    let remove = || world.apply(Action::Volume(VolumeVerb::Rm { name: volume.clone() }));
    assert_eq!(remove(), Err(Code::Busy));
    world.drop("a").unwrap();
    world.drop("b").unwrap();
    assert_eq!(standard("c", "cat /data/output/f").stdout, "kept\n");
    world.drop("c").unwrap();
    assert!(remove().is_ok());
}

#[test]
fn the_journal_is_read_by_directory_and_without_parts_of_verbs() {
    let mut world = World::new();
    let log = |world: &World, limit: Option<u64>, here: bool, whole: bool| {
        let action = Action::Log { sandbox: None, limit, here, whole };
        let Reply::Log(log) = world.apply(action).unwrap() else { panic!() };
        let told = |body: &fractal::model::RecordBody| {
            let kind = body.detail.get("kind").and_then(|kind| kind.as_str());
            kind.unwrap_or(&body.action).to_owned()
        };
        log.records.iter().map(|record| told(&record.body)).collect::<Vec<_>>()
    };
    world.make("x", "echo 1 > f").unwrap();
    let check =
        fractal::model::Check { name: "c".into(), command: "true".into(), ..Default::default() };
    world.engine.check(&world.caller, "x", &[check], 1).unwrap();
    world.drop("x").unwrap();
    // Elsewhere, and more of it than is asked for.
    let project = world.project();
    world.caller.directory = world.dir.path().to_path_buf();
    for _ in 0..6 {
        world.run(discard("true")).unwrap();
    }
    assert_eq!(log(&world, Some(2), true, false), ["run", "run"]);
    world.caller.directory = project;
    assert_eq!(log(&world, Some(3), true, false), ["drop", "check", "run"]);
    assert_eq!(log(&world, Some(2), true, true), ["drop", "run"]);
    assert_eq!(log(&world, None, false, false).len(), 9);
}

#[test]
fn what_a_sandbox_promoted_itself_is_not_stale() {
    let world = World::new();
    let file = |name: &str| world.project().join(name);
    std::fs::write(file("a"), "1\n").unwrap();
    let made = world.make("x", "echo 2 > a; echo new > b").unwrap();
    // A copy is frozen whether asked for or not.
    let is_copy = made.isolation.tier == fractal::model::Tier::Copied;
    let kind = if is_copy { BaseKind::Frozen } else { BaseKind::Live };
    let promote = fractal::model::Promote { sandbox: Some("x".into()), ..Default::default() };
    world.apply(Action::Promote(Box::new(promote))).unwrap();
    let show = || match world.apply(Action::Show { sandbox: Some("x".into()) }).unwrap() {
        Reply::Show(reply) => reply,
        other => panic!("show answered {other:?}"),
    };
    assert_eq!((show().stale, show().base_kind), (None, kind));
    world.apply(Action::Undo { promotion: None, only: Vec::new(), dry_run: false }).unwrap();
    assert_eq!(show().stale, None);
    // What others write there is.
    std::fs::write(file("a"), "3\n").unwrap();
    std::fs::write(file("c"), "3\n").unwrap();
    let changed = show().stale.expect("it moved").changed;
    assert_eq!(changed, ["a", "c"].map(|name| file(name).display().to_string()));
}

#[test]
fn staleness_is_seen_by_diff_and_by_later_runs() {
    let world = World::new();
    for name in ["a", "b", "c", "d"] {
        std::fs::write(world.project().join(name), "1").unwrap();
    }
    world.make("x", "echo x > mine").unwrap();
    assert_eq!(world.diff("x").unwrap().stale, None);
    for name in ["a", "b", "c"] {
        std::fs::write(world.project().join(name), "2").unwrap();
    }
    let stale = world.diff("x").unwrap().stale.unwrap();
    assert_eq!(stale.changed.len(), 3);
    assert_eq!(world.sh("x", "sleep 0.2").unwrap().stale.unwrap().changed.len(), 3);
}

#[test]
fn a_patch_of_a_sandbox_applies_to_reality() {
    let world = World::new();
    let project = world.project();
    std::fs::write(project.join("text"), "one\ntwo\n").unwrap();
    world
        .make("x", "echo three >> text; printf '\\0\\377' > bin; echo s > sub; ln -s text link")
        .unwrap();
    let mut patch = Vec::new();
    world.engine.write_diff(&world.caller, Some("x"), None, DiffFormat::Patch, &mut patch).unwrap();
    std::fs::write(world.dir.path().join("p"), &patch).unwrap();
    let applied = std::process::Command::new("git")
        .args(["apply", "../p"])
        .current_dir(&project)
        .env("GIT_CEILING_DIRECTORIES", world.dir.path())
        .status()
        .unwrap();
    assert!(applied.success());
    assert_eq!(std::fs::read_to_string(project.join("text")).unwrap(), "one\ntwo\nthree\n");
    assert_eq!(std::fs::read(project.join("bin")).unwrap(), [0, 255]);
}

#[test]
fn expired_sandboxes_go_and_others_stay() {
    let world = World::new();
    let make = |name: &str, ttl_ms: u64| {
        let run = Run {
            command: shell("echo > f"),
            name: Some(name.into()),
            ttl_ms: Some(ttl_ms),
            ..Run::default()
        };
        world.run(run).unwrap();
    };
    make("old", 1);
    std::thread::sleep(std::time::Duration::from_millis(20));
    make("new", 60_000);
    assert_eq!(world.list().iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["new"]);
}

#[test]
fn bad_requests_are_refused_before_anything_happens() {
    let world = World::new();
    let empty = Run::default();
    assert_eq!(world.run(empty), Err(Code::Invalid));
    let bad_name =
        Run { command: vec!["true".into()], name: Some("../x".into()), ..Run::default() };
    assert_eq!(world.run(bad_name), Err(Code::Invalid));
    let bad_cwd = Run {
        command: vec!["true".into()],
        cwd: Some("/no/such".into()),
        name: Some("x".into()),
        ..Run::default()
    };
    assert_eq!(world.run(bad_cwd), Err(Code::NotFound));
    let bad_template =
        Run { command: vec!["true".into()], template: Some("none".into()), ..Run::default() };
    assert_eq!(world.run(bad_template), Err(Code::NotFound));
    assert_eq!(world.sh("nobody", "true"), Err(Code::NotFound));
    assert!(world.list().is_empty());
    assert_eq!(std::fs::read_dir(world.engine.home().join("layers")).unwrap().count(), 0);
}

#[test]
fn a_key_without_the_verb_is_denied_and_the_denial_is_recorded() {
    let mut world = World::new();
    world.caller.who = "viewer".into();
    world.caller.policy.allow =
        Some([fractal::model::Verb::List, fractal::model::Verb::Log].into());
    assert_eq!(world.run(discard("true")), Err(Code::Denied));
    let Ok(Reply::Log(log)) = world.apply(LOG) else { panic!() };
    assert_eq!(log.records[0].body.error, Some(Code::Denied));
    assert_eq!(log.records[0].body.who, "viewer");
}

#[test]
fn a_second_run_joins_the_first_and_shares_files_and_network() {
    let world = World::new();
    world.make("x", "echo 0 > shared").unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let script = "import socket,os
s=socket.socket(); s.bind(('127.0.0.1',4321)); s.listen()
open('ready','w').close()
c,_=s.accept(); c.sendall(open('shared','rb').read()); c.close()";
            let run = Run {
                command: vec!["python3".into(), "-c".into(), script.into()],
                sandbox: Some("x".into()),
                ask: limited(Limits { time_ms: Some(20_000), ..Limits::default() }),
                ..Run::default()
            };
            world.run(run).unwrap()
        });
        let client = "while ! [ -e ready ]; do sleep 0.02; done; echo 1 > shared; \
             exec 3<>/dev/tcp/127.0.0.1/4321; cat <&3; ls /proc | grep -c '^[0-9]'";
        let run = Run {
            command: vec!["bash".into(), "-c".into(), client.into()],
            sandbox: Some("x".into()),
            ask: limited(Limits { time_ms: Some(20_000), ..Limits::default() }),
            ..Run::default()
        };
        std::thread::sleep(std::time::Duration::from_millis(100));
        let reply = world.run(run).unwrap();
        assert_eq!(reply.exit, 0, "{} {}", reply.stdout, reply.stderr);
        assert!(reply.stdout.starts_with("1\n"), "{}", reply.stdout);
        assert_eq!(server.join().unwrap().exit, 0);
    });
    assert_eq!(world.files("x")["shared"], "1");
}

#[test]
fn many_runs_at_once_in_one_sandbox_all_finish() {
    let world = World::new();
    world.make("x", "true").unwrap();
    // Runs of different lengths, so that builders end while others join.
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..24)
            .map(|number| {
                let world = &world;
                let pause = number % 4;
                let script = format!("echo {number} > f{number}; sleep 0.0{pause}; cat f{number}");
                scope.spawn(move || world.sh("x", &script))
            })
            .collect();
        for (number, run) in runs.into_iter().enumerate() {
            let reply = run.join().unwrap().unwrap();
            assert_eq!(reply.stdout, format!("{number}\n"), "{reply:?}");
        }
    });
    assert_eq!(world.files("x").len(), 24);
}

#[test]
fn templates_of_a_project_mount_anywhere_and_set_variables() {
    let mut world = World::new();
    let toml = "[templates.web]\nmounts = [{ at = \"/var/lib/web-data/deep\", volume = \"web\" }]\nenv = { MODE = \"test\" }\n";
    std::fs::write(world.project().join("fractal.toml"), toml).unwrap();
    world.caller.config = fractal::Config::load(&world.project(), None).unwrap();
    let command = shell("echo $MODE > /var/lib/web-data/deep/f && cat /var/lib/web-data/deep/f");
    let run = Run { command, template: Some("web".into()), discard: true, ..Run::default() };
    match world.run(run) {
        Ok(reply) => assert_eq!(reply.stdout, "test\n", "{}", reply.stderr),
        // Without root, nothing can be mounted below a directory of the system.
        Err(code) => assert_eq!(code, Code::Internal),
    }
}

#[test]
fn a_fork_cannot_ask_for_more_than_its_parent_has() {
    let world = World::new();
    let mut run = Run { command: shell("echo > f"), name: Some("x".into()), ..Run::default() };
    run.ask = limited(Limits { memory_bytes: Some(64 << 20), ..Limits::default() });
    world.run(run).unwrap();
    let ask = |bytes| limited(Limits { memory_bytes: Some(bytes), ..Limits::default() });
    assert_eq!(world.fork("x", "more", &ask(65 << 20)).unwrap_err(), Code::Denied);
    let child = world.fork("x", "less", &ask(32 << 20)).unwrap();
    assert_eq!(child.policy.limits.memory_bytes, Some(32 << 20));
}

#[test]
fn isolation_that_a_sandbox_was_made_with_holds_for_later_runs() {
    let world = World::new();
    let mut run = Run { command: shell("echo > f"), name: Some("x".into()), ..Run::default() };
    run.ask.isolation = Some(fractal::model::Tier::Clone);
    match world.run(run) {
        Ok(_) => assert_eq!(world.list()[0].policy.isolation, Some(fractal::model::Tier::Clone)),
        Err(code) => assert_eq!(code, Code::Unsupported),
    }
}

#[test]
fn deep_stacks_and_odd_names_mount_all_the_same() {
    let mut world = World::new();
    let odd = world.project().join("a:b,c\\d \"e\"");
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("f"), "host").unwrap();
    world.caller.directory = odd.clone();
    world.make("x", "echo 0 > f0").unwrap();
    for level in 1..=70 {
        world.snapshot("x", &format!("s{level}")).unwrap();
        world
            .sh("x", &format!("echo {level} > f{}; rm -f f{}", level % 9, (level + 4) % 9))
            .unwrap();
    }
    let reply = world.sh("x", "cat f f7; ls | wc -l").unwrap();
    assert_eq!(reply.stdout, "host\n70\n6\n".replace("host\n", "host"), "{}", reply.stderr);
    world.rollback("x", "s1").unwrap();
    assert_eq!(world.sh("x", "cat f0").unwrap().stdout, "0\n");
    assert_eq!(std::fs::read_to_string(odd.join("f")).unwrap(), "host");
}
