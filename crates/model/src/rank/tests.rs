//! What must hold of every order.

use super::*;
use crate::{CheckReport, CheckResult, Outcome, Usage};
use proptest::prelude::*;

fn report(name: &str) -> AttemptReport {
    AttemptReport {
        name: name.to_owned(),
        sandbox: Some(format!("try-{name}")),
        outcome: Some(Outcome::Exited),
        exit: Some(0),
        checks: vec![said("test", CheckResult::Pass, true), said("lint", CheckResult::Pass, false)],
        score: None,
        usage: Usage::default(),
        files_changed: 1,
        lines_changed: 4,
        rank: None,
        why: String::new(),
        output: String::new(),
    }
}

fn said(name: &str, result: CheckResult, required: bool) -> CheckReport {
    let why = (result != CheckResult::Pass).then(|| "exit 1".to_owned());
    CheckReport {
        name: name.into(),
        result,
        required,
        exit: i32::from(result != CheckResult::Pass),
        why,
        output: String::new(),
        wall_ms: 1,
    }
}

fn order(reports: &[AttemptReport], changed: &[Changed], how: &Ranking) -> Order {
    let pair = |(report, changed)| Evidence { report, changed };
    rank(&reports.iter().zip(changed).map(pair).collect::<Vec<_>>(), how)
}

/// All of them made changes of their own.
fn own(reports: &[AttemptReport]) -> Vec<Changed> {
    let own = |r: &AttemptReport| Changed::from([("f".to_owned(), Some(r.name.clone()))]);
    reports.iter().map(own).collect()
}

fn by(by: RankBy) -> Ranking {
    Ranking { by, ..Ranking::default() }
}

const METHODS: [RankBy; 3] = [RankBy::Copeland, RankBy::Weighted, RankBy::Lexicographic];

#[test]
fn the_right_one_of_three_wins_and_says_why() {
    let (mut a, mut b, c) = (report("a"), report("b"), report("c"));
    a.checks[0] = said("test", CheckResult::Fail, true);
    b.exit = Some(101);
    let reports = [a, b, c];
    for method in METHODS {
        let order = order(&reports, &own(&reports), &by(method));
        assert_eq!((order.ranks, order.winner), (vec![None, None, Some(1)], Some(2)));
        assert_eq!(order.whys[0], "ruled out: check `test` failed (exit 1)");
        assert_eq!(order.whys[1], "ruled out: exit 101");
        assert_eq!(order.whys[2], "passes all 2 checks; the only one not ruled out");
    }
}

#[test]
fn what_differs_is_said_with_numbers() {
    let (mut a, b) = (report("a"), report("b"));
    a.lines_changed = 31;
    let reports = [a, b];
    let order = order(&reports, &own(&reports), &Ranking::default());
    assert_eq!(order.ranks, [Some(2), Some(1)]);
    assert_eq!(order.whys[1], "passes all 2 checks; against a: fewer lines changed (4 against 31)");
    assert_eq!(order.whys[0], "passes all 2 checks; behind b: more lines changed (31 against 4)");
}

#[test]
fn a_check_outweighs_a_score_and_a_score_the_rest() {
    let check = |change: &dyn Fn(&mut AttemptReport, &mut AttemptReport), winner: usize| {
        let (mut a, mut b) = (report("a"), report("b"));
        change(&mut a, &mut b);
        let reports = [a, b];
        let order = order(&reports, &own(&reports), &Ranking::default());
        assert_eq!(order.winner, Some(winner), "{:?}", order.whys);
    };
    check(&|a, b| (a.score, b.score, a.lines_changed) = (Some(2.0), Some(1.0), 900), 0);
    check(
        &|a, b| {
            (a.score, b.score) = (Some(2.0), Some(1.0));
            a.checks[1] = said("lint", CheckResult::Fail, false);
        },
        1,
    );
    // A missing score is the worst one; doing nothing is no virtue.
    check(&|_, b| b.score = Some(-5.0), 1);
    check(&|a, _| (a.files_changed, a.lines_changed) = (0, 0), 1);
}

