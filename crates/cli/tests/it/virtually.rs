//! `fractal sh` and `--virtual`: the same verbs over a shell in memory.

#![allow(clippy::unwrap_used)]

use crate::world::{Answer, FRACTAL, World, able, is_root};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

fn project() -> World {
    let world = World::new();
    world.write("a.txt", "one\ntwo\nthree\n");
    world.write("b.txt", "four\n");
    std::fs::create_dir(world.project().join("dir")).unwrap();
    world.write("dir/c.txt", "five\n");
    world
}

#[test]
fn a_script_works_on_the_project_and_reality_stays() {
    let world = project();
    let script = "grep -rn t . | sort; sed -i s/two/2/ a.txt; rm b.txt; mkdir new; echo n > new/n";
    let answer = world.ok(&["sh", "--name", "v", "-c", script]);
    assert_eq!(answer.out, "./a.txt:2:two\n./a.txt:3:three\n");
    assert_eq!(answer.notes(), ["kept v: 4 changes (fractal diff v · fractal drop v)"]);
    assert_eq!(
        std::fs::read_to_string(world.project().join("a.txt")).unwrap(),
        "one\ntwo\nthree\n"
    );
    assert!(world.project().join("b.txt").exists());
    let status = world.ok(&["diff", "v", "--name-status"]).out;
    assert_eq!(status, "M\ta.txt\nD\tb.txt\nA\tnew/\nA\tnew/n\n");
    // The next script goes on where this one ended.
    let next = world.ok(&["sh", "--in", "v", "-c", "cat a.txt new/n; ls"]).out;
    assert_eq!(next, "one\n2\nthree\nn\na.txt\ndir\nnew\n");
    let promoted = world.ok(&["promote", "v"]);
    assert_eq!(std::fs::read_to_string(world.project().join("a.txt")).unwrap(), "one\n2\nthree\n");
    assert!(!world.project().join("b.txt").exists(), "{}", promoted.err);
    world.ok(&["undo"]);
    assert!(world.project().join("b.txt").exists());
}

#[test]
fn nothing_else_of_the_machine_is_there() {
    let world = project();
    std::fs::write(world.root().join("secret"), "s3cret").unwrap();
    let script = "cat ../secret /etc/passwd /proc/self/environ /dev/sda 2>&1; ls /; \
                  ln -s /etc/passwd l; cat l; echo x > /etc/new; cat < /dev/tcp/127.0.0.1/22; env";
    let answer = world.fractal(&["sh", "--rm", "-c", script]);
    assert!(!answer.out.contains("s3cret") && !answer.out.contains("root:"), "{}", answer.out);
    assert!(!answer.out.contains("FRACTAL_HOME"), "{}", answer.out);
    assert!(!std::path::Path::new("/etc/new").exists());
}

#[test]
fn a_fork_a_snapshot_and_a_rollback_are_the_usual_ones() {
    let world = project();
    world.ok(&["sh", "--name", "v", "-c", "echo 1 > x"]);
    world.ok(&["snapshot", "v", "s"]);
    world.ok(&["fork", "v", "w"]);
    // A fork of a virtual sandbox is one.
    assert_eq!(world.ok(&["run", "--in", "w", "--", "cat", "x"]).out, "1\n");
    world.ok(&["run", "--in", "w", "--", "sh", "-c", "echo 2 > x; rm -r dir"]);
    world.ok(&["sh", "--in", "v", "-c", "echo 3 > x"]);
    world.ok(&["rollback", "v", "s"]);
    assert_eq!(world.ok(&["sh", "--in", "v", "-c", "cat x; ls dir"]).out, "1\nc.txt\n");
    assert_eq!(world.ok(&["sh", "--in", "w", "-c", "cat x; ls"]).out, "2\na.txt\nb.txt\nx\n");
    let shown = world.json(&["run", "--json", "--in", "w", "--", "true"]).1;
    assert_eq!(shown["isolation"]["tier"], "virtual");
}

#[test]
fn real_programs_go_on_where_a_script_ended_and_back() {
    if !able() {
        return;
    }
    let world = project();
    world.ok(&["sh", "--name", "v", "-c", "echo made > virtually; rm -r dir; ln -s a.txt l"]);
    let script = "cat virtually l; test ! -e dir; echo $?; echo made > natively";
    let native = world.ok(&["run", "--in", "v", "--native", "--", "sh", "-c", script]);
    assert_eq!(native.out, "made\none\ntwo\nthree\n0\n");
    let back = world.ok(&["sh", "--in", "v", "-c", "cat natively; ls"]).out;
    assert_eq!(back, "made\na.txt\nb.txt\nl\nnatively\nvirtually\n");
}

