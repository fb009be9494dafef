use super::*;
use fractal::model::{BaseReport, Outcome, Overlap, Usage};

fn check(name: &str, result: CheckResult, required: bool) -> CheckReport {
    CheckReport {
        name: name.into(),
        result,
        required,
        exit: 0,
        why: None,
        output: String::new(),
        wall_ms: 1,
    }
}

fn attempt(name: &str, rank: Option<u32>, why: &str) -> AttemptReport {
    AttemptReport {
        name: name.into(),
        sandbox: Some(format!("try-7k2q-{name}")),
        outcome: Some(Outcome::Exited),
        exit: Some(0),
        checks: vec![
            check("build", CheckResult::Pass, true),
            check("lint", CheckResult::Error, false),
        ],
        score: None,
        usage: Usage { wall_ms: 4_230, memory_peak_bytes: 5 << 20, ..Usage::default() },
        files_changed: 1,
        lines_changed: 31,
        rank,
        why: why.into(),
        output: String::new(),
    }
}

fn reply(attempts: Vec<AttemptReport>, winner: Option<&str>) -> TryReply {
    TryReply {
        attempts,
        winner: winner.map(str::to_owned),
        base: BaseReport::default(),
        interrupted: false,
        notes: Vec::new(),
        overlap: Vec::new(),
        recorded: Vec::new(),
    }
}

#[test]
fn a_table_says_all_of_it() {
    let (mut bad, mut never) = (attempt("b", None, "ruled out: exit 101"), attempt("c", None, ""));
    (bad.exit, bad.checks, bad.output) = (Some(101), Vec::new(), "1\n2\n\n3\n4\x1b[31m\n".into());
    (never.sandbox, never.exit, never.checks) = (None, None, Vec::new());
    never.why = "cancelled: another attempt passed first".into();
    let mut reply =
        reply(vec![attempt("a", Some(1), "passes 1 of 2 checks"), bad, never], Some("a"));
    reply.base.checks = vec![check("build", CheckResult::Fail, true)];
    let expect = "\
#  attempt  checks     lines  files   time   memory
1  a        ✓ !           31      1  4.2 s  5.0 MiB
–  b        exit 101      31      1  4.2 s  5.0 MiB
–  c        cancelled
   (base)   ✗
checks: build (lint) · ✓ pass ✗ fail ! error ~ flaky · () not required
b: ruled out: exit 101
  | 2
  | 3
  | 4\\u{1b}[31m
c: cancelled: another attempt passed first
winner: a — passes 1 of 2 checks
";
    assert_eq!(text(&reply), expect);
    assert_eq!(
        next(&reply).as_deref(),
        Some("next: fractal promote try-7k2q-a · fractal diff try-7k2q-a")
    );
}

#[test]
fn everything_fits_eighty_columns() {
    let long = "passes all 3 checks; against another-attempt: fewer lines changed (4 against 31), \
                fewer files changed (1 against 12), less memory (12 MiB against 480 MiB)";
    let mut one = attempt(&"n".repeat(50), Some(1), long);
    one.score = Some(-1_234.567_89);
    (one.usage.wall_ms, one.lines_changed) = (9_999_999, 1_234_567);
    one.checks = (0..6).map(|n| check(&format!("check-{n}"), CheckResult::Pass, true)).collect();
    for line in text(&reply(vec![one.clone(), one], None)).lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
}

#[test]
fn scores_and_times_are_short() {
    assert_eq!(
        ["0", "1.5", "-2", "0.333"].map(String::from),
        [0.0, 1.5, -2.0, 1.0 / 3.0].map(number)
    );
    assert_eq!(number(1e300), "1.000e300");
    assert_eq!(
        [12, 4_230, 185_000, 9_999_999].map(duration),
        ["12 ms", "4.2 s", "3 m 05 s", "2 h 46 m"]
    );
}

#[test]
fn clashes_are_told_from_agreement() {
    let mut reply = reply(vec![attempt("a", None, "")], None);
    let one = |path: &str, same, joins| Overlap {
        path: path.into(),
        attempts: vec!["a".into(), "b".into()],
        same,
        joins,
    };
    reply.overlap =
        vec![one("/p/f", false, false), one("/p/s", true, false), one("/p/t", false, true)];
    let text = overlap(&reply, |path| path.trim_start_matches("/p/").to_owned());
    assert_eq!(text, "clash  f  (a b)\nsame   s  (a b)\njoins  t  (a b)\n");
}
