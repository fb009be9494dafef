//! Several ways at once: what is tried, checked, ranked and left.

use crate::world::{World, shell};
use fractal::model::{
    Attempt, AttemptReport, BaseKind, Check, CheckResult, Limits, Outcome, Policy, RankBy, Try,
    TryReply,
};
use fractal::{Action, Code, Error, Progress, Reply, Run};
use std::sync::Mutex;

const LOG: Action = Action::Log { sandbox: None, limit: None, here: false, whole: false };

fn attempts(list: &[(&str, &str)]) -> Vec<Attempt> {
    list.iter()
        .map(|(name, script)| Attempt { name: (*name).into(), command: shell(script) })
        .collect()
}

fn check(name: &str, command: &str) -> Check {
    Check { name: name.into(), command: command.into(), required: true, ..Check::default() }
}

fn ask(list: &[(&str, &str)], checks: &[Check]) -> Try {
    Try { attempts: attempts(list), checks: checks.to_vec(), ..Try::default() }
}

fn try_all(world: &World, asked: Try) -> Result<TryReply, Error> {
    match world.engine.apply(&world.caller, Action::Try(Box::new(asked)))? {
        Reply::Try(reply) => Ok(*reply),
        other => panic!("try answered {other:?}"),
    }
}

fn named<'r>(reply: &'r TryReply, name: &str) -> &'r AttemptReport {
    reply.attempts.iter().find(|attempt| attempt.name == name).unwrap()
}

#[test]
fn the_one_that_passes_wins_and_the_others_are_kept() {
    let world = World::new();
    std::fs::write(world.project().join("a"), "wrong\n").unwrap();
    let list = [
        ("right", "echo right > a"),
        ("wrong", "echo other > a; echo more > b"),
        ("broken", "echo half > a; echo why >&2; exit 101"),
    ];
    let reply = try_all(&world, ask(&list, &[check("test", "grep -x right a")])).unwrap();
    assert_eq!(reply.winner.as_deref(), Some("right"));
    let names: Vec<&str> = reply.attempts.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["right", "wrong", "broken"]);
    let right = named(&reply, "right");
    assert_eq!((right.rank, right.files_changed, right.lines_changed), (Some(1), 1, 2));
    assert_eq!(right.why, "passes `test`; the only one not ruled out");
    let wrong = named(&reply, "wrong");
    assert_eq!((wrong.rank, wrong.exit, wrong.files_changed), (None, Some(0), 2));
    assert_eq!(wrong.why, "ruled out: check `test` failed (exit 1)");
    let broken = named(&reply, "broken");
    assert_eq!((broken.exit, broken.outcome), (Some(101), Some(Outcome::Exited)));
    assert_eq!((broken.why.as_str(), broken.output.as_str()), ("ruled out: exit 101", "why\n"));
    assert!(broken.checks.is_empty());
    // It was broken before, reality still is, and all three are there to see.
    assert_eq!(reply.base.checks[0].result, CheckResult::Fail);
    assert_eq!(std::fs::read_to_string(world.project().join("a")).unwrap(), "wrong\n");
    assert_eq!(world.list().len(), 3);
    let sandbox = right.sandbox.clone().unwrap();
    assert_eq!(world.files(&sandbox)["a"], "right");
    let clash = &reply.overlap[0];
    assert!(clash.path.ends_with("/a") && !clash.same && clash.attempts.len() == 3, "{clash:?}");
    // The winner is the latest sandbox of the directory, and on record.
    let Ok(Reply::Log(log)) = world.apply(LOG) else { panic!() };
    let record = log.records.iter().find(|record| record.body.action == "try").unwrap();
    assert_eq!(record.body.detail["winner"], "right");
    assert_eq!(record.body.name.as_deref(), Some(sandbox.as_str()));
    assert_eq!(record.body.detail["checks"][0], "test");
}