#[test]
fn what_was_replaced_is_what_a_real_program_sees() {
    if !able() {
        return;
    }
    let world = project();
    let script =
        "rm -r dir; echo file > dir; rm a.txt; mkdir a.txt; echo in > a.txt/in; chmod 600 b.txt";
    world.ok(&["sh", "--name", "v", "-c", script]);
    let seen = "cat dir a.txt/in; stat -c %a b.txt; ls a.txt";
    let native = world.ok(&["run", "--in", "v", "--native", "--", "sh", "-c", seen]).out;
    assert_eq!(native, "file\nin\n600\nin\n");
    // A directory that comes back is empty: nothing shines through.
    world.ok(&["sh", "--in", "v", "-c", "rm dir; mkdir dir"]);
    let native = world.ok(&["run", "--in", "v", "--native", "--", "ls", "-A", "dir"]).out;
    assert_eq!(native, "");
    world.ok(&["promote", "v"]);
    assert_eq!(std::fs::read_to_string(world.project().join("a.txt/in")).unwrap(), "in\n");
    assert_eq!(std::fs::read_dir(world.project().join("dir")).unwrap().count(), 0);
}

#[test]
fn input_scripts_and_arguments_come_in_every_usual_way() {
    let world = project();
    let give = |args: &[&str], input: &str| {
        let mut child = world
            .command(FRACTAL)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Answer::from(child.wait_with_output().unwrap())
    };
    assert_eq!(give(&["sh", "--rm", "-c", "tr a-z A-Z"], "hello\n").out, "HELLO\n");
    assert_eq!(give(&["sh", "--rm"], "x=1\necho $((x+1))\n").out, "2\n");
    world.write("s.sh", "echo \"$1:$2\"; exit 7\n");
    let answer = world.fractal(&["sh", "--rm", "s.sh", "a b", "c"]);
    assert_eq!((answer.status, answer.out.as_str()), (7, "a b:c\n"));
    let answer = world.fractal(&["sh", "--rm", "-c", "echo $1", "x", "y"]);
    assert_eq!(answer.out, "x\n");
    let missing = world.fractal(&["sh", "--rm", "no-such-file"]);
    assert_eq!(missing.status, 6);
}

#[test]
fn limits_end_a_script_as_they_end_a_program() {
    let world = project();
    let answer = world.fractal(&["sh", "--rm", "--time", "300ms", "-c", "while :; do :; done"]);
    assert_eq!(answer.status, 124, "{}", answer.err);
    let (_, reply) = world.json(&["sh", "--json", "--rm", "--time", "300ms", "-c", "sleep 60"]);
    assert_eq!(reply["outcome"], "timeout");
    let answer =
        world.fractal(&["sh", "--rm", "--disk", "1m", "-c", "seq 100000 > a && cat a a a > big"]);
    assert_ne!(answer.status, 0);
    assert!(answer.err.contains("No space left"), "{}", answer.err);
}

#[test]
fn output_beyond_its_limit_ends_a_script_too() {
    let world = project();
    let answer = world.fractal(&["sh", "--rm", "--output", "1k", "-c", "seq 100000"]);
    assert_eq!(answer.status, 137, "{}", answer.err);
    assert!(answer.out.starts_with("1\n2\n") && answer.out.len() <= 1024, "{}", answer.out.len());
    // When it is crossed, not when the script is done.
    let script = "seq 100000; echo late > late";
    world.fractal(&["sh", "--name", "v", "--output", "1k", "-c", script]);
    assert_eq!(world.ok(&["sh", "--in", "v", "-c", "ls late || echo none"]).out, "none\n");
}

#[test]
fn a_directory_that_is_not_there_is_an_error_with_advice() {
    let world = project();
    let answer = world.fractal(&["sh", "--rm", "-w", "nowhere", "-c", "echo ran"]);
    assert_eq!((answer.status, answer.out.as_str()), (6, ""), "{}", answer.err);
    assert!(answer.err.contains("/nowhere") && answer.err.contains("hint:"), "{}", answer.err);
    world.write("plain", "1");
    let answer = world.fractal(&["sh", "--rm", "-w", "plain", "-c", "echo ran"]);
    assert_eq!((answer.status, answer.out.as_str()), (2, ""), "{}", answer.err);
    world.ok(&["sh", "--name", "w", "-c", "mkdir -p made/here"]);
    let answer = world.ok(&["sh", "--in", "w", "-w", "made/here", "-c", "basename $PWD"]);
    assert_eq!(answer.out, "here\n");
}