#[test]
fn small_differences_of_time_and_memory_are_noise() {
    let (mut a, mut b) = (report("a"), report("b"));
    (a.usage.wall_ms, b.usage.wall_ms) = (10, 55);
    (a.usage.memory_peak_bytes, b.usage.memory_peak_bytes) = (1 << 30, (1 << 30) + (50 << 20));
    let reports = [a, b];
    for method in METHODS {
        let order = order(&reports, &own(&reports), &by(method));
        assert_eq!((order.ranks, order.winner), (vec![Some(1), Some(1)], Some(0)));
        assert_eq!(order.notes, ["tie: a and b; a was declared first"]);
        assert_eq!(order.whys[1], "passes all 2 checks; tie with a");
    }
}

#[test]
fn equal_changes_are_said_to_be_equal() {
    let reports = [report("a"), report("b")];
    let changed = Changed::from([("f".to_owned(), None)]);
    let order = order(&reports, &[changed.clone(), changed], &Ranking::default());
    assert_eq!(order.notes, ["a and b made the same changes; a was declared first"]);
}

#[test]
fn what_most_attempts_found_leads() {
    let reports = [report("a"), report("b"), report("c")];
    let (one, two) = (own(&reports)[0].clone(), own(&reports)[1].clone());
    let order = order(&reports, &[one, two.clone(), two], &Ranking::default());
    assert_eq!(order.ranks, [Some(3), Some(1), Some(1)]);
}

#[test]
fn lexicographic_goes_by_the_order_of_criteria() {
    let (mut a, mut b) = (report("a"), report("b"));
    (a.files_changed, a.lines_changed) = (1, 50);
    (b.files_changed, b.lines_changed) = (2, 5);
    let reports = [a, b];
    let how = |criteria: &[Criterion]| Ranking {
        criteria: criteria.to_vec(),
        ..by(RankBy::Lexicographic)
    };
    let winner = |how: &Ranking| order(&reports, &own(&reports), how).winner;
    assert_eq!(winner(&how(&[Criterion::Files, Criterion::Lines])), Some(0));
    assert_eq!(winner(&how(&[Criterion::Lines, Criterion::Files])), Some(1));
}

#[test]
fn weights_decide() {
    let (mut a, mut b) = (report("a"), report("b"));
    (a.score, a.lines_changed) = (Some(1.0), 5);
    (b.score, b.lines_changed) = (Some(2.0), 50);
    let reports = [a, b];
    for method in [RankBy::Copeland, RankBy::Weighted] {
        let mut how = by(method);
        assert_eq!(order(&reports, &own(&reports), &how).winner, Some(1));
        how.weights = BTreeMap::from([(Criterion::Lines, 100)]);
        assert_eq!(order(&reports, &own(&reports), &how).winner, Some(0));
    }
}

#[test]
fn a_command_must_name_every_attempt_once() {
    let mut reports = [report("a"), report("b"), report("c")];
    reports[2].exit = Some(1);
    let changed = own(&reports);
    let evidence: Vec<Evidence<'_>> = reports
        .iter()
        .zip(&changed)
        .map(|(report, changed)| Evidence { report, changed })
        .collect();
    let said = |text: &str| rank_as_said(&evidence, &Ranking::default(), text);
    let order = said("b\n\n a \n").expect("it is fine");
    assert_eq!((order.ranks, order.winner), (vec![Some(2), Some(1), None], Some(1)));
    assert_eq!(order.whys[1], "passes all 2 checks; placed by the rank command");
    let check = |text: &str, words: &str| {
        let error = said(text).expect_err(text);
        assert!(error.message.contains(words), "{error}");
        assert!(error.hint.is_some_and(|hint| hint.ends_with(": a b")));
    };
    check("a\nb\nd\n", "printed `d`");
    check("a\nb\nc\n", "printed `c`");
    check("a\na\nb\n", "`a` twice");
    check("a\n", "left out `b`");
    check("", "left out `a`");
}