#[test]
fn attempts_know_their_number_and_name_and_nothing_of_each_other() {
    let world = World::new();
    let script = "test ! -e me && echo $FRACTAL_ATTEMPT $FRACTAL_ATTEMPT_NAME > me";
    let list = [("a", script), ("b", script), ("c", script)];
    let both = "grep -qx \"$FRACTAL_ATTEMPT $FRACTAL_ATTEMPT_NAME\" me";
    let reply = try_all(&world, ask(&list, &[check("own", both)])).unwrap();
    assert!(reply.attempts.iter().all(|one| one.rank.is_some()), "{:?}", reply.attempts);
    let sandbox = named(&reply, "b").sandbox.clone().unwrap();
    assert_eq!(world.files(&sandbox)["me"], "2 b");
    assert!(sandbox.starts_with("try-") && sandbox.ends_with("-b"));
}

#[test]
fn a_missing_command_is_an_error_and_a_check_that_nobody_passes_is_suspect() {
    let world = World::new();
    let list = [("a", "echo 1 > a"), ("b", "echo 2 > a")];
    let reply = try_all(&world, ask(&list, &[check("test", "no-such-tool")])).unwrap();
    assert_eq!(reply.winner, None);
    assert!(reply.attempts.iter().all(|one| one.checks[0].result == CheckResult::Error));
    assert!(reply.attempts[0].why.contains("check `test` could not answer"));
    let note =
        "none of 2 attempts passes check `test`, nor does the untouched base: suspect the check";
    assert_eq!(reply.notes, [note]);
}

#[test]
fn scores_decide_and_bad_ones_are_said() {
    let world = World::new();
    let mut asked = ask(&[("a", "echo 3 > n"), ("b", "echo 40 > n"), ("c", "echo x > n")], &[]);
    asked.score = Some("echo counting; cat n".into());
    let reply = try_all(&world, asked).unwrap();
    assert_eq!(reply.winner.as_deref(), Some("b"));
    assert_eq!((named(&reply, "b").score, named(&reply, "c").score), (Some(40.0), None));
    assert_eq!(named(&reply, "c").rank, Some(3));
    let note = "c: no score: the last line is `x`, not a number";
    assert!(reply.notes.iter().any(|one| one == note), "{:?}", reply.notes);
}

#[test]
fn a_command_can_rank() {
    let world = World::new();
    let list = [("a", "echo > a"), ("b", "echo > b"), ("c", "exit 1")];
    let mut asked = ask(&list, &[]);
    let ranks = "cat > evidence; grep -q '\"lines_changed\":1' evidence && printf 'b\\na\\n'";
    asked.rank = Some(RankBy::Command(ranks.into()));
    let reply = try_all(&world, asked.clone()).unwrap();
    assert_eq!(reply.winner.as_deref(), Some("b"));
    assert_eq!(named(&reply, "b").why, "exit 0; placed by the rank command");
    assert!(!world.project().join("evidence").exists());
    for (command, words) in [("echo zebra", "printed `zebra`"), ("exit 9", "returned 9")] {
        asked.rank = Some(RankBy::Command(command.into()));
        let error = try_all(&world, asked.clone()).unwrap_err();
        assert!(error.code == Code::Invalid && error.message.contains(words), "{error}");
        let hint = error.hint.unwrap();
        assert!(hint.contains("the attempts are kept: `fractal compare try-"), "{hint}");
    }
}

#[test]
fn the_first_that_passes_cancels_the_rest() {
    let world = World::new();
    let mark = format!("97{}", std::process::id());
    let slow = format!("echo > half; sleep {mark}");
    let list = [("slow", slow.as_str()), ("fast", "echo > a"), ("later", slow.as_str())];
    let mut asked = ask(&list, &[check("good", "test -e a")]);
    (asked.stop_first, asked.jobs) = (true, Some(2));
    let reply = try_all(&world, asked).unwrap();
    assert_eq!(reply.winner.as_deref(), Some("fast"));
    for name in ["slow", "later"] {
        let one = named(&reply, name);
        assert_eq!(one.why, "cancelled: another attempt passed first");
        assert_eq!((&one.sandbox, one.outcome, one.rank), (&None, None, None));
    }
    // The base is evidence all the same.
    assert_eq!(reply.base.checks[0].result, CheckResult::Fail);
    assert_eq!(world.list().len(), 1);
    assert!(!is_running(&mark));
}

