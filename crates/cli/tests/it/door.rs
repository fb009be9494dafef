//! `fractal run --door`: the same binary inside, below its own sandbox and
//! never above.

use crate::world::{Answer, FRACTAL, World, able};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A run with a door, of a script.
fn inside(world: &World, flags: &[&str], script: &str) -> Answer {
    let mut args = vec!["run", "--door"];
    args.extend(flags);
    args.extend(["--", "sh", "-c", script]);
    world.fractal(&args)
}

/// Whether a process on this machine has these words in its command line.
fn lives(marker: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    let text = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    processes.filter_map(text).any(|line| String::from_utf8_lossy(&line).contains(marker))
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_program_works_below_its_own_sandbox() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("a.txt", "one\n");
    let script = r#"
        set -e
        fractal doctor
        fractal -q fork child
        fractal -q run --in child -- sh -c 'echo two > a.txt; pwd > where.txt'
        test "$(cat a.txt)" = one
        fractal -q snapshot child first
        fractal -q run --in child -- sh -c 'echo three > a.txt'
        fractal -q rollback child first
        fractal diff child --name-status
        fractal -q fork child below
        fractal -q run --in below -- sh -c 'echo four > a.txt'
        fractal promote below
        fractal run --in child -- cat a.txt where.txt
        echo mine > own.txt
        mkdir -p sub && cd sub
        fractal -q run --name kid -- sh -c 'pwd; cat ../own.txt; echo x > k; exit 7' || echo "status $?"
        fractal -q run --rm -- sh -c 'echo gone > gone.txt'
        printf told | fractal run -i -- cat
        echo
        fractal show --json | grep -o '"children":[^]]*]'
        fractal -q drop below
        fractal list
    "#;
    let done = inside(&world, &["--name", "outer"], script);
    assert_eq!(done.status, 0, "{}\n{}", done.out, done.err);
    let project = world.project().display().to_string();
    for line in [
        "✓ door: it answers, you are in `outer`",
        "M\ta.txt",
        "A\twhere.txt",
        &format!("four\n{project}"),
        &format!("{project}/sub\nmine\nstatus 7\ntold\n"),
        "\"children\":[\"child\",\"kid\"]",
    ] {
        assert!(done.out.contains(line), "no {line:?} in {}\n{}", done.out, done.err);
    }
    assert!(!done.out.contains("below  "), "{}", done.out);
    assert_eq!(
        std::fs::read_to_string(world.project().join("a.txt")).ok().as_deref(),
        Some("one\n")
    );
    // What was made inside is there outside, and goes further from here.
    assert!(world.ok(&["show", "outer"]).out.contains("child, kid"));
    assert!(world.ok(&["promote", "child"]).err.contains("into outer"));
    assert_eq!(world.ok(&["run", "--in", "outer", "--", "cat", "a.txt"]).out, "four\n");
}

#[test]
fn a_living_sandbox_takes_a_patch_and_no_promotion() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("a.txt", "one\n");
    let script = r#"
        fractal -q run --name kid -- sh -c 'echo two > a.txt'
        fractal promote kid; echo "status $?"
        fractal diff kid | git apply && cat a.txt
    "#;
    let done = inside(&world, &["--name", "outer"], script);
    assert!(done.out.contains("status 125\ntwo\n"), "{}\n{}", done.out, done.err);
    assert!(done.err.contains("fractal diff kid | git apply"), "{}", done.err);
}

#[test]
fn doors_go_three_deep_and_never_wider() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&["run", "--name", "sibling", "--", "true"]);
    // Every level sees itself and what is below, and no level can be left.
    let script = r#"
        fractal -q run --door --name two -- sh -c '
            fractal -q run --door --name three -- sh -c "
                fractal -q run --name four -- sh -c \"echo deep > deep.txt\"
                fractal list --json | grep -o \"\\\"name\\\":\\\"[a-z]*\\\"\"
                fractal show two; echo two \$?
                fractal show sibling; echo sibling \$?
                fractal promote three; echo promote \$?
                fractal promote three --to reality; echo reality \$?
                fractal -q run --memory 400m --in three -- true; echo memory \$?
                fractal -q run --net host -- true; echo net \$?
                fractal -q run --time 59m -- true; echo time \$?
            "
        '
    "#;
    let done = inside(&world, &["--name", "one", "--memory", "400m", "--time", "2m"], script);
    assert_eq!(done.status, 0, "{}\n{}", done.out, done.err);
    let seen: Vec<&str> = done.out.lines().collect();
    let expect = [
        "\"name\":\"three\"",
        "\"name\":\"four\"",
        "two 6",
        "sibling 6",
        "promote 4",
        "reality 4",
        "memory 4",
        "net 4",
        "time 4",
    ];
    assert_eq!(seen, expect, "{}", done.err);
    let tree = world.ok(&["list"]).out;
    assert!(
        tree.contains("└─ two") && tree.contains("└─ three") && tree.contains("└─ four"),
        "{tree}"
    );
}

