//! `undo`: take a promotion back, with the same care.
//!
//! An undo is a write into reality like a promotion, with its own id, so it
//! can be taken back itself.

use crate::apply::holders::elsewhere;
use crate::apply::inverse::{Inverse, inverse};
use crate::apply::{Job, PART_OF, Step, carry_out, is_part};
use crate::verbs::promote::choose::paths;
use crate::{Caller, Engine, base, record};
use fractal_model::{
    Applied, ChangeKind, Code, Error, Id, PromoteReply, RecordBody, Result, SandboxPath, TypedPath,
    Verdict,
};
use fractal_store::{ApplyRow, ApplyState, Reads};
use serde_json::json;
use std::path::Path;

/// What is to be taken back.
#[derive(Clone, Copy, Default)]
pub struct Asked<'a> {
    /// Its id, or the beginning of it; otherwise the latest one here.
    pub promotion: Option<&'a str>,
    /// Only what lies at or below these paths; empty means all.
    pub only: &'a [TypedPath],
    pub dry_run: bool,
}

pub fn undo(engine: &Engine, caller: &Caller, asked: &Asked<'_>) -> Result<PromoteReply> {
    let rows = engine.applies_in_reach(caller)?;
    let row = find(engine, &rows, asked.promotion, &caller.directory)?;
    require_undoable(row)?;
    let only = paths(caller, asked.only, "--only")?;
    let inverse = inverse(engine, row, &only)?;
    if inverse.steps.is_empty() && inverse.conflicts.is_empty() {
        refuse_elsewhere(engine, row)?;
    }
    let record = body(caller, row, &inverse, &only);
    let mut reply = reply(&inverse);
    if !inverse.conflicts.is_empty() || asked.dry_run {
        return Ok(reply);
    }
    let (root, steps) = (row.root.clone(), inverse.steps);
    let job = Job { root, steps, view: None, record, facts: None };
    reply.undo = Some(carry_out(engine, job, Some(row.id))?.undo);
    // The sandbox it came from stands on what is there again. Where only a
    // part is, it goes on standing on the promotion: the rest is others' edit.
    if only.is_empty()
        && !is_part(&inverse.record)
        && let Some(sandbox) = row.sandbox.map_or(Ok(None), |id| engine.store.sandbox(id))?
    {
        let (promotion, stood) = origin(&rows, row);
        let _ = base::note_undone(engine, &sandbox, promotion, !stood);
    }
    reply.verdict = if reply.applied.is_empty() { Verdict::Nothing } else { Verdict::Applied };
    Ok(reply)
}

/// Where nothing is to be done because another directory stands at the path,
/// the promotion still stands in the one that it was written to.
fn refuse_elsewhere(engine: &Engine, row: &ApplyRow) -> Result<()> {
    let Some(dir) = elsewhere(&engine.store, row) else { return Ok(()) };
    let what = format!("{} is not the directory that {} was written to", dir.display(), row.id);
    Err(Error::not_found(what).hint("move that one back, and try again"))
}

/// The promotion that was named, or the latest one of a directory.
pub fn find<'r>(
    engine: &Engine,
    rows: &'r [ApplyRow],
    promotion: Option<&str>,
    directory: &Path,
) -> Result<&'r ApplyRow> {
    match promotion {
        Some(text) => named(rows, text),
        None => latest(rows, directory, &|row| touches(engine, row, directory)),
    }
}

/// By its id, or by the beginning of it if there is only one such.
fn named<'r>(rows: &'r [ApplyRow], text: &str) -> Result<&'r ApplyRow> {
    const CHARS_MIN: usize = 6;
    let upper = text.to_ascii_uppercase();
    let mut matching = rows.iter().filter(|row| row.id.as_str().starts_with(&upper));
    match (matching.next(), matching.next()) {
        (Some(row), None) if upper.len() >= CHARS_MIN => Ok(row),
        (Some(_), Some(_)) => {
            Err(Error::invalid(format!("several promotions begin with `{}`", text.escape_debug()))
                .hint("`fractal log --all` shows them; give the whole id"))
        }
        _ => Err(Error::not_found(format!("there is no promotion `{}`", text.escape_debug()))
            .hint("`fractal log --all` shows them with their ids")),
    }
}