#[test]
fn a_check_that_hangs_is_cancelled_too() {
    let world = World::new();
    let mark = format!("96{}", std::process::id());
    let list = [("slow", "echo > slow"), ("fast", "echo > a")];
    let hang = format!("test -e a || sleep {mark}");
    let mut asked = ask(&list, &[check("good", &hang)]);
    (asked.stop_first, asked.jobs) = (true, Some(2));
    let reply = try_all(&world, asked).unwrap();
    assert_eq!(reply.winner.as_deref(), Some("fast"));
    assert_eq!(named(&reply, "slow").sandbox, None);
    assert_eq!(reply.base.not_run.as_deref(), Some("another attempt passed first"));
    assert!(world.list().len() == 1 && !is_running(&mark));
}

#[test]
fn a_budget_holds_for_everything_together() {
    let world = World::new();
    let list = [("a", "sleep 60"), ("b", "sleep 60"), ("c", "echo > c")];
    let mut asked = ask(&list, &[check("good", "true")]);
    (asked.budget_ms, asked.jobs) = (Some(300), Some(2));
    let start = std::time::Instant::now();
    let reply = try_all(&world, asked).unwrap();
    assert!(start.elapsed().as_secs() < 30);
    assert_eq!(named(&reply, "a").outcome, Some(Outcome::Timeout));
    assert_eq!(named(&reply, "c").why, "not started: the budget was used up");
    assert!(reply.winner.is_none() && reply.notes.iter().any(|note| note.contains("budget")));
    assert!(reply.base.checks.is_empty());
    assert_eq!(reply.base.not_run.as_deref(), Some("the budget was used up"));
}

#[test]
fn whoever_interrupts_finds_what_was_done_and_the_story() {
    let world = World::new();
    let mark = format!("94{}", std::process::id());
    let (hang, slow) = (format!("test -e a && sleep {mark}"), format!("echo > half; sleep {mark}"));
    let list = [("checked", "echo > a"), ("slow", slow.as_str()), ("later", "true")];
    let asked = Try { jobs: Some(2), ..ask(&list, &[check("hangs", &hang)]) };
    // Two of them are in the middle of something when it happens.
    let stop = || count_running(&mark) == 2;
    let reply = world.engine.try_with(&world.caller, asked, &|_| (), &stop).unwrap();
    assert!(reply.interrupted && reply.winner.is_none() && !is_running(&mark));
    let (checked, slow) = (named(&reply, "checked"), named(&reply, "slow"));
    assert_eq!(checked.why, "ruled out: check `hangs` could not answer: stopped: interrupted");
    assert_eq!(slow.outcome, Some(Outcome::Signalled));
    assert_eq!(named(&reply, "later").why, "not started: interrupted");
    assert_eq!(reply.base.not_run.as_deref(), Some("interrupted"));
    // As far as they came, they are there.
    assert_eq!(world.list().len(), 2);
    assert!(world.files(slow.sandbox.as_deref().unwrap()).contains_key("half"));
    let Ok(Reply::Log(log)) = world.apply(LOG) else { panic!() };
    let record = log.records.iter().find(|record| record.body.action == "try").unwrap();
    assert_eq!(record.body.detail["interrupted"], true);
    assert_eq!(record.body.detail["attempts"].as_array().map(Vec::len), Some(3));
}

#[test]
fn bounds_hold_in_every_attempt() {
    let world = World::new();
    let mut asked = ask(&[("a", "sleep 60"), ("b", "echo > b")], &[]);
    asked.run.ask =
        Policy { limits: Limits { time_ms: Some(300), ..Limits::default() }, ..Policy::default() };
    let reply = try_all(&world, asked).unwrap();
    assert_eq!(named(&reply, "a").why, "ruled out: stopped at its time limit");
    assert_eq!(reply.winner.as_deref(), Some("b"));
}