#[test]
fn nothing_above_can_be_seen_or_asked_for() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&["run", "--name", "sibling", "--", "true"]);
    let check = |command: &str, status: i32| {
        let script = format!("{command}; echo \"status $?\"");
        let done = inside(&world, &["--name", "own", "--pids", "512"], &script);
        assert!(
            done.out.ends_with(&format!("status {status}\n")),
            "{command}: {}{}",
            done.out,
            done.err
        );
        world.ok(&["drop", "own"]);
    };
    for denied in [
        "fractal promote",
        "fractal promote own --to reality",
        "fractal drop own",
        "fractal rollback own base",
        "fractal run --pids 4000 -- true",
        "fractal run --net host -- true",
        "fractal fork own x --pids 4000",
        "fractal run --template standard -- true",
        "fractal run --base frozen -- true",
        "fractal key create --role admin",
        "fractal key list",
        "fractal gc",
        "fractal volume create v",
        "fractal audit",
        "fractal undo",
        "fractal cp own:/etc/hostname /tmp/x",
        "fractal export own -o /tmp/x.tar",
        "FRACTAL_KEY=frk_wrong fractal list",
    ] {
        check(denied, 4);
    }
    for unseen in
        ["fractal show sibling", "fractal diff sibling", "fractal run --in sibling -- true"]
    {
        check(unseen, 6);
    }
    // The state directory is as empty as ever, and no other socket is there.
    check("test -z \"$(ls -A ../state)\"", 0);
    check("test \"$(ls /run/fractal)\" = \"$(basename $FRACTAL_DOOR)\"", 0);
    // Verbs that need what is not there say what works.
    check("fractal enter", 125);
    check("fractal run --explain -- true", 125);
    check("fractal help >/dev/null || fractal --help > /dev/null", 0);
}

#[test]
fn plain_requests_work_with_the_key_and_not_without() {
    if !able() {
        return;
    }
    let world = World::new();
    // Root of a rootless sandbox is the owner's own user: that must not count.
    let script = r#"
        ask() { curl -s --unix-socket "$FRACTAL_DOOR" -w ' %{http_code}\n' "$@"; }
        ask http://door/v1/sandboxes
        ask -H 'Fractal-Who: owner' http://door/v1/sandboxes
        ask -H "Authorization: Bearer $FRACTAL_KEY" http://door/v1/sandboxes/own
        ask -H "Authorization: Bearer $FRACTAL_KEY" -H 'Content-Type: application/json' \
            -d '{"command":["echo","hello"]}' http://door/v1/run
        ask -H "Authorization: Bearer $FRACTAL_KEY" -X POST http://door/v1/gc
    "#;
    let done = inside(&world, &["--name", "own"], script);
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!(lines.len(), 5, "{}{}", done.out, done.err);
    assert!(lines[0].ends_with(" 401") && lines[1].ends_with(" 401"), "{}", done.out);
    assert!(lines[2].contains("\"name\":\"own\"") && lines[2].ends_with(" 200"), "{}", done.out);
    assert!(
        lines[3].contains("\"stdout\":\"hello\\n\"") && lines[3].ends_with(" 200"),
        "{}",
        done.out
    );
    assert!(!lines[4].ends_with(" 200"), "{}", done.out);
}

#[test]
fn a_key_ends_with_its_run_and_its_secret_stands_nowhere() {
    if !able() {
        return;
    }
    let world = World::new();
    let told = inside(&world, &["--name", "own"], "echo $FRACTAL_KEY; fractal -q fork kid");
    let secret = told.out.lines().next().expect("a secret").to_owned();
    assert!(secret.starts_with("frk_"), "{secret}");
    let refused = world.fractal(&["mcp", "--key", &secret]);
    assert_eq!(refused.status, 4, "{}{}", refused.out, refused.err);
    assert_eq!(world.json(&["key", "list", "--json"]).1["keys"], serde_json::json!([]));
    // Everything that was done is told of under the key, but not the secret.
    let audit = world.ok(&["audit", "--json"]).out;
    assert!(audit.contains("\"who\":\"door-"), "{audit}");
    let explained = world.ok(&["run", "--door", "--explain", "--", "true"]).out;
    assert!(explained.contains("/run/fractal/"), "{explained}");
    let tail = secret.rsplit('_').next().unwrap_or(&secret);
    for text in [&audit, &world.ok(&["log", "--json"]).out, &explained] {
        assert!(!text.contains(tail), "{text}");
    }
    for name in ["state.db", "state.db-wal"] {
        let bytes = std::fs::read(world.state().join(name)).unwrap_or_default();
        assert!(!bytes.windows(tail.len()).any(|part| part == tail.as_bytes()), "{name}");
    }
}

