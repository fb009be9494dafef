//! Why an attempt stands where it stands, as a sentence.

use super::Evidence;
use super::compare::{Field, passed};
use crate::{
    AttemptReport, CheckReport, CheckResult, Criterion, Outcome, format_bytes, format_duration_ms,
};
use std::cmp::Ordering;

/// Why an attempt plays no part, if it does not.
pub fn ruled_out(report: &AttemptReport) -> Option<String> {
    if report.sandbox.is_none() {
        return Some(report.why.clone());
    }
    let outcome = report.outcome.unwrap_or(Outcome::Exited);
    let stopped = |limit: &str| Some(format!("ruled out: stopped at its {limit} limit"));
    match (outcome, report.exit.unwrap_or(0)) {
        (Outcome::Exited, 0) => {}
        (Outcome::Exited, exit @ (126 | 127)) => {
            return Some(format!("ruled out: its command could not be executed (exit {exit})"));
        }
        (Outcome::Exited, exit) => return Some(format!("ruled out: exit {exit}")),
        (Outcome::Signalled, exit) => {
            return Some(format!("ruled out: ended by signal {}", exit - 128));
        }
        (Outcome::Timeout, _) => return stopped("time"),
        (Outcome::Memory, _) => return stopped("memory"),
        (Outcome::Disk, _) => return stopped("disk"),
        (Outcome::Output, _) => return stopped("output"),
    }
    let mut failed = report.checks.iter().filter(|check| check.rules_out());
    let first = about_check(failed.next()?);
    Some(match failed.count() {
        0 => format!("ruled out: {first}"),
        more => format!("ruled out: {first}, and {more} more"),
    })
}

fn about_check(check: &CheckReport) -> String {
    let what = match check.result {
        CheckResult::Pass => "passed",
        CheckResult::Fail => "failed",
        CheckResult::Error => "could not answer",
        CheckResult::Flaky => "is flaky",
    };
    let name = &check.name;
    match (&check.why, check.result) {
        (Some(why), CheckResult::Fail) => format!("check `{name}` {what} ({why})"),
        (Some(why), _) => format!("check `{name}` {what}: {why}"),
        (None, _) => format!("check `{name}` {what}"),
    }
}

/// The sentence for one attempt.
pub fn why(field: &Field<'_>, ranks: &[Option<u32>], at: usize) -> String {
    let Some(rank) = ranks[at] else {
        return field.out[at].clone().unwrap_or_default();
    };
    let checks = about_checks(field.evidence[at]);
    if field.passing.len() == 1 {
        return match field.evidence.len() {
            1 => checks,
            _ => format!("{checks}; the only one not ruled out"),
        };
    }
    let same = field.passing.iter().find(|other| **other != at && ranks[**other] == Some(rank));
    let next = field.passing.iter().filter(|other| ranks[**other] > Some(rank));
    let above = field.passing.iter().filter(|other| ranks[**other] < Some(rank));
    let rest = match (same, next.min_by_key(|o| ranks[**o]), above.max_by_key(|o| ranks[**o])) {
        (Some(other), ..) => format!("tie with {}", field.name(*other)),
        (None, Some(other), _) if rank == 1 => compared(field, at, *other, Ordering::Greater),
        (None, _, Some(other)) => compared(field, at, *other, Ordering::Less),
        (None, ..) => return checks,
    };
    format!("{checks}; {rest}")
}

/// The sentence where a command gave the order.
pub fn as_said(field: &Field<'_>, at: usize) -> String {
    format!("{}; placed by the rank command", about_checks(field.evidence[at]))
}

fn about_checks(one: Evidence<'_>) -> String {
    let (passes, all) = (passed(one), one.report.checks.len());
    match (passes, all) {
        (_, 0) if one.report.exit.is_none() => "no checks".to_owned(),
        (_, 0) => "exit 0".to_owned(),
        (1, 1) => format!("passes `{}`", one.report.checks[0].name),
        (passes, all) if passes == all => format!("passes all {all} checks"),
        (passes, all) => format!("passes {passes} of {all} checks"),
    }
}

/// What speaks for or against an attempt beside another one.
fn compared(field: &Field<'_>, at: usize, other: usize, side: Ordering) -> String {
    let found = field.how.criteria.iter().filter(|c| field.compare(at, other, **c) == side);
    let list: Vec<String> =
        found.map(|criterion| difference(field, at, other, *criterion, side)).collect();
    let name = field.name(other);
    match (list.as_slice(), side) {
        ([], Ordering::Greater) => format!("wins more pairs than {name}"),
        ([], _) => format!("wins fewer pairs than {name}"),
        (list, Ordering::Greater) => format!("against {name}: {}", list.join(", ")),
        (list, _) => format!("behind {name}: {}", list.join(", ")),
    }
}