#[test]
fn requests_that_make_no_sense_run_nothing() {
    let world = World::new();
    let refused = |asked: Try, code: Code, words: &str| {
        let error = try_all(&world, asked).unwrap_err();
        assert!(error.code == code && error.message.contains(words), "{error}");
        assert!(error.hint.is_some(), "{error}");
        assert!(world.list().is_empty());
    };
    refused(ask(&[], &[]), Code::Invalid, "nothing to try");
    refused(ask(&[("a", "true"), ("a", "true")], &[]), Code::Invalid, "two attempts `a`");
    let twice = [check("t", "true"), check("t", "true")];
    refused(ask(&[("a", "true")], &twice), Code::Invalid, "two checks `t`");
    let mut missing = ask(&[("a", "true"), ("b", "true")], &[]);
    missing.run.template = Some("nothing".into());
    refused(missing, Code::NotFound, "no template");
}

#[test]
fn one_that_cannot_start_does_not_sink_the_others() {
    let world = World::new();
    let mut asked = ask(&[("good", "echo > a")], &[]);
    asked.attempts.push(Attempt { name: "bad".into(), command: vec!["no-such\0program".into()] });
    let reply = try_all(&world, asked).unwrap();
    assert_eq!(reply.winner.as_deref(), Some("good"));
    assert_eq!(named(&reply, "bad").rank, None);
    assert!(!named(&reply, "bad").why.is_empty());
}

#[test]
fn what_happens_is_told_on_the_way() {
    let world = World::new();
    let told = Mutex::new(Vec::new());
    let watch = |progress: Progress<'_>| {
        let line = match progress {
            Progress::Running { name } => format!("run {name}"),
            Progress::Checking { name, check } => format!("check {name} {check}"),
            Progress::Finished(report) => format!("done {} {}", report.name, report.files_changed),
            Progress::Base => "base".to_owned(),
        };
        told.lock().unwrap().push(line);
    };
    let mut asked = ask(&[("a", "echo > x"), ("b", "exit 1")], &[check("t", "true")]);
    asked.jobs = Some(1);
    world.engine.try_with(&world.caller, asked, &watch, &|| false).unwrap();
    let expect = ["run a", "check a t", "done a 1", "run b", "done b 0", "base"];
    assert_eq!(*told.lock().unwrap(), expect);
}

#[test]
fn the_project_counts_and_nothing_else() {
    let world = World::new();
    let git = std::process::Command::new("git").arg("init").current_dir(world.project()).output();
    assert!(git.unwrap().status.success());
    std::fs::write(world.project().join(".gitignore"), "*.o\n").unwrap();
    let script = "echo 1 > .git/index; seq 99 > a.o; echo 1 > ../outside; mkdir d; printf '1\\n2\\n3\\n' > d/f";
    let reply = try_all(&world, ask(&[("a", script)], &[])).unwrap();
    assert_eq!((reply.attempts[0].files_changed, reply.attempts[0].lines_changed), (1, 3));
}

#[test]
fn edits_outside_meanwhile_are_counted() {
    let world = World::new();
    let file = world.project().join("edited");
    std::fs::write(&file, "1").unwrap();
    let watch = |progress: Progress<'_>| {
        if let Progress::Finished(_) = progress {
            std::fs::write(&file, "2").unwrap();
        }
    };
    let reply = world
        .engine
        .try_with(&world.caller, ask(&[("a", "echo > x")], &[]), &watch, &|| false)
        .unwrap();
    assert_eq!(reply.base.behind, 1);
}