/// A run with a door that waits, with the given script behind it.
fn start(world: &World, script: &str) -> Child {
    let mut command = world.command(FRACTAL);
    command.args(["run", "--door", "--name", "own", "--memory", "512m", "--", "sh", "-c", script]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    if !able() {
        return;
    }
    let world = World::new();
    let marker = format!("9{}", std::process::id());
    let script = format!(
        "echo $FRACTAL_KEY > key; \
         fractal run --door --name kid -- sh -c 'fractal run --name kidskid -- sleep 1{marker}'"
    );
    let mut launcher = start(&world, &script);
    eventually("the innermost runs", || lives(&format!("sleep\01{marker}")));
    launcher.kill().expect("it can be killed");
    launcher.wait().expect("it ends");
    eventually("all of it is gone", || !lives(&marker));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let state = world.state().display().to_string();
    assert!(!mounts.contains(&state), "{mounts}");
    let list = world.ok(&["list"]).out;
    assert!(list.contains("own") && !list.contains("running"), "{list}");
    let secret = world.ok(&["run", "--in", "own", "--", "cat", "key"]).out;
    assert_eq!(world.fractal(&["mcp", "--key", secret.trim()]).status, 4);
    assert_eq!(world.json(&["key", "list", "--json"]).1["keys"], serde_json::json!([]));
    no_group_of(&world);
}

/// No group is left of a run that the journal tells of.
fn no_group_of(world: &World) {
    let log = world.ok(&["log", "--json"]).out.to_lowercase();
    for hierarchy in ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"] {
        let groups = std::fs::read_dir(hierarchy).into_iter().flatten().flatten();
        for group in groups {
            let name = group.file_name().to_string_lossy().into_owned();
            let run = name.strip_prefix("fractal-").unwrap_or("-");
            let is_ours = run.len() > 20 && log.contains(run);
            assert!(!is_ours, "{hierarchy}/{name} is left");
        }
    }
}

#[test]
fn nested_runs_end_with_the_outer_one() {
    if !able() {
        return;
    }
    let world = World::new();
    let check = |flags: &[&str], script: &str, status: i32| {
        let marker = format!("8{}", std::process::id());
        let script = script.replace("LONG", &format!("sleep 1{marker}"));
        let began = Instant::now();
        let done = inside(&world, flags, &script);
        assert_eq!(done.status, status, "{script}: {}{}", done.out, done.err);
        assert!(began.elapsed() < Duration::from_secs(20), "{script}");
        eventually("it is gone", || !lives(&marker));
    };
    // The program leaves, its time is over, or who asked for a run gives up.
    check(&[], "fractal run -- LONG >/dev/null 2>&1 & sleep 1", 0);
    check(&["--time", "2s"], "fractal run -- LONG", 124);
    check(&[], "timeout 1 fractal run -- LONG; timeout 5 fractal -q run -- true", 0);
    assert!(!world.ok(&["list"]).out.contains("running"));
}

#[test]
fn a_run_told_as_events_ends_when_nobody_hears_them() {
    if !able() {
        return;
    }
    let world = World::new();
    let script = r#"
        timeout 2 curl -sN --unix-socket "$FRACTAL_DOOR" -H "Authorization: Bearer $FRACTAL_KEY" \
            -H 'Accept: text/event-stream' -H 'Content-Type: application/json' \
            -d '{"name":"kid","command":["sh","-c","echo begun; sleep 600"]}' http://door/v1/run
        n=0
        while fractal show kid | grep -q running && [ $n -lt 50 ]; do n=$((n+1)); sleep 0.2; done
        echo "waited $n"
    "#;
    let done = inside(&world, &["--name", "own"], script);
    assert!(done.out.contains("begun"), "{}{}", done.out, done.err);
    assert!(!done.out.contains("waited 50"), "{}{}", done.out, done.err);
}

