//! `compare`: the table of `try` for sandboxes that exist, and what stands
//! between any two of them.

use super::attempt::measure::{either, find_joins, measure};
use super::attempt::plan::{Judged, Judging};
use super::attempt::{self, Done, work};
use super::promote::rehearse::passing;
use super::{diff, drop};
use crate::budget::Budget;
use crate::check::{Checking, run_checks};
use crate::patch::{PatchOptions, Stat, write_patch};
use crate::view::path_of;
use crate::{Caller, Engine, insert_layer, stale};
use fractal_model::{
    AttemptReport, Change, CheckReport, Error, Outcome, Result, SandboxPath, TryReply, Usage,
};
use fractal_store::{Reads, SandboxRow};
use std::collections::BTreeSet;
use std::io::Write;

pub fn compare(
    engine: &Engine,
    caller: &Caller,
    sandboxes: &[String],
    asked: Judged<'_>,
) -> Result<TryReply> {
    let rows = find_all(engine, caller, sandboxes)?;
    let judging = Judging::new(caller, asked)?;
    let mut done = Vec::new();
    for row in &rows {
        done.push(look(engine, caller, row, &judging)?);
    }
    let order = attempt::in_order(engine, caller, &judging.ranking, &done)?;
    let base = check_base(engine, caller, &rows[0], &judging);
    let base = base.map(|checks| work::BaseChecks { checks, not_run: None });
    let mut reply = attempt::answer(done, order, base);
    let named: Vec<_> = rows.iter().map(|row| (row.name.clone(), row.clone())).collect();
    find_joins(engine, &named, &mut reply.overlap)?;
    for report in &mut reply.attempts {
        let Some(row) = rows.iter().find(|row| row.name == report.name) else { continue };
        let last = last_run(engine, row)?;
        (report.outcome, report.exit) = (last.outcome, last.exit);
    }
    let behind = rows.iter().filter_map(|row| stale::look(engine, row));
    reply.base.behind = behind.map(|stale| stale.changed.len() as u64).max().unwrap_or(0);
    reply.base.kind = stale::base_kind(engine, &rows[0])?;
    if reply.base.checks.is_empty() {
        return Ok(reply);
    }
    let stands_apart =
        |row: &&SandboxRow| (row.base, &row.directory) != (rows[0].base, &rows[0].directory);
    if let Some(other) = rows.iter().find(stands_apart) {
        let (first, other) = (&rows[0].name, &other.name);
        reply.notes.push(format!("{other} has another base; (base) is that of {first}"));
    }
    Ok(reply)
}

/// What the checks say about what a sandbox stands on, without its changes.
fn check_base(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    judging: &Judging,
) -> Result<Vec<CheckReport>> {
    if judging.checks.is_empty() {
        return Ok(Vec::new());
    }
    let base = SandboxRow { base: row.base, mounts: row.mounts.clone(), ..passing(engine, row) };
    engine.store.new_layer_dir(base.top)?;
    let inserted = engine.store.transact_relaxed(|tx| {
        insert_layer(tx, base.top, base.base)?;
        tx.insert_sandbox(&base)
    });
    if let Err(error) = inserted {
        let _ = engine.store.discard_layer(base.top);
        return Err(error.into());
    }
    let caller = &caller.for_steps_in(&base);
    let said = run_checks(engine, caller, &base.name, &judging.checks, judging.repeat);
    drop::forget(engine, &base)?;
    said
}

fn find_all(engine: &Engine, caller: &Caller, names: &[String]) -> Result<Vec<SandboxRow>> {
    let rows: Vec<SandboxRow> =
        names.iter().map(|name| engine.find(caller, Some(name))).collect::<Result<_>>()?;
    let different: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
    if different.len() < 2 || different.len() < rows.len() {
        return Err(Error::invalid("comparing needs two or more different sandboxes")
            .hint("`fractal list` shows what there is; write `fractal compare A B`"));
    }
    Ok(rows)
}

/// The evidence of a sandbox as it is now.
fn look(engine: &Engine, caller: &Caller, row: &SandboxRow, judging: &Judging) -> Result<Done> {
    let measured = measure(engine, caller, row)?;
    let budget = Budget::default();
    let checking = Checking::new(engine, caller, &row.name, &budget)?.repeating(judging.repeat);
    let checks: Vec<CheckReport> =
        judging.checks.iter().map(|check| checking.report(check)).collect();
    let (score, note) = match checks.iter().any(CheckReport::rules_out) {
        true => (None, None),
        false => match work::score(&checking, judging) {
            Ok(score) => (score, None),
            Err(error) => (None, Some(format!("{}: {error}", row.name))),
        },
    };
    let last = last_run(engine, row)?;
    // Checks look at what is there now. Where there are none, how its latest
    // run ended is all there is to judge it by.
    let (outcome, exit) = match checks.is_empty() {
        true => (last.outcome, last.exit),
        false => (None, None),
    };
    let report = AttemptReport {
        name: row.name.clone(),
        sandbox: Some(row.name.clone()),
        outcome,
        exit,
        checks,
        score,
        usage: last.usage,
        files_changed: measured.files,
        lines_changed: measured.lines,
        rank: None,
        why: String::new(),
        output: String::new(),
    };
    Ok(Done { report, changed: measured.changed, notes: note.into_iter().collect(), error: None })
}

/// How the latest run in a sandbox ended and what it used.
#[derive(Default)]
struct LastRun {
    outcome: Option<Outcome>,
    exit: Option<i32>,
    usage: Usage,
}

/// Reads it from its record.
fn last_run(engine: &Engine, row: &SandboxRow) -> Result<LastRun> {
    const LOOK_BACK: u64 = 100;
    let records = engine.store.journal(Some(row.id), LOOK_BACK)?;
    let Some(run) = records.iter().find(|record| record.body.action == "run") else {
        return Ok(LastRun::default());
    };
    let detail = &run.body.detail;
    let number = |name: &str| detail[name].as_u64().unwrap_or(0);
    let usage = Usage {
        wall_ms: number("wall_ms"),
        cpu_ms: number("cpu_ms"),
        memory_peak_bytes: number("memory_peak_bytes"),
        ..Usage::default()
    };
    // Of a run whose process was killed there is neither.
    let outcome = serde_json::from_value(detail["outcome"].clone()).ok();
    let exit = detail["exit"].as_i64().and_then(|exit| i32::try_from(exit).ok());
    Ok(LastRun { outcome, exit, usage })
}

/// Writes what turns the first sandbox's files into the second's, for the
/// files that either of them changed (at or below these paths, if some are
/// given), as a patch with names from the first one's directory.
pub fn write_between(
    engine: &Engine,
    caller: &Caller,
    (one, two): (&str, &str),
    paths: &[String],
    out: &mut dyn Write,
) -> Result<Stat> {
    let (one, two) = (engine.find(caller, Some(one))?, engine.find(caller, Some(two))?);
    let changes = |row| diff::changes_while(engine, row, None, &caller.cancel);
    let ((views, mine), (others, theirs)) = (changes(&one)?, changes(&two)?);
    let mut wanted = Vec::new();
    for path in paths {
        wanted.push(path_of(&one.directory.join(path))?);
    }
    let is_wanted = |change: &Change| {
        wanted.is_empty() || wanted.iter().any(|path: &SandboxPath| change.path.is_within(path))
    };
    let changes: Vec<Change> = either(mine, theirs).into_iter().filter(is_wanted).collect();
    let root = path_of(&one.directory)?;
    let options = PatchOptions { binary_contents: false, ..PatchOptions::default() };
    Ok(write_patch(out, &changes, &views.top(), &others.top(), &root, &options)?)
}
