//! The whole command on a machine where no namespace can be made: the tier
//! `copied`, reached with real parts and no override.

use crate::world::{Answer, FRACTAL, World};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs its arguments in a user namespace that allows no further ones; other
/// processes of the machine do not notice. An ordinary user has no privileges
/// there either; root keeps those that are of no use outside of it.
const NO_NAMESPACES: &str = r#"
echo 0 > /proc/sys/user/max_user_namespaces || exit 1
[ "$(id -u)" = 0 ] && exec "$@"
exec setpriv --bounding-set -all --inh-caps -all --ambient-caps -all "$@"
"#;

struct Bare(World);

impl Bare {
    fn new() -> Option<Bare> {
        let world = Bare(World::new());
        let answer = Answer::of(world.command("true").env("PROBE", "1"));
        if answer.status != 0 {
            eprintln!("skipped: no user namespace to forbid namespaces in: {}", answer.err);
            return None;
        }
        world.0.write("kept.txt", "kept\n");
        world.0.write("gone.txt", "gone\n");
        Some(world)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.0.command("unshare");
        command.args(["--user", "--map-current-user", "--keep-caps", "sh", "-c", NO_NAMESPACES]);
        command.args(["sh", program]);
        command
    }

    fn fractal(&self, args: &[&str]) -> Answer {
        Answer::of(self.command(FRACTAL).args(args))
    }

    fn ok(&self, args: &[&str]) -> Answer {
        let answer = self.fractal(args);
        assert_eq!(answer.status, 0, "fractal {args:?}: {}{}", answer.out, answer.err);
        answer
    }

    fn sh(&self, sandbox: &str, script: &str) -> Answer {
        self.ok(&["run", "--in", sandbox, "--", "sh", "-c", script])
    }

    fn make(&self, sandbox: &str, script: &str) -> Answer {
        self.ok(&["run", "--name", sandbox, "--", "sh", "-c", script])
    }

    /// Changed paths below the project, as `A name`.
    fn changed(&self, sandbox: &str) -> Vec<String> {
        let out = self.ok(&["diff", sandbox, "--name-status"]).out;
        out.lines().map(|line| line.replace('\t', " ")).collect()
    }

    /// A call that must be refused, and the hint it gives.
    fn refused(&self, args: &[&str], why: &str) {
        let answer = self.fractal(args);
        assert_ne!(answer.status, 0, "{args:?}");
        assert!(answer.err.contains(why), "{args:?}: {}", answer.err);
        assert!(answer.err.contains("hint:"), "{args:?}: {}", answer.err);
        assert!(self.layers().is_empty(), "{args:?} left {:?}", self.layers());
    }