#[test]
fn all_behind_a_door_share_what_the_outer_run_may_use() {
    if !able() {
        return;
    }
    let world = World::new();
    // Two of these cannot be at once, and one after the other they can.
    let script = r#"
        fractal -q run --memory 200m --pids 40 -- sleep 3 & sleep 1
        fractal -q run --memory 200m -- true; echo "second $?"
        fractal -q run --pids 40 -- true; echo "third $?"
        fractal -q run -- true; echo "little $?"
        wait
        fractal -q run --memory 200m --pids 40 -- true; echo "after $?"
    "#;
    let done = inside(&world, &["--rm", "--memory", "300m", "--pids", "64"], script);
    let expect = "second 125\nthird 125\nlittle 0\nafter 0\n";
    assert_eq!(done.out, expect, "{}", done.err);
    assert!(done.err.contains("are left behind this door"), "{}", done.err);
    // Many small ones: each gets half of what is left, then there is nothing.
    let script = r#"
        for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
            (fractal -q run -- sleep 4; echo $? >> ../tmp-out) 2>/dev/null &
        done
        wait
        sort ../tmp-out | uniq -c | tr -s ' '
    "#;
    let done = inside(&world, &["--rm", "--memory", "1g"], script);
    let ran: u32 = count(&done.out, " 0");
    let refused: u32 = count(&done.out, " 125");
    assert_eq!(ran + refused, 12, "{}{}", done.out, done.err);
    // 512, 256, 128, 64, 32, 16 and 16 are all of it.
    assert!((1..=7).contains(&ran), "{}{}", done.out, done.err);
    // A throw-away sandbox takes what is below it along.
    assert_eq!(world.json(&["list", "--json"]).1["sandboxes"], serde_json::json!([]));
}

/// How often a line of `uniq -c` ends like this.
fn count(text: &str, end: &str) -> u32 {
    let line = text.lines().find(|line| line.ends_with(end));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_server_serves_the_doors_of_runs_handed_to_it() {
    if !able() {
        return;
    }
    let world = World::new();
    let mut server = world.command(FRACTAL);
    let mut server = server.args(["serve", "--log", "error"]).spawn().expect("it starts");
    eventually("a server", || world.state().join("run.sock").exists());
    let script = "fractal -q run --name kid -- sh -c 'echo x > x'; fractal list";
    let done = inside(&world, &["--name", "own", "--verbose"], script);
    assert_eq!(done.status, 0, "{}{}", done.out, done.err);
    assert!(done.out.contains("└─ kid"), "{}{}", done.out, done.err);
    assert!(!done.err.contains("without the server"), "{}", done.err);
    server.kill().expect("it can be killed");
    server.wait().expect("it ends");
}

#[test]
fn nothing_comes_loose_by_dropping_what_it_stands_on() {
    if !able() {
        return;
    }
    let world = World::new();
    let script = r#"
        fractal -q fork middle > /dev/null
        fractal -q fork middle loose > /dev/null
        fractal -q fork other > /dev/null
        fractal -q drop middle; echo "status $?"
        fractal show loose >/dev/null 2>&1; echo "loose $?"
    "#;
    let done = inside(&world, &["--name", "own"], script);
    assert_eq!(done.out, "status 0\nloose 6\n", "{}", done.err);
    let list = world.ok(&["list"]).out;
    assert!(list.contains("other") && !list.contains("loose"), "{list}");
}

#[test]
fn copies_count_towards_the_disk_limit() {
    if !able() {
        return;
    }
    let world = World::new();
    // What runs is copied by each snapshot and by each fork.
    let script = r#"
        dd if=/dev/zero of=big bs=1M count=8 2>/dev/null
        fractal -q snapshot own a > /dev/null; echo "first $?"
        fractal -q fork own kid > /dev/null; echo "second $?"
        fractal -q snapshot own c > /dev/null; echo "third $?"
        fractal -q fork own more > /dev/null; echo "fourth $?"
        fractal -q drop kid
        fractal -q snapshot own d > /dev/null; echo "fifth $?"
    "#;
    let done = inside(&world, &["--name", "own", "--disk", "20m"], script);
    let codes: Vec<&str> = done.out.lines().collect();
    assert_eq!((codes[0], codes[1], codes[4]), ("first 0", "second 0", "fifth 0"), "{}", done.err);
    assert!(codes[2] != "third 0" && codes[3] != "fourth 0", "{}", done.out);
    assert!(done.err.contains("sandboxes below this one hold 16"), "{}", done.err);
}

#[test]
fn runs_behind_a_door_never_write_more_than_the_outer_one_may() {
    if !able() {
        return;
    }
    let world = World::new();
    // Four at the same instant, each as greedy as it can be; then what is left
    // is asked for, and what is there is dropped.
    let script = r#"
        for n in 1 2 3 4; do
            fractal -q run --name kid$n -- sh -c 'head -c 64M /dev/zero > big; sleep 2'                 > out$n 2>&1 &
        done
        wait
        for n in 1 2 3 4; do fractal drop kid$n --force > /dev/null 2>&1; done
        fractal -q run --rm --disk 24m -- sh -c 'head -c 20M /dev/zero > big'; echo "alone $?"
        fractal -q run --rm --disk 24m -- sleep 3 & sleep 1
        fractal -q run --rm --disk 24m -- true; echo "beside $?"
        fractal -q run --rm -- true; echo "little $?"
        wait
        fractal -q run --rm --disk 24m -- true; echo "after $?"
    "#;
    let peak = std::thread::scope(|scope| {
        let world = &world;
        let running =
            scope.spawn(move || inside(world, &["--name", "own", "--disk", "32m"], script));
        let mut peak = 0;
        while !running.is_finished() {
            peak = peak.max(bytes_below(&world.state().join("layers")));
            std::thread::sleep(Duration::from_millis(20));
        }
        let done = running.join().expect("it ends");
        assert_eq!(done.out, "alone 0\nbeside 125\nlittle 0\nafter 0\n", "{}", done.err);
        assert!(done.err.contains("are left behind this door"), "{}", done.err);
        peak
    });
    // What is written between two looks of a watcher is over as well.
    assert!((8 << 20..40 << 20).contains(&peak), "{} MiB", peak >> 20);
}

/// Bytes that files below a directory take.
fn bytes_below(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.metadata().ok()?, entry.path())))
        .map(|(meta, path)| {
            meta.blocks() * 512 + if meta.is_dir() { bytes_below(&path) } else { 0 }
        })
        .sum()
}