fn difference(
    field: &Field<'_>,
    at: usize,
    other: usize,
    criterion: Criterion,
    side: Ordering,
) -> String {
    let more = side == Ordering::Greater;
    let word = match (criterion, more) {
        (Criterion::Checks, true) => "more checks passed",
        (Criterion::Checks, false) => "fewer checks passed",
        (Criterion::Score, true) => "better score",
        (Criterion::Score, false) => "lower score",
        (Criterion::Lines, true) => "fewer lines changed",
        (Criterion::Lines, false) => "more lines changed",
        (Criterion::Files, true) => "fewer files changed",
        (Criterion::Files, false) => "more files changed",
        (Criterion::Time, true) => "faster",
        (Criterion::Time, false) => "slower",
        (Criterion::Memory, true) => "less memory",
        (Criterion::Memory, false) => "more memory",
        (Criterion::Agreement, true) => "agrees more with the others",
        (Criterion::Agreement, false) => "agrees less with the others",
    };
    let value = |at: usize| shown(field, at, criterion);
    let idle = |at: usize| field.evidence[at].report.files_changed == 0;
    if matches!(criterion, Criterion::Lines | Criterion::Files) && (idle(at) || idle(other)) {
        let word = if idle(at) { "changed nothing" } else { "changed something" };
        return word.to_owned();
    }
    format!("{word} ({} against {})", value(at), value(other))
}

fn shown(field: &Field<'_>, at: usize, criterion: Criterion) -> String {
    let report = field.evidence[at].report;
    let or_none = |count: u64| match report.files_changed {
        0 => "nothing".to_owned(),
        _ => count.to_string(),
    };
    match criterion {
        Criterion::Checks => passed(field.evidence[at]).to_string(),
        Criterion::Score => report.score.map_or_else(|| "none".to_owned(), |s| s.to_string()),
        Criterion::Lines => or_none(report.lines_changed),
        Criterion::Files => or_none(report.files_changed),
        Criterion::Time => format_duration_ms(report.usage.wall_ms),
        Criterion::Memory => format_bytes(report.usage.memory_peak_bytes),
        Criterion::Agreement => {
            let share = field.value(at, criterion).unwrap_or(0.0);
            format!("{:.0} %", share * 100.0)
        }
    }
}

/// How a tie at the top was broken, if there is one.
pub fn tie(field: &Field<'_>, top: &[usize]) -> Option<String> {
    let [first, .., last] = top else { return None };
    let before: Vec<&str> = top[..top.len() - 1].iter().map(|at| field.name(*at)).collect();
    let names = format!("{} and {}", before.join(", "), field.name(*last));
    let changed = |at: usize| field.evidence[at].changed;
    let winner = field.name(*first);
    if top.iter().all(|at| changed(*at) == changed(*first)) {
        return Some(format!("{names} made the same changes; {winner} was declared first"));
    }
    Some(format!("tie: {names}; {winner} was declared first"))
}

/// Checks that no attempt passes, which says more about the check than about
/// the attempts; with what they say about the untouched base.
pub fn suspects(reports: &[AttemptReport], base: &[CheckReport]) -> Vec<String> {
    let checked: Vec<&AttemptReport> =
        reports.iter().filter(|report| !report.checks.is_empty()).collect();
    let Some(first) = checked.first().filter(|_| checked.len() > 1) else { return Vec::new() };
    let result = |report: &AttemptReport, name: &str| {
        report.checks.iter().find(|check| check.name == name).map(|check| check.result)
    };
    let mut notes = Vec::new();
    for check in &first.checks {
        let all: Vec<Option<CheckResult>> =
            checked.iter().map(|report| result(report, &check.name)).collect();
        if all.iter().any(|one| matches!(one, None | Some(CheckResult::Pass))) {
            continue;
        }
        let count = checked.len();
        let before = base.iter().find(|other| other.name == check.name).map(|other| other.result);
        let before = match before {
            Some(CheckResult::Pass) => "; it passes on the untouched base",
            Some(_) => ", nor does the untouched base: suspect the check",
            None => ": suspect the check",
        };
        let name = &check.name;
        notes.push(format!("none of {count} attempts passes check `{name}`{before}"));
    }
    notes
}