    fn layers(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.state().join("layers")).into_iter().flatten();
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

#[test]
fn doctor_says_what_is_left() {
    let Some(bare) = Bare::new() else { return };
    let text = bare.ok(&["doctor"]).out;
    assert!(text.contains("✗ isolation rootless") && text.contains("✓ isolation copied"), "{text}");
    assert!(text.ends_with("runs are possible, with isolation `copied`\n"), "{text}");
    let json = bare.ok(&["doctor", "--json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["tier"], "copied");
}

#[test]
fn a_sandbox_lives_through_all_verbs() {
    let Some(bare) = Bare::new() else { return };
    let world = &bare.0;
    let script = "rm gone.txt; echo new > new.txt; chmod 700 new.txt; echo t > $TMPDIR/t";
    let json = bare.ok(&["run", "--json", "--name", "one", "--", "sh", "-c", script]).out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["isolation"]["tier"], "copied");
    assert!(json["isolation"]["missing"].as_array().is_some_and(|list| list.len() >= 3));
    assert_eq!(json["changes"].as_array().map(Vec::len), Some(2), "{json}");
    assert_eq!(bare.changed("one"), ["D gone.txt", "A new.txt"]);

    bare.ok(&["snapshot", "one", "good"]);
    bare.sh("one", "echo worse > new.txt; rm kept.txt");
    assert_eq!(bare.changed("one"), ["D gone.txt", "D kept.txt", "A new.txt"]);
    assert!(bare.ok(&["diff", "one", "--since", "good"]).out.contains("+worse"));
    bare.ok(&["rollback", "one", "good"]);
    assert_eq!(bare.sh("one", "cat new.txt kept.txt; ls").out, "new\nkept\nkept.txt\nnew.txt\n");

    bare.ok(&["fork", "one", "two"]);
    bare.sh("two", "echo two > two.txt");
    assert_eq!(bare.changed("two"), ["A two.txt"]);
    assert_eq!(bare.sh("one", "ls").out, "kept.txt\nnew.txt\n");
    bare.ok(&["rollback", "one", "base"]);
    assert_eq!(bare.sh("one", "ls").out, "gone.txt\nkept.txt\n");

    world.write("given.txt", "given\n");
    bare.ok(&["cp", "given.txt", "two:given.txt"]);
    assert_eq!(bare.sh("two", "cat given.txt").out, "given\n");
    bare.ok(&["cp", "two:two.txt", "taken.txt"]);
    assert_eq!(std::fs::read_to_string(world.project().join("taken.txt")).expect("taken"), "two\n");
    bare.ok(&["export", "two", "-o", "two.tar.zst"]);
    bare.ok(&["import", "two.tar.zst", "--name", "three"]);
    assert_eq!(bare.sh("three", "cat two.txt").out, "two\n");
    bare.ok(&["drop", "one", "two", "three"]);
    assert!(bare.layers().is_empty(), "{:?}", bare.layers());
    assert!(world.project().join("gone.txt").exists() && !world.project().join("new.txt").exists());
}

#[test]
fn edits_of_the_host_are_no_changes_of_the_sandbox() {
    let Some(bare) = Bare::new() else { return };
    bare.make("one", "echo new > new.txt");
    bare.0.write("kept.txt", "edited by you\n");
    bare.0.write("yours.txt", "made by you\n");
    assert_eq!(bare.changed("one"), ["A new.txt"]);
    assert_eq!(bare.sh("one", "cat kept.txt; echo more >> new.txt").out, "kept\n");
    assert_eq!(bare.changed("one"), ["A new.txt"]);
}

#[test]
fn a_run_that_changes_nothing_leaves_nothing() {
    let Some(bare) = Bare::new() else { return };
    bare.ok(&["run", "--", "true"]);
    bare.ok(&["run", "--rm", "--", "sh", "-c", "echo x > x"]);
    assert!(bare.layers().is_empty(), "{:?}", bare.layers());
}

#[test]
fn what_it_cannot_do_is_refused_with_a_hint() {
    let Some(bare) = Bare::new() else { return };
    bare.refused(
        &["run", "--template", "standard", "--", "true"],
        "cannot mount anything at /data",
    );
    bare.refused(&["run", "--net", "allow:example.org", "--", "true"], "single hosts");
    bare.refused(&["run", "--isolation", "rootless", "--", "true"], "reaches `copied`");
    bare.refused(&["run", "-w", "/var", "--", "true"], "not in the copy");
    bare.0.write("large", &"x".repeat(2 << 20));
    bare.refused(&["run", "--disk", "1m", "--", "true"], "too large");
    bare.ok(&[
        "run",
        "--disk",
        "1m",
        "--hide",
        &hidden(&bare, "large"),
        "--",
        "test",
        "!",
        "-e",
        "large",
    ]);
    if !crate::world::is_root() {
        let closed = bare.0.project().join("closed");
        std::fs::write(&closed, "").expect("a file");
        let none = std::os::unix::fs::PermissionsExt::from_mode(0o0);
        std::fs::set_permissions(&closed, none).expect("chmod");
        bare.refused(&["run", "--", "true"], "closed");
        bare.ok(&["run", "--hide", &hidden(&bare, "closed"), "--", "true"]);
    }
}

fn hidden(bare: &Bare, name: &str) -> String {
    bare.0.project().join(name).display().to_string()
}

#[test]
fn nothing_outside_is_written_or_read() {
    let Some(bare) = Bare::new() else { return };
    let world = &bare.0;
    std::fs::create_dir(world.root().join(".ssh")).expect("mkdir");
    std::fs::write(world.root().join(".ssh/id"), "secret").expect("write");
    let original = world.project().display().to_string();
    let home = world.root().display().to_string();
    let script = format!(
        "cat {home}/.ssh/id; ls {original}; cat {original}/kept.txt; echo x > {original}/x;
         echo x > {home}/x; echo x > /tmp/fractal-x; chmod 000 {home} {original}; ls {home}/state;
         touch -d 2001-01-01 {original}/kept.txt; chmod 700 .; chmod 755 kept.txt && echo worked"
    );
    let answer = bare.make("one", &script);
    assert_eq!(answer.out, "worked\n", "{}", answer.err);
    assert!(!std::path::Path::new("/tmp/fractal-x").exists());
    let meta = std::fs::metadata(world.project().join("kept.txt")).expect("stat");
    assert!(meta.mtime() > 1_000_000_000);
    assert_eq!(bare.changed("one"), ["M ./", "M kept.txt"]);
}

#[test]
fn the_disk_limit_counts_scratch_space_too() {
    let Some(bare) = Bare::new() else { return };
    let script = "for n in $(seq 20); do head -c 1000000 /dev/zero > $TMPDIR/$n; done; sleep 5";
    let args = ["run", "--json", "--rm", "--disk", "5m", "--", "sh", "-c", script];
    let json: serde_json::Value = serde_json::from_str(&bare.fractal(&args).out).expect("JSON");
    assert_eq!(json["outcome"], "disk", "{json}");
}

#[test]
fn two_runs_share_a_sandbox() {
    let Some(bare) = Bare::new() else { return };
    bare.make("one", "echo 0 > count");
    let wait = "until [ -e second ]; do sleep 0.02; done; echo first > first";
    // In one namespace: across two, processes may not look at each other.
    let both = format!(
        "fractal run --in one --time 20s -- sh -c '{wait}' & \
         fractal run --in one -- sh -c 'echo second > second' && wait $!"
    );
    let answer = Answer::of(bare.command("sh").args(["-c", &both]));
    assert_eq!(answer.status, 0, "{}", answer.err);
    assert_eq!(bare.changed("one"), ["A count", "A first", "A second"]);
}

#[test]
fn killing_the_command_ends_all_processes() {
    let Some(bare) = Bare::new() else { return };
    let marker = format!("3600.{}", std::process::id());
    let script =
        format!("setsid sleep {marker} & (setsid sleep {marker} &) ; touch up; sleep {marker}");
    bare.make("one", "true");
    let mut run = bare
        .command(FRACTAL)
        .args(["run", "--in", "one", "--", "sh", "-c", &script])
        .spawn()
        .expect("it starts");
    wait_until("the run starts", || count(&marker) == 3);
    run.kill().expect("it is ours");
    run.wait().expect("it is ours");
    wait_until("all are gone", || count(&marker) == 0);
    assert_eq!(bare.changed("one"), ["A up"]);
}

/// Processes named `sleep` with this argument.
fn count(argument: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let wanted = format!("sleep\0{argument}\0");
    entries.filter_map(line).filter(|line| line == wanted.as_bytes()).count()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_copy_that_was_killed_is_never_taken_for_one() {
    let Some(bare) = Bare::new() else { return };
    for index in 0..400 {
        bare.0.write(&format!("file{index}"), "x");
    }
    bare.make("one", "rm file7");
    bare.ok(&["snapshot", "one", "s"]);
    for delay_ms in [10, 25, 50, 80] {
        for args in [["run", "--in", "one", "--", "true"].as_slice(), &["run", "--", "touch", "x"]]
        {
            let mut run = bare.command(FRACTAL).args(args).spawn().expect("it starts");
            std::thread::sleep(Duration::from_millis(delay_ms));
            let _ = run.kill();
            run.wait().expect("it is ours");
            assert_eq!(bare.changed("one"), ["D file7"], "killed after {delay_ms} ms");
        }
    }
    assert_eq!(bare.sh("one", "ls | wc -l").out, "401\n");
    let work = bare.0.state().join("layers");
    for layer in bare.layers() {
        let left = std::fs::read_dir(work.join(layer).join("work")).into_iter().flatten().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert!(left.len() <= 1, "{left:?}");
    }
    let state = bare.ok(&["doctor"]).out;
    assert!(state.contains("runs are possible"), "{state}");
}

#[test]
fn a_terminal_works() {
    let Some(bare) = Bare::new() else { return };
    bare.make("one", "true");
    let probe = bare.0.command("script").arg("--version").output();
    if probe.is_err() {
        eprintln!("skipped: no script(1) to make a terminal");
        return;
    }
    let line = "fractal run -t --in one -- sh -c 'tty >/dev/null && test -t 0 && echo is-a-terminal > t; cat t > /dev/tty'";
    let answer =
        Answer::of(bare.command("script").env("TERM", "xterm").args(["-qec", line, "/dev/null"]));
    assert!(answer.out.contains("is-a-terminal"), "{} {}", answer.out, answer.err);
}

#[test]
fn the_plan_can_be_read_first() {
    let Some(bare) = Bare::new() else { return };
    let text = bare.ok(&["run", "--explain", "--", "true"]).out;
    for line in ["copy: ", "tier: copied", "landlock: /usr read only", "carried out by init"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(bare.layers().is_empty());
}

#[test]
fn a_better_tier_later_sees_the_same() {
    let Some(bare) = Bare::new() else { return };
    bare.make("one", "rm gone.txt; mkdir d; echo new > d/new.txt");
    bare.ok(&["snapshot", "one", "s"]);
    bare.sh("one", "rm kept.txt");
    let before = bare.changed("one");
    let world = &bare.0;
    let (_, doctor) = world.json(&["doctor", "--json"]);
    if doctor["tier"] == "copied" {
        eprintln!("skipped: no better tier on this machine");
        return;
    }
    let run = ["run", "--in", "one", "--", "sh", "-c", "ls; rm d/new.txt; echo x > gone.txt"];
    assert_eq!(world.ok(&run).out, "d\n");
    assert_ne!(bare.changed("one"), before);
    assert_eq!(bare.changed("one"), ["A d/", "M gone.txt", "D kept.txt"]);
    assert_eq!(bare.sh("one", "ls").out, "d\ngone.txt\n", "and back again");
}

/// Refuses what the filters of container engines refuse, and becomes its
/// arguments: namespaces and mounts are not permitted, `clone3` is unknown.
#[cfg(target_arch = "x86_64")]
const LIKE_A_CONTAINER: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def op(code, k, jt=0, jf=0): return struct.pack("HBBI", code, jt, jf, k)
ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x50001, 0x50026
load_number, load_flags = op(0x20, 0), op(0x20, 16)
code = [load_number, op(0x15, 435, 0, 1), op(0x06, ENOSYS)]
for number in (165, 166, 272, 308, 428, 429, 430, 442):
    code += [op(0x15, number, 0, 1), op(0x06, EPERM)]
code += [op(0x15, 56, 0, 3), load_flags, op(0x45, 0x7E020000, 0, 1), op(0x06, EPERM), op(0x06, ALLOW)]
text = b"".join(code)
buffer = ctypes.create_string_buffer(text, len(text))
program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn containers_that_refuse_namespaces_by_a_filter_run_copies() {
    let world = World::new();
    world.write("gone.txt", "gone\n");
    let call = |args: &[&str]| {
        let mut command = world.command("/usr/bin/python3");
        Answer::of(command.args(["-c", LIKE_A_CONTAINER, FRACTAL]).args(args))
    };
    let doctor = call(&["doctor"]);
    assert!(doctor.out.contains("with isolation `copied`"), "{}{}", doctor.out, doctor.err);
    let script = "rm gone.txt; echo x > x; chmod 700 x; (setsid sleep 60 &)";
    let answer = call(&["run", "--name", "one", "--", "sh", "-c", script]);
    assert_eq!(answer.status, 0, "{}", answer.err);
    let changes = call(&["diff", "one", "--name-status"]).out;
    assert_eq!(changes.lines().map(|line| &line[..1]).collect::<String>(), "DA", "{changes}");
    let missing = call(&["run", "--isolation", "rootless", "--", "true"]);
    assert_ne!(missing.status, 0);
}

#[test]
fn attempts_are_tried_checked_and_ranked_in_copies() {
    let Some(bare) = Bare::new() else { return };
    let each = ["--each", "good=echo right > kept.txt", "--each", "bad=echo x > kept.txt"];
    let check = ["--check", "test=rm gone.txt && grep right kept.txt"];
    let answer = bare.ok(&[&["try", "--json"], &each[..], &check[..]].concat());
    let reply: serde_json::Value = serde_json::from_str(&answer.out).expect("it is JSON");
    assert_eq!(reply["winner"], "good", "{reply}");
    assert_eq!(reply["attempts"][0]["files_changed"], 1, "{reply}");
    assert_eq!(reply["base"]["checks"][0]["result"], "fail", "{reply}");
}