/// The latest promotion that concerns a directory and still stands. An undo
/// is passed over; what took an undo back counts as a promotion again.
fn latest<'r>(
    rows: &'r [ApplyRow],
    directory: &Path,
    touches: &dyn Fn(&ApplyRow) -> bool,
) -> Result<&'r ApplyRow> {
    let stands = |row: &&ApplyRow| {
        row.state == ApplyState::Done && row.undone_by.is_none() && is_promotion(rows, row)
    };
    let mut here = rows.iter().filter(|row| directory.starts_with(&row.root)).filter(stands);
    here.find(|row| touches(row)).ok_or_else(|| {
        let directory = directory.display();
        Error::not_found(format!("there is no promotion to take back in {directory}"))
            .hint("`fractal log --all` shows all of them; `fractal undo ID` takes one back")
    })
}

/// A promotion of the project a directory lies in concerns it. One of the
/// whole machine does so if it wrote there.
fn touches(engine: &Engine, row: &ApplyRow, directory: &Path) -> bool {
    row.root != Path::new("/") || crate::apply::wrote_below(engine, row, directory)
}

fn is_promotion(rows: &[ApplyRow], row: &ApplyRow) -> bool {
    origin(rows, row).1
}

/// The promotion at the start of a chain of undos, and whether the row brings
/// it or takes it back.
fn origin(rows: &[ApplyRow], row: &ApplyRow) -> (Id, bool) {
    let (mut id, mut undone, mut promotes) = (row.id, row.undoes, true);
    // Rows come newest first and point to older ones, so this ends.
    while let Some(older) = undone {
        promotes = !promotes;
        id = older;
        undone = rows.iter().find(|row| row.id == older).and_then(|row| row.undoes);
    }
    (id, promotes)
}

fn require_undoable(row: &ApplyRow) -> Result<()> {
    let id = row.id;
    match (row.state, row.undone_by, row.kept) {
        (ApplyState::Done | ApplyState::Sweeping, None, true) => Ok(()),
        (ApplyState::Done | ApplyState::Sweeping, Some(by), _) => {
            Err(Error::not_found(format!("{id} was taken back already"))
                .hint(format!("`fractal undo {by}` brings it again")))
        }
        (ApplyState::Done | ApplyState::Sweeping, None, false) => {
            Err(Error::not_found(format!("what stood there before {id} is no longer kept"))
                .hint("`fractal gc --undo` removed it; `fractal log` shows later promotions"))
        }
        (ApplyState::Left, ..) => {
            Err(Error::not_found(format!("{id} was taken back when it could not be finished"))
                .hint("`fractal log` shows the promotions"))
        }
        _ => Err(Error::new(Code::Busy, format!("{id} is not finished yet"))
            .hint("try again; `fractal doctor` says if it is stuck")),
    }
}

fn body(caller: &Caller, row: &ApplyRow, inverse: &Inverse, only: &[SandboxPath]) -> RecordBody {
    let of = &inverse.record;
    let key = if only.is_empty() { "undoes" } else { PART_OF };
    RecordBody {
        sandbox: of.sandbox,
        name: of.name.clone(),
        tenant: Some(row.tenant.clone()).filter(|tenant| !tenant.is_empty()),
        detail: json!({ key: row.id }),
        ..record(caller, "undo", None)
    }
}

fn reply(inverse: &Inverse) -> PromoteReply {
    let conflicts = inverse.conflicts.clone();
    PromoteReply {
        sandbox: inverse.record.name.clone(),
        stage: "reality".to_owned(),
        verdict: if conflicts.is_empty() { Verdict::Planned } else { Verdict::Conflict },
        applied: if conflicts.is_empty() { applied(&inverse.steps) } else { Vec::new() },
        conflicts,
        undo: None,
        checks: Vec::new(),
        left_out: Vec::new(),
        autorun: Vec::new(),
        made: None,
        notes: Vec::new(),
        recorded: None,
    }
}

fn applied(steps: &[Step]) -> Vec<Applied> {
    let kind = |step: &Step| match (&step.old, &step.new) {
        (None, _) => ChangeKind::Added,
        (Some(_), None) => ChangeKind::Deleted,
        (Some(_), Some(_)) => ChangeKind::Modified,
    };
    let applied =
        |step: &Step| Applied { path: step.path.to_string(), kind: kind(step), merged: false };
    steps.iter().map(applied).collect()
}
