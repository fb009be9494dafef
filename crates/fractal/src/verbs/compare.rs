//! `compare`: the table of `try` for sandboxes that exist, and what stands
//! between any two of them.

use super::attempt::measure::{either, measure};
use super::attempt::plan::{Judged, Judging};
use super::attempt::{self, Done, work};
use super::diff;
use crate::budget::Budget;
use crate::check::Checking;
use crate::patch::{PatchOptions, Stat, write_patch};
use crate::view::path_of;
use crate::{Caller, Engine, stale};
use fractal_model::{
    AttemptReport, Change, CheckReport, Error, Result, SandboxPath, TryReply, Usage,
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
    let mut reply = attempt::answer(done, order, Ok(Vec::new()));
    let behind = rows.iter().filter_map(|row| stale::look(engine, row));
    reply.base.behind = behind.map(|stale| stale.changed.len() as u64).max().unwrap_or(0);
    Ok(reply)
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
    let report = AttemptReport {
        name: row.name.clone(),
        sandbox: Some(row.name.clone()),
        outcome: None,
        exit: None,
        checks,
        score,
        usage: last_usage(engine, row)?,
        files_changed: measured.files,
        lines_changed: measured.lines,
        rank: None,
        why: String::new(),
        output: String::new(),
    };
    Ok(Done { report, changed: measured.changed, notes: note.into_iter().collect(), error: None })
}

/// What the latest run in a sandbox used, from its record.
fn last_usage(engine: &Engine, row: &SandboxRow) -> Result<Usage> {
    const LOOK_BACK: u64 = 100;
    let records = engine.store.journal(Some(row.id), LOOK_BACK)?;
    let run = records.iter().find(|record| record.body.action == "run");
    let number = |name: &str| run.and_then(|run| run.body.detail[name].as_u64()).unwrap_or(0);
    Ok(Usage {
        wall_ms: number("wall_ms"),
        cpu_ms: number("cpu_ms"),
        memory_peak_bytes: number("memory_peak_bytes"),
        ..Usage::default()
    })
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
    let ((views, mine), (others, theirs)) =
        (diff::changes(engine, &one, None)?, diff::changes(engine, &two, None)?);
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