#[test]
fn on_a_frozen_base_attempts_see_no_edits_outside() {
    let world = World::new();
    let file = world.project().join("edited");
    std::fs::write(&file, "old").unwrap();
    let watch = |progress: Progress<'_>| {
        if let Progress::Finished(report) = progress {
            std::fs::write(&file, &report.name).unwrap();
        }
    };
    let list = [("a", "cat edited > seen"), ("b", "cat edited > seen")];
    let mut asked = ask(&list, &[check("old", "grep old seen edited")]);
    (asked.base, asked.jobs) = (BaseKind::Frozen, Some(1));
    let reply = world.engine.try_with(&world.caller, asked, &watch, &|| false).unwrap();
    assert_eq!((reply.base.kind, reply.base.behind), (BaseKind::Frozen, 1));
    // The second one was forked after the edit.
    assert!(named(&reply, "a").rank.is_some() && named(&reply, "b").rank.is_some());
    assert_eq!(world.list().len(), 2);
}

#[test]
fn a_project_declares_its_attempts_and_checks() {
    let mut world = World::new();
    let text = "[[attempt]]\nname = \"one\"\ncommand = \"echo 1 > n\"\n\
                [[attempt]]\nname = \"two\"\ncommand = \"echo 2 > n\"\n\
                [[check]]\nname = \"two\"\ncommand = \"grep 2 n\"\n[try]\njobs = 1\n";
    std::fs::write(world.project().join("fractal.toml"), text).unwrap();
    world.caller.config = fractal::Config::load(&world.project(), None).unwrap();
    let reply = try_all(&world, Try::default()).unwrap();
    assert_eq!(reply.winner.as_deref(), Some("two"));
}

fn compare(world: &World, names: &[&str], checks: &[Check]) -> Result<TryReply, Error> {
    let action = Action::Compare {
        sandboxes: names.iter().map(|name| (*name).to_owned()).collect(),
        checks: checks.to_vec(),
        score: None,
        rank: None,
        repeat: None,
    };
    match world.engine.apply(&world.caller, action)? {
        Reply::Try(reply) => Ok(*reply),
        other => panic!("compare answered {other:?}"),
    }
}

#[test]
fn sandboxes_that_exist_can_be_compared() {
    let world = World::new();
    std::fs::write(world.project().join("f"), "1\n").unwrap();
    let text: String = (0..20).map(|number| format!("line {number}\n")).collect();
    std::fs::write(world.project().join("text"), text).unwrap();
    let edit = "sed -i 's/line $N$/changed/' text; echo same > s";
    world.make("x", &format!("echo 2 > f; {}", edit.replace("$N", "3"))).unwrap();
    world.make("y", &format!("echo 3 > f; {}; seq 50 > long", edit.replace("$N", "17"))).unwrap();
    let reply = compare(&world, &["y", "x"], &[]).unwrap();
    assert_eq!(reply.winner.as_deref(), Some("x"));
    assert!(reply.base.checks.is_empty());
    assert!(reply.attempts[0].why.contains("fewer lines changed (5 against 55)"));
    let overlap: Vec<(&str, bool, bool)> = reply
        .overlap
        .iter()
        .map(|one| (one.path.rsplit('/').next().unwrap(), one.same, one.joins))
        .collect();
    assert_eq!(overlap, [("f", false, false), ("s", true, false), ("text", false, true)]);
    let reply = compare(&world, &["x", "y"], &[check("long", "test -e long")]).unwrap();
    assert_eq!(reply.winner.as_deref(), Some("y"));
    for bad in [&["x"][..], &["x", "x"]] {
        assert_eq!(compare(&world, bad, &[]).unwrap_err().code, Code::Invalid);
    }
    assert_eq!(compare(&world, &["x", "z"], &[]).unwrap_err().code, Code::NotFound);
}

