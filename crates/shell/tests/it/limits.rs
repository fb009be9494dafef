//! Scripts that want everything get what they may have, in bounded time and
//! memory.

use crate::{run, shown, text};
use fractal_fs::{Limits, Vfs};
use fractal_shell::{Ended, Outcome, Settings, Shell};
use std::time::{Duration, Instant};

fn small() -> Shell {
    let settings = Settings {
        output_bytes_max: 100_000,
        time_max: Duration::from_millis(700),
        memory_bytes_max: 32 << 20,
        ..Settings::default()
    };
    Shell::new(Vfs::new(Limits { bytes_max: 64 << 20, entries_max: 100_000 }), settings)
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Runs something greedy: it ends, soon, in bounded memory, and the session
/// goes on.
fn greedy(script: &str) -> Outcome {
    let mut shell = small();
    let (before, start) = (resident_bytes(), Instant::now());
    let outcome = shell.run(script, b"");
    let grown = resident_bytes().saturating_sub(before);
    assert!(start.elapsed() < Duration::from_secs(60), "{script}: {:?}", start.elapsed());
    // Other tests run beside this one.
    assert!(grown < 1 << 30, "{script}: {} MiB", grown >> 20);
    assert!(outcome.stdout.len() <= 100_000 && outcome.stderr.len() <= 101_000, "{script}");
    assert_eq!(run(&mut shell, "echo alive"), "alive\n", "after {script}");
    outcome
}

#[test]
fn an_endless_loop_ends_at_the_time_limit() {
    for script in ["while :; do :; done", "until false; do x=1; done", "for ((;;)); do true; done"]
    {
        let outcome = greedy(script);
        assert_eq!(
            (outcome.ended.clone(), outcome.exit),
            (Ended::Timeout, 124),
            "{script} {}",
            shown(&outcome)
        );
    }
    assert_eq!(greedy("sleep 50").ended, Ended::Timeout);
    assert_eq!(greedy("while :; do sleep 0.01; done | cat").ended, Ended::Timeout);
    assert_eq!(greedy("(while :; do :; done) & wait").ended, Ended::Timeout);
}

#[test]
fn what_was_said_before_a_timeout_is_kept() {
    let outcome = greedy("echo early; echo problem >&2; while :; do :; done");
    assert_eq!(text(&outcome.stdout), "early\n");
    assert!(text(&outcome.stderr).starts_with("problem\n"));
}

#[test]
fn endless_output_is_cut_and_says_so() {
    for script in [
        "while :; do echo 0123456789; done",
        "seq 1 100000000",
        "cat /dev/zero /dev/zero | tr '\\0' x",
    ] {
        let outcome = greedy(script);
        assert!(
            outcome.truncated || outcome.ended != Ended::Exited,
            "{script}: {}",
            shown(&outcome)
        );
    }
    let outcome = greedy("while :; do echo err >&2; done");
    assert!(outcome.truncated || outcome.ended == Ended::Timeout, "{}", shown(&outcome));
}

#[test]
fn a_script_is_stopped_when_it_has_said_too_much() {
    let long = "x=$(printf '%05000d' 0); while :; do echo $x; done";
    for script in ["seq 1 100000", long, "seq 1 100000 >&2"] {
        let mut shell = small();
        let outcome = shell.run(&format!("echo early > /early; {script}; echo late > /late"), b"");
        assert!(outcome.truncated && outcome.exit == 125, "{script}: {}", shown(&outcome));
        let limit = Ended::Limit("more than 100000 bytes of output".into());
        assert_eq!(outcome.ended, limit, "{script}");
        assert!(shell.view().exists("/early") && !shell.view().exists("/late"), "{script}");
        assert_eq!(outcome.stdout.len().max(outcome.stderr.len()), 100_000, "{script}");
    }
    // What just fits is not too much.
    let mut shell = small();
    let outcome = shell.run("printf '%100000s' x; echo late > /late", b"");
    assert!(!outcome.truncated && outcome.exit == 0, "{}", shown(&outcome));
    assert!(shell.view().exists("/late"));
}

#[test]
fn programs_of_awk_and_jq_without_an_end_are_stopped() {
    for script in [
        "awk 'BEGIN{while(1) x=1}'",
        "awk 'BEGIN{while(1);}'",
        "awk 'BEGIN{for(;;);}'",
        "awk 'BEGIN{do{}while(1)}'",
        "jq -n 'def f: f; f'",
        "jq -n 'last(repeat(1))'",
        "jq -n '[limit(1; repeat(1) | empty)]'",
    ] {
        let outcome = greedy(script);
        assert!(
            outcome.ended == Ended::Timeout || outcome.exit != 0,
            "{script}: {}",
            shown(&outcome)
        );
    }
    assert_eq!(greedy("awk 'BEGIN{while(1) x=1}'").ended, Ended::Timeout);
}

#[test]
fn recursion_without_end_is_stopped() {
    for script in [
        "f() { f; }; f",
        "f() { f | f & }; f; wait",
        ":() { :|:& }; :",
        "f() { g; }; g() { f; }; f",
        "f() { echo $(f); }; f",
        "f() { eval f; }; f",
        "f() { (f); }; f",
        "echo 'bash s' > s; bash s",
        "echo '. ./s' > s; . ./s",
        "trap 'f' DEBUG; f() { f; }; f",
        "alias a='a a'; shopt -s expand_aliases\na",
        "x='$(eval \"$x\")'; eval \"echo $x\"",
    ] {
        let outcome = greedy(script);
        assert!(
            outcome.exit != 0 || outcome.ended == Ended::Exited,
            "{script}: {}",
            shown(&outcome)
        );
    }
}

#[test]
fn huge_expansions_take_no_memory() {
    for script in [
        "echo {1..1000000000}",
        "echo {a..z}{a..z}{a..z}{a..z}{a..z}{a..z}",
        "x=a; while :; do x=$x$x; done",
        "x=$(printf '%1000000000s' x); echo ${#x}",
        "a=(); while :; do a+=(x x x x x x x x); done",
        "declare -A m; i=0; while :; do m[$((i++))]=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
        "x=$(yes); echo ${#x}",
        "x=$(cat /dev/zero | base64); echo ${#x}",
        "printf '%s' {1..9999}{1..9999}",
        "echo $((1<<99999999999999))",
        "x=aaaaaaaaaaaaaaaa; for i in {1..40}; do x=${x//a/aa}; done; echo ${#x}",
        "awk 'BEGIN{x=\"a\"; while(1) x=x x}'",
        "awk 'BEGIN{while(1) a[i++]=i}'",
        "sed ':a;s/^/xxxxxxxxxx/;ta' <<< y",
        "jq -n '[range(1e12)] | length'",
        "seq 1 1000000000000 | wc -l",
        "head -c 100000000000 /dev/zero | wc -c",
        "dd if=/dev/zero of=f bs=1M count=100000; ls -l f",
        "truncate -s 1000000000000 f; cat f | wc -c",
        "echo 'a+b+c+d' > p; grep -E '(a*)*(a*)*(a*)*b' <<< aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "[[ aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac =~ (a+)+b ]]",
        "shopt -s extglob\n[[ aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac == +(+(a))b ]]",
    ] {
        greedy(script);
    }
}

#[test]
fn a_session_that_filled_its_memory_goes_on_without_the_largest() {
    let mut shell = small();
    run(&mut shell, "small=1; f() { echo f; }; mkdir /d; cd /d");
    let outcome = shell.run("big=xxxxxxxxxxxxxxxx; while :; do big=$big$big; done", b"");
    assert!(matches!(outcome.ended, Ended::Limit(_)), "{}", shown(&outcome));
    assert!(text(&outcome.stderr).contains("forgot $big"), "{}", shown(&outcome));
    assert_eq!(run(&mut shell, "echo $small ${#big}; f; pwd"), "1 0\nf\n/d\n");
}

#[test]
fn files_are_limited_by_the_tree() {
    let mut shell = small();
    let outcome = shell.run("while echo 0123456789012345678901234567890123456789 >> f; do cat f f f f > g; cat g g g g > f; done", b"");
    assert!(
        text(&outcome.stderr).contains("No space left") || outcome.ended != Ended::Exited,
        "{}",
        shown(&outcome)
    );
    assert!(shell.view().usage().bytes <= 64 << 20);
    let mut shell = small();
    shell.run("i=0; while touch f$((i++)); do :; done", b"");
    assert!(shell.view().usage().entries <= 100_000);
}

#[test]
fn bombs_in_archives_are_defused() {
    let outcome = greedy(
        "head -c 60000000 /dev/zero > z; for i in 1 2 3; do gzip -c z > z.gz; gunzip -c z.gz | wc -c; done",
    );
    assert!(outcome.stdout.len() < 1000);
    greedy(
        "for i in 1 2 3 4 5 6 7 8; do cat /dev/zero; done | gzip -c > a.gz; gzip -c a.gz > b.gz; zcat b.gz | zcat | wc -c",
    );
}

#[test]
fn deep_trees_are_walked() {
    let view = Vfs::default();
    let mut path = String::new();
    for _ in 0..900 {
        path.push_str("/d");
    }
    view.make_dir_all(&path).unwrap();
    view.write(format!("{path}/f"), "x").unwrap();
    let mut shell = Shell::new(view, Settings::default());
    assert_eq!(
        run(&mut shell, "find / -name f | wc -l; ls -R / | wc -l; du -s / | wc -l")
            .split('\n')
            .count(),
        4
    );
    run(
        &mut shell,
        "cp -a /d /copy; find /copy -type f | wc -l; diff -r /d /copy; tar cf t /d; chmod -R 700 /copy; rm -r /copy",
    );
}

#[test]
fn real_work_is_not_stopped_by_counting() {
    let settings = Settings { time_max: Duration::from_secs(300), ..Settings::default() };
    let mut shell = Shell::new(Vfs::default(), settings);
    let script = "s=0; for ((i=0;i<60000;i++)); do ((s+=i)); done; echo $s; \
                  for i in $(seq 3000); do echo line $i; done > f; wc -l < f; \
                  a=(); for i in $(seq 20000); do a+=($i); done; echo ${#a[@]}; seq 300000 | sort -rn | head -n 1";
    assert_eq!(run(&mut shell, script), "1799970000\n3000\n20000\n300000\n");
    for _ in 0..1500 {
        shell.run(":", b"");
    }
    assert_eq!(run(&mut shell, "echo still"), "still\n");
}