#[test]
fn a_loop_that_hears_nothing_is_ended_by_the_second_interrupt() {
    let world = project();
    let script = "echo 1 > x; awk 'BEGIN{while(1);}'";
    let answer = interrupted(&world, &["sh", "--name", "v", "-c", script]);
    assert_ne!(answer.status, 0, "{}", answer.err);
    // The sandbox is there, without what the script did.
    assert!(world.ok(&["log"]).out.contains("lost"));
    assert_eq!(world.fractal(&["sh", "--in", "v", "-c", "cat x"]).status, 1);
}

#[test]
fn what_is_for_new_sandboxes_is_refused_for_one_that_exists() {
    let world = project();
    world.ok(&["sh", "--name", "v", "-c", "true"]);
    let answer = world.fractal(&["sh", "--in", "v", "--template", "clone", "-c", "true"]);
    assert_eq!(answer.status, 2, "{}", answer.err);
}

/// A run in memory without an end, interrupted as soon as that is possible.
pub fn interrupted(world: &World, args: &[&str]) -> Answer {
    let mut child = world
        .command(FRACTAL)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    // The script has no end; before it begins, signals are held back.
    let held = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|m| m & 2 != 0)
    };
    // One that comes too early has no effect; one that comes when the first
    // has had its effect would end the process by itself. So each has time.
    for round in 0.. {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        if round % 50 == 0 {
            while !held(&pid) && child.try_wait().unwrap().is_none() {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            world.command("kill").args(["-INT", &pid]).status().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Answer::from(child.wait_with_output().unwrap())
}

#[test]
fn an_interrupt_ends_a_script_and_keeps_what_it_did() {
    let world = project();
    let script = "echo 1 > x; while :; do :; done";
    let answer = interrupted(&world, &["sh", "--name", "v", "-c", script]);
    assert_eq!(answer.status, 130, "{}", answer.err);
    assert_eq!(world.ok(&["sh", "--in", "v", "-c", "cat x"]).out, "1\n");
}

#[test]
fn attempts_compare_in_memory_too() {
    let world = project();
    world.write("fractal.toml", "template = \"virtual\"\n");
    let (status, reply) = world.json(&[
        "try",
        "--json",
        "--each",
        "sed -i s/one/1/ a.txt",
        "--each",
        "true",
        "--check",
        "first=grep -q '^1' a.txt",
    ]);
    assert_eq!(status, 0, "{reply}");
    assert_eq!(reply["winner"], "a1");
    assert_eq!(reply["attempts"][0]["checks"][0]["result"], "pass");
}

#[test]
fn it_needs_no_privileges() {
    if !is_root() {
        return;
    }
    let world = project();
    let root = world.root();
    std::os::unix::fs::chown(root, Some(65534), Some(65534)).unwrap();
    for path in ["project", "project/a.txt", "project/b.txt", "project/dir", "project/dir/c.txt"] {
        std::os::unix::fs::chown(root.join(path), Some(65534), Some(65534)).unwrap();
    }
    let mut command = world.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", FRACTAL]);
    let answer = Answer::of(command.args(["sh", "--name", "v", "-c", "rm a.txt; ls; cat b.txt"]));
    assert_eq!((answer.status, answer.out.as_str()), (0, "b.txt\ndir\nfour\n"), "{}", answer.err);
    // What may not be read is said to be so, and is no defect of a disk.
    world.write("secret", "x");
    let secret = root.join("project/secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = world.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", FRACTAL]);
    let answer = Answer::of(command.args(["sh", "--rm", "-c", "cat secret; grep x secret"]));
    assert!(answer.err.contains("Permission denied"), "{}", answer.err);
    assert!(!answer.err.contains("Input/output error"), "{}", answer.err);
}

#[test]
fn a_script_forks_its_sandbox_as_it_is_at_that_moment() {
    let world = project();
    let script = "echo 1 > x; fork w; echo 2 > x; fork a b; echo $?";
    let answer = world.ok(&["sh", "--name", "v", "-c", script]);
    assert_eq!(answer.out, "w\n2\n");
    assert!(answer.err.contains("usage: fork [NAME]"), "{}", answer.err);
    assert_eq!(world.ok(&["sh", "--in", "w", "-c", "cat x"]).out, "1\n");
    assert_eq!(world.ok(&["sh", "--in", "v", "-c", "cat x"]).out, "2\n");
    let answer = world.fractal(&["sh", "--rm", "-c", "fork"]);
    assert!(answer.status != 0 && answer.err.contains("leave out --rm"), "{}", answer.err);
}

#[test]
fn a_script_calls_real_programs_on_its_files() {
    let world = project();
    if !able() {
        return;
    }
    let native = "cat; cat a.txt; echo real > made; rm b.txt; mkdir n; ln -s ../made n/l; \
                  chmod 700 made; rm -r dir; echo file > dir; exit 3";
    let script = format!(
        "echo changed > a.txt; echo in | run-native sh -c '{native}'; echo $?; \
         cat made n/l dir; stat -c %a made; ls; run-native; echo $?; export K=v; run-native sh -c 'echo $K'"
    );
    let answer = world.ok(&["sh", "--name", "v", "-c", &script]);
    let expect = "in\nchanged\n3\nreal\nreal\nfile\n700\na.txt\ndir\nmade\nn\n2\nv\n";
    assert_eq!(answer.out, expect, "{}", answer.err);
    let status = world.ok(&["diff", "v", "--name-status"]).out;
    assert!(status.contains("D\tb.txt") && status.contains("A\tmade"), "{status}");
    assert_eq!(world.ok(&["list", "--json"]).out.matches("\"name\":").count(), 1);
    // A program that has no end meets the script's.
    let endless = "run-native sleep 600; echo after";
    let answer = world.fractal(&["sh", "--in", "v", "--time", "1s", "-c", endless]);
    assert_eq!((answer.status, answer.out.as_str()), (124, ""), "{}", answer.err);
}

#[test]
fn the_standard_topology_is_there_in_memory_too() {
    let world = project();
    let script = "cd /workspace && pwd && ls && cat /src/a.txt | head -1 && echo kept > /data/output/k \
                  && echo x > scratch && echo no > /src/new; echo $?; echo ~";
    let args = ["run", "--virtual", "--template", "standard", "--name", "v", "--", "sh", "-c"];
    let answer = world.ok(&[&args[..], &[script]].concat());
    assert_eq!(answer.out, "/workspace\ndocs\ntemp\none\n1\n/root\n", "{}", answer.err);
    assert!(!world.project().join("new").exists());
    // The volume outlives the sandbox; scratch space is the sandbox's own.
    let look = "cat /data/output/k; cat /workspace/scratch";
    let next = world.fractal(&["run", "--virtual", "--in", "v", "--", "sh", "-c", look]);
    assert_eq!(next.out, "kept\nx\n", "{}", next.err);
    world.ok(&["drop", "v"]);
    let other = [&args[..4], &["--rm", "--", "sh", "-c"]].concat();
    let other = world.fractal(&[&other[..], &[look]].concat());
    assert!(other.out.starts_with("kept\n") && !other.out.contains('x'), "{}", other.out);
    if able() {
        let native = ["run", "--template", "standard", "--rm", "--", "cat", "/data/output/k"];
        assert_eq!(world.ok(&native).out, "kept\n");
    }
}

#[test]
fn both_worlds_never_write_one_sandbox_at_once() {
    let world = project();
    if !able() {
        return;
    }
    let script = "echo 1 > x; touch ready; while ! test -e done; do sleep 0.1; done";
    let mut native = world.command(FRACTAL);
    let native = native.args(["run", "--name", "n", "--", "sh", "-c", script]);
    let mut native = native.stderr(Stdio::piped()).spawn().unwrap();
    while !world.fractal(&["diff", "n", "--name-status"]).out.contains("ready") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let answer = world.fractal(&["sh", "--in", "n", "-c", "echo 2 > x"]);
    assert!(answer.err.contains("real programs run in `n`"), "{}", answer.err);
    world.ok(&["run", "--in", "n", "--", "touch", "done"]);
    assert!(native.wait().unwrap().success());
    assert_eq!(world.ok(&["sh", "--in", "n", "-c", "cat x"]).out, "1\n");
}

#[test]
fn what_was_moved_without_being_read_is_still_there() {
    let world = project();
    world.ok(&["sh", "--name", "v", "-c", "mv a.txt b.txt; mv dir other"]);
    // Each into the other's place, over what an earlier script left.
    let script = "mv b.txt t; mv other/c.txt b.txt; mv t other/c.txt; mv other dir; ln b.txt hard";
    world.ok(&["sh", "--in", "v", "-c", script]);
    let look = "cat b.txt dir/c.txt hard; ls -R .";
    let expect = "five\none\ntwo\nthree\nfive\n.:\nb.txt\ndir\nhard\n\n./dir:\nc.txt\n";
    assert_eq!(world.ok(&["sh", "--in", "v", "-c", look]).out, expect);
    let status = world.ok(&["diff", "v", "--name-status"]).out;
    assert_eq!(status, "D\ta.txt\nM\tb.txt\nM\tdir/c.txt\nA\thard\n");
}

#[test]
fn a_fork_can_change_worlds() {
    let world = project();
    world.ok(&["sh", "--name", "v", "-c", "echo 1 > x"]);
    if able() {
        world.ok(&["fork", "--native", "v", "n"]);
        let answer = world.ok(&["run", "--in", "n", "--json", "--", "cat", "x"]);
        assert!(!answer.out.contains("\"virtual\""), "{}", answer.out);
        world.ok(&["fork", "--virtual", "n", "w"]);
    } else {
        world.ok(&["fork", "--virtual", "v", "w"]);
    }
    let answer = world.ok(&["run", "--in", "w", "--json", "--", "cat", "x"]);
    assert!(answer.out.contains("\"virtual\""), "{}", answer.out);
}

#[test]
fn scripts_that_wait_for_each_other_lose_nothing() {
    let world = project();
    world.ok(&["sh", "--name", "v", "-c", "echo 0 > log"]);
    let start = |number: u32| {
        let script = format!("echo {number} >> log; echo {number} > f{number}");
        let mut command = world.command(FRACTAL);
        command.args(["sh", "--in", "v", "-c", &script]).stderr(Stdio::null()).spawn().unwrap()
    };
    let all: Vec<_> = (1..=6).map(start).collect();
    for mut child in all {
        assert!(child.wait().unwrap().success());
    }
    let look = "sort log | tr '\\n' ' '; ls f* | wc -l";
    assert_eq!(world.ok(&["sh", "--in", "v", "-c", look]).out, "0 1 2 3 4 5 6 6\n");
    if able() {
        // The same behind a real program.
        let native =
            "echo n >> log; touch ready; while ! test -e go; do sleep 0.05; done; echo m >> log";
        let mut native = world
            .command(FRACTAL)
            .args(["run", "--native", "--in", "v", "--", "sh", "-c", native])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !world.fractal(&["diff", "v", "--name-status"]).out.contains("ready") {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let mut script = start(7);
        std::thread::sleep(std::time::Duration::from_millis(300));
        world.ok(&["run", "--native", "--in", "v", "--", "touch", "go"]);
        assert!(native.wait().unwrap().success() && script.wait().unwrap().success());
        let log = world.ok(&["sh", "--in", "v", "-c", "tail -n 3 log | tr '\\n' ' '"]).out;
        assert_eq!(log, "n m 7 ");
    }
}

#[test]
fn whoever_is_killed_while_keeping_leaves_the_old_or_the_new() {
    let world = project();
    let many = world.project().join("many");
    std::fs::create_dir(&many).unwrap();
    for number in 0..800 {
        std::fs::write(many.join(number.to_string()), "x").unwrap();
    }
    let mut news = 0;
    for (round, wait_ms) in [60, 120, 180, 240, 300, 400, 600, 900].into_iter().enumerate() {
        let name = format!("k{round}");
        world.ok(&["sh", "--name", &name, "-c", "echo before > before"]);
        let mut child = world
            .command(FRACTAL)
            .args(["sh", "--in", &name, "-c", "mv many moved; rm before"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        world.command("kill").args(["-KILL", &child.id().to_string()]).status().unwrap();
        child.wait().unwrap();
        let look = "ls many moved 2>/dev/null | grep -c '^[0-9]'; ls -d many moved before 2>/dev/null; true";
        let seen = world.ok(&["sh", "--in", &name, "-c", look]).out;
        match seen.as_str() {
            "800\nbefore\nmany\n" => {}
            "800\nmoved\n" => news += 1,
            other => panic!("after {wait_ms} ms neither old nor new: {other}"),
        }
        world.ok(&["drop", &name]);
    }
    println!("{news} of 8 were done");
}