#[test]
fn sandboxes_are_compared_by_how_their_latest_run_ended() {
    let world = World::new();
    world.make("x", "echo 2 > f").unwrap();
    world.make("y", "echo 3 > f; seq 9 >> f; exit 7").unwrap();
    let reply = compare(&world, &["y", "x"], &[]).unwrap();
    let (x, y) = (named(&reply, "x"), named(&reply, "y"));
    assert_eq!((x.outcome, x.exit), (Some(Outcome::Exited), Some(0)));
    assert_eq!((y.outcome, y.exit), (Some(Outcome::Exited), Some(7)));
    // What failed is ruled out, unless checks say that what is there is good.
    assert_eq!((reply.winner.as_deref(), y.why.as_str()), (Some("x"), "ruled out: exit 7"));
    let reply = compare(&world, &["x", "y"], &[check("nine", "grep -x 9 f")]).unwrap();
    assert_eq!(reply.winner.as_deref(), Some("y"));
    // A fork has not run anything yet.
    world.fork("x", "child", &Policy::default()).unwrap();
    let reply = compare(&world, &["x", "child"], &[]).unwrap();
    assert_eq!(named(&reply, "child").outcome, None);
}

#[test]
fn compared_sandboxes_are_checked_beside_their_untouched_base() {
    let world = World::new();
    let file = world.project().join("f");
    std::fs::write(&file, "old\n").unwrap();
    let made = world.make("x", "echo new > f").unwrap();
    world.make("y", "echo other > f").unwrap();
    let checks = [check("old", "grep -x old f"), check("new", "grep -x new f")];
    let results = |reply: &TryReply| -> Vec<CheckResult> {
        reply.base.checks.iter().map(|check| check.result).collect()
    };
    let reply = compare(&world, &["x", "y"], &checks).unwrap();
    assert_eq!(results(&reply), [CheckResult::Pass, CheckResult::Fail]);
    // Copies are frozen, each by itself.
    let is_copy = made.isolation.tier == fractal::model::Tier::Copied;
    let has_others = reply.notes.iter().any(|note| note.contains("another base"));
    assert_eq!((reply.base.kind == BaseKind::Frozen, has_others), (is_copy, is_copy));
    // A frozen base is checked as it was, not as the host is.
    let run = Run {
        command: shell("echo new > f"),
        name: Some("cold".into()),
        base: BaseKind::Frozen,
        ..Run::default()
    };
    world.run(run).unwrap();
    std::fs::write(&file, "edited\n").unwrap();
    let reply = compare(&world, &["cold", "x"], &checks).unwrap();
    assert_eq!(results(&reply), [CheckResult::Pass, CheckResult::Fail]);
    assert_eq!(reply.base.kind, BaseKind::Frozen);
    assert!(
        reply.notes.iter().any(|note| note == "x has another base; (base) is that of cold"),
        "{:?}",
        reply.notes
    );
    // Nothing of it is left.
    assert_eq!(world.list().len(), 3);
}

#[test]
fn what_stands_between_two_sandboxes_is_a_patch() {
    let world = World::new();
    std::fs::write(world.project().join("f"), "1\n").unwrap();
    world.make("x", "echo 2 > f; echo same > s").unwrap();
    world.make("y", "echo 3 > f; echo same > s; echo own > o").unwrap();
    let patch = |paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let mut out = Vec::new();
        let pair = ("x", "y");
        let stat = world.engine.write_between(&world.caller, pair, &paths, &mut out).unwrap();
        (String::from_utf8(out).unwrap(), stat.files.len())
    };
    let (text, files) = patch(&[]);
    assert!(text.contains("-2\n+3\n") && text.contains("+own\n") && !text.contains("same"));
    assert_eq!((files, patch(&["o"]).1, patch(&["s"]).1), (2, 1, 0));
}

#[test]
fn a_throw_away_run_in_a_sandbox_leaves_it_alone() {
    let world = World::new();
    world.make("x", "echo 1 > a").unwrap();
    let command = shell("cat a; rm a; echo 2 > b");
    let run = Run { command, sandbox: Some("x".into()), discard: true, ..Run::default() };
    let reply = world.run(run).unwrap();
    assert_eq!((reply.stdout.as_str(), reply.kept, reply.changes.len()), ("1\n", false, 2));
    assert_eq!(world.changed("x").unwrap(), [('A', "a".to_owned())]);
    assert_eq!(world.list().len(), 1);
}

fn is_running(mark: &str) -> bool {
    count_running(mark) > 0
}

fn count_running(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(format!("sleep\0{mark}").as_bytes())).count()
}