#[test]
fn who_joins_a_run_does_not_come_to_more_by_it() {
    if !able() {
        return;
    }
    let world = World::new();
    let mut command = world.command(FRACTAL);
    command.args(["run", "--net", "host", "--name", "own", "--"]);
    command.args(["sh", "-c", "echo begun; sleep 600"]);
    let mut wide = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut begun = String::new();
    BufReader::new(wide.stdout.take().expect("piped")).read_line(&mut begun).expect("it tells");
    let refused = world.fractal(&["run", "--net", "none", "--in", "own", "--", "true"]);
    assert_eq!(refused.status, 125, "{}", refused.err);
    assert!(refused.err.contains("fractal fork own"), "{}", refused.err);
    assert_eq!(world.fractal(&["run", "--in", "own", "--", "true"]).status, 0);
    world.ok(&["drop", "own"]);
    wide.wait().expect("it ends");
}

#[test]
fn a_drop_never_ends_who_supervises() {
    if !able() {
        return;
    }
    let world = World::new();
    let mut command = world.command(FRACTAL);
    command.args(["run", "--name", "own", "--", "sh", "-c", "echo begun; sleep 600"]);
    let mut launcher =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut begun = String::new();
    let out = launcher.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut begun).expect("it tells");
    let pid = launcher.id().to_string();
    let signal = |name: &str| {
        std::process::Command::new("kill").args([name, &pid]).status().expect("kill runs");
    };
    // It might be a server with runs of others that has no time just now.
    signal("-STOP");
    let began = Instant::now();
    world.ok(&["drop", "own"]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(!world.ok(&["list"]).out.contains("own"));
    signal("-CONT");
    assert_eq!(launcher.wait().expect("it ends").code(), Some(5), "it ended by itself");
    assert!(!world.ok(&["list"]).out.contains("own"), "it brings nothing back");
}

#[test]
fn what_is_learned_inside_is_found_there_and_by_the_owner_and_nowhere_else() {
    if !able() {
        return;
    }
    let world = World::new();
    world.ok(&["note", "the owner knows zebras"]);
    let script = "fractal -q note 'zebras are striped inside'; fractal find zebras --json";
    let done = inside(&world, &["--name", "one"], script);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.out.contains("striped inside"), "{}{}", done.out, done.err);
    assert!(!done.out.contains("owner knows") && !done.out.contains("\"file\""), "{}", done.out);
    let again = inside(&world, &["--in", "one"], "fractal find zebras --json");
    assert!(again.out.contains("striped inside"), "{}{}", again.out, again.err);
    let other = inside(&world, &["--name", "two"], "fractal find zebras --json");
    assert!(!other.out.contains("striped"), "{}", other.out);
    let own = world.ok(&["find", "zebras", "--json"]).out;
    assert!(own.contains("striped inside") && own.contains("owner knows"), "{own}");
    // Experiments are directories of the project, and there is none in there.
    let script = "fractal skunk new Zebras; fractal note x --experiment zebras";
    let refused = inside(&world, &["--rm"], script);
    assert_eq!(refused.status, 4, "{}{}", refused.out, refused.err);
    assert!(!world.project().join("sandbox").exists());
}
