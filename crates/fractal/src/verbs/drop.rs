//! `drop`: forget sandboxes. Legal in every state, and twice; records stay.

use crate::reach::Seen;
use crate::{Caller, Config, Engine, Line, living, record, stages};
use fractal_model::{Code, Error, Id, RecordBody, Reply, Result};
use fractal_store::{Reads, RunRow, SandboxRow, Tx, process_start};
use std::time::{Duration, Instant};

/// How long runs may take to end in order.
const GRACE: Duration = Duration::from_secs(5);

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
        drop_row(engine, caller, row)?;
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
    let mut body = record(caller, "drop", Some(row));
    body.after = None;
    remove(engine, row, Some(body))
}

/// The same for a sandbox that a verb made for itself, without a record.
pub fn forget(engine: &Engine, row: &SandboxRow) -> Result<()> {
    remove(engine, row, None)
}

fn remove(engine: &Engine, row: &SandboxRow, body: Option<RecordBody>) -> Result<()> {
    // Whoever waits for a run gets an answer; who does not take it is ended.
    if let Err(error) = living::end_all(engine, row, GRACE) {
        // What is in memory lives in somebody's process, which is theirs.
        if engine.store.runs_of(row.id)?.iter().any(living::is_in_memory) {
            return Err(error);
        }
        stop_runs(engine, row.id)?;
    }
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
        tx.delete_sandbox(row.id)?;
        let unused = delete_unused(tx, candidates)?;
        body.map_or(Ok(()), |body| tx.append(body).map(|_| ()))?;
        Ok(unused)
    })?;
    unused.into_iter().try_for_each(|id| engine.store.discard_layer(id))?;
    Ok(engine.store.discard_base(row.id)?)
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

/// Ends living runs by ending their supervisors, which take all processes
/// inside with them.
fn stop_runs(engine: &Engine, sandbox: Id) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let runs = engine.store.runs_of(sandbox)?;
    for run in &runs {
        stop(run);
    }
    let start = Instant::now();
    while runs.iter().any(is_alive) && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    engine.is_running(sandbox).map(|_| ())
}

fn is_alive(run: &RunRow) -> bool {
    process_start(run.pid) == Some(run.pid_start)
}

fn stop(run: &RunRow) {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    // A run of this very process ends when its caller is done with it; to
    // kill ourselves would help nobody.
    let ours = run.pid == std::process::id() as i32;
    let Some(pid) = Pid::from_raw(run.pid).filter(|_| !ours) else { return };
    // The descriptor pins the process: checked after, the pid cannot have
    // been reused in between.
    if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
        && is_alive(run)
    {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}
