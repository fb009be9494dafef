//! `drop`: forget sandboxes. Legal in every state, and twice; records stay.
//! What runs in one is ended, and who supervises it is not: it is waited for.

use crate::reach::Seen;
use crate::{Caller, Config, Engine, Line, living, record, stages};
use fractal_model::{Code, Error, Id, RecordBody, Reply, Result, Scope};
use fractal_store::{Reads, SandboxRow, Tx};
use std::time::Duration;

/// How long runs may take to end in order: longer than a door takes to close,
/// with what runs behind it.
const GRACE: Duration = Duration::from_secs(25);
/// How often what is below is looked for again while it keeps coming.
const TRIES: u32 = 10;

pub fn drop(engine: &Engine, caller: &Caller, selectors: &[String], force: bool) -> Result<Reply> {
    let mut rows = Vec::new();
    let mut dropped = Vec::new();
    // All names are checked before the first one goes.
    if selectors.is_empty() {
        rows.push(engine.find(caller, None)?);
    }
    for selector in selectors {
        match engine.find(caller, Some(selector)) {
            Ok(row) => rows.push(row),
            Err(error) if error.code != Code::NotFound => return Err(error),
            Err(error) => match remembered(engine, caller, selector)? {
                Some(_) => dropped.push(selector.clone()),
                None if force => {}
                None => return Err(error),
            },
        }
    }
    rows.iter().try_for_each(refuse_stage)?;
    rows.iter().try_for_each(|row| engine.refuse_own(caller, row, "drop"))?;
    for row in &rows {
        match caller.reach.scope {
            Scope::Sandbox(_) => drop_whole(engine, caller, row)?,
            _ => drop_row(engine, caller, row)?,
        }
        dropped.push(row.name.clone());
    }
    Ok(Reply::Done { dropped })
}

/// A stage goes when the project's file no longer has it. The file is read
/// anew: a caller may have gone on without one that is broken.
fn refuse_stage(row: &SandboxRow) -> Result<()> {
    if !stages::is_stage(row) {
        return Ok(());
    }
    let line = Config::load(&row.directory, None)?.line();
    let has_it =
        |line: Line| (0..line.stages.len()).any(|at| stages::row_name(&line, at) == row.name);
    if !line.is_some_and(has_it) {
        return Ok(());
    }
    Err(Error::denied(format!("`{}` is a stage of {}", row.name, row.directory.display()))
        .hint("take it out of the project's fractal.toml first"))
}

/// The id of a sandbox that was dropped, from its name or id.
pub fn remembered(engine: &Engine, caller: &Caller, text: &str) -> Result<Option<Id>> {
    const LOOK_BACK: u64 = 2_000;
    let records = engine.store.journal(None, LOOK_BACK)?;
    let seen = Seen::new(engine, caller)?;
    let matches = |body: &RecordBody| {
        let is_named = body.name.as_deref() == Some(text)
            || body.sandbox.is_some_and(|id| id.as_str() == text);
        is_named && seen.has(body)
    };
    Ok(records
        .into_iter()
        .find(|record| matches(&record.body))
        .and_then(|record| record.body.sandbox))
}

/// Stops what runs in it, removes its row, and the layers nobody else needs.
pub fn drop_row(engine: &Engine, caller: &Caller, row: &SandboxRow) -> Result<()> {
    remove(engine, row, Some(dropped(caller, row)), Below::Stays).map(|_| ())
}

/// The same with what was forked below it: who may work below one sandbox
/// alone must not leave anything there that has no way up to it any more.
fn drop_whole(engine: &Engine, caller: &Caller, row: &SandboxRow) -> Result<()> {
    for _ in 0..TRIES {
        engine.drop_below(caller, row.id)?;
        if remove(engine, row, Some(dropped(caller, row)), Below::MustBeGone)? {
            return Ok(());
        }
    }
    Err(living::busy(row, "it is being forked"))
}

fn dropped(caller: &Caller, row: &SandboxRow) -> RecordBody {
    RecordBody { after: None, ..record(caller, "drop", Some(row)) }
}

/// The same for a sandbox that a verb made for itself, without a record.
pub fn forget(engine: &Engine, row: &SandboxRow) -> Result<()> {
    remove(engine, row, None, Below::Stays).map(|_| ())
}

/// What holds for sandboxes that were forked from one that goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    Stays,
    MustBeGone,
}

/// False when there is something below that must not be.
fn remove(
    engine: &Engine,
    row: &SandboxRow,
    body: Option<RecordBody>,
    below: Below,
) -> Result<bool> {
    // Whoever waits for a run gets an answer. Who does not take it in time may
    // be a server with runs of others: that is nobody's to end.
    living::end_all(engine, row, GRACE)?;
    let stack = engine.store.stack(row.top)?;
    let snapshots = engine.store.snapshots(row.id)?;
    let mut candidates: Vec<Id> = Vec::new();
    for top in snapshots.iter().map(|snapshot| snapshot.layer) {
        candidates.extend(engine.store.stack(top)?.iter().map(|layer| layer.id));
    }
    candidates.extend(stack.iter().map(|layer| layer.id));
    // From the top down, so that each layer has lost what stood on it.
    candidates.sort_unstable_by(|a, b| b.cmp(a));
    candidates.dedup();
    let unused = engine.store.transact(|tx| {
        if below == Below::MustBeGone && !tx.children(row.id)?.is_empty() {
            return Ok(None);
        }
        tx.delete_sandbox(row.id)?;
        let unused = delete_unused(tx, candidates)?;
        body.map_or(Ok(()), |body| tx.append(body).map(|_| ()))?;
        Ok(Some(unused))
    })?;
    let Some(unused) = unused else { return Ok(false) };
    unused.into_iter().try_for_each(|id| engine.store.discard_layer(id))?;
    engine.store.discard_base(row.id)?;
    Ok(true)
}

/// Deletes those that nothing stands on. Ids grow with time, but two of one
/// millisecond may come in the wrong order: so once more while it helps.
fn delete_unused(tx: &Tx<'_>, mut candidates: Vec<Id>) -> fractal_store::Result<Vec<Id>> {
    let mut unused = Vec::new();
    loop {
        let mut left = Vec::new();
        let before = unused.len();
        for id in candidates {
            let list = if tx.delete_layer_if_unused(id)? { &mut unused } else { &mut left };
            list.push(id);
        }
        if unused.len() == before || left.is_empty() {
            return Ok(unused);
        }
        candidates = left;
    }
}