#[test]
fn a_check_that_nobody_passes_is_suspect() {
    let mut reports = vec![report("a"), report("b"), report("c")];
    reports[2].checks.clear();
    for one in &mut reports[..2] {
        one.checks[0] = said("test", CheckResult::Fail, true);
    }
    let check = |reports: &[AttemptReport], base: &[CheckReport], expect: &[&str]| {
        assert_eq!(suspects(reports, base), expect);
    };
    let none = "none of 2 attempts passes check `test`";
    check(&reports, &[], &[&format!("{none}: suspect the check")]);
    let before = said("test", CheckResult::Error, true);
    let both = format!("{none}, nor does the untouched base: suspect the check");
    check(&reports, &[before], &[&both]);
    let before = said("test", CheckResult::Pass, true);
    check(&reports, &[before], &[&format!("{none}; it passes on the untouched base")]);
    check(&reports[..1], &[], &[]);
}

prop_compose! {
    fn any_report()(
        passes in 0u8..4, lint in any::<bool>(), score in proptest::option::of(-3i8..3),
        lines in 0u64..4, files in 0u64..3, time in 0u64..400, memory in 0u64..3, content in 0u8..3,
    ) -> (AttemptReport, Changed) {
        let mut report = report("x");
        if passes == 0 {
            report.checks[0] = said("test", CheckResult::Fail, true);
        }
        if !lint {
            report.checks[1] = said("lint", CheckResult::Fail, false);
        }
        report.score = score.map(f64::from);
        (report.lines_changed, report.files_changed) = (lines, files);
        (report.usage.wall_ms, report.usage.memory_peak_bytes) = (time, memory << 24);
        (report, Changed::from([("f".to_owned(), Some(content.to_string()))]))
    }
}

fn any_field() -> impl Strategy<Value = Vec<(AttemptReport, Changed)>> {
    proptest::collection::vec(any_report(), 1..7).prop_map(|mut list| {
        list.iter_mut().enumerate().for_each(|(at, one)| one.0.name = format!("a{at}"));
        list
    })
}

fn of(list: &[(AttemptReport, Changed)], how: &Ranking) -> Order {
    let (reports, changed): (Vec<_>, Vec<_>) = list.iter().cloned().unzip();
    order(&reports, &changed, how)
}

proptest! {
    #[test]
    fn the_order_of_declaration_changes_no_rank(list in any_field(), turn in 0usize..7) {
        for method in METHODS {
            let (how, turn) = (by(method), turn % list.len());
            let mut ranks = of(&list, &how).ranks;
            let mut turned = list.clone();
            turned.rotate_left(turn);
            turned.reverse();
            ranks.rotate_left(turn);
            ranks.reverse();
            prop_assert_eq!(of(&turned, &how).ranks, ranks);
        }
    }

    #[test]
    fn who_beats_everybody_leads_alone(list in any_field()) {
        let how = Ranking::default();
        let evidence: Vec<Evidence<'_>> =
            list.iter().map(|(report, changed)| Evidence { report, changed }).collect();
        let field = compare::Field::new(&evidence, &how);
        let beats_all = |at: &&usize| field.passing.iter()
            .all(|other| other == *at || field.majority(**at, *other) == Ordering::Greater);
        if let Some(best) = field.passing.iter().find(beats_all) {
            let order = rank(&evidence, &how);
            prop_assert_eq!(order.winner, Some(*best));
            prop_assert_eq!(order.ranks.iter().filter(|rank| **rank == Some(1)).count(), 1);
        }
    }

    #[test]
    fn a_ruled_out_attempt_changes_nothing(list in any_field(), more in any_report()) {
        for method in METHODS {
            let how = by(method);
            let before = of(&list, &how);
            let mut longer = list.clone();
            let mut more = more.clone();
            more.0.exit = Some(1);
            longer.push(more);
            let after = of(&longer, &how);
            prop_assert_eq!(&after.ranks[..list.len()], &before.ranks[..]);
            prop_assert_eq!(after.winner, before.winner);
            prop_assert_eq!(after.ranks[list.len()], None);
        }
    }

    #[test]
    fn there_is_a_winner_exactly_when_somebody_passes(list in any_field()) {
        for method in METHODS {
            let order = of(&list, &by(method));
            let passes = order.ranks.iter().any(Option::is_some);
            prop_assert_eq!(order.winner.is_some(), passes);
            prop_assert_eq!(order.winner.and_then(|at| order.ranks[at]), passes.then_some(1));
            prop_assert!(order.whys.iter().all(|why| !why.is_empty()));
        }
    }
}
