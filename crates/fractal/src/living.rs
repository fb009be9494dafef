//! Sandboxes in which something runs: copying what is being written, and
//! ending what writes it.
//!
//! All runs of a sandbox write one layer. To copy it they are frozen, all of
//! them, in the order of their ids, through the monitors that supervise them;
//! a lock on the layer keeps new runs from beginning meanwhile. Both end with
//! this process, however it ends, so nobody stays frozen.

use crate::verbs::run::claim::label;
use crate::{Engine, scripts};
use fractal_jail::layer::{Bounds, Layer, LayerError, duplicate};
use fractal_jail::{Frozen, NotFrozen};
use fractal_model::{Code, Error, Id, Result};
use fractal_store::{LayerHold, Reads, RunRow, SandboxRow, new_id};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a run may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long ended runs may take to be written down: the process that waits
/// for one lists its changes first.
pub const SETTLE: Duration = Duration::from_secs(30);

const NAP: Duration = Duration::from_millis(3);

/// A process that stood still for so long is not about to go on. What it may
/// have started before has begun by then.
const STANDSTILL: Duration = Duration::from_secs(2);

/// Copies the top of a sandbox in which something runs to a new layer, on
/// disk when it returns. Gives the copy and what it stands on; `None` when
/// nothing runs any more, or the top is another one.
pub fn copy_top(engine: &Engine, row: &SandboxRow) -> Result<Option<(Id, Option<Id>)>> {
    let store = &engine.store;
    let Some(hold) = hold(engine, row, true)? else { return Ok(None) };
    let now = engine.find_again(row)?;
    if now.top != row.top {
        return Ok(None);
    }
    let Some(frozen) = freeze_all(engine, row)? else { return Ok(None) };
    let copy = new_id();
    store.new_layer_dir(copy)?;
    let copied = fill(engine, row, copy, &frozen);
    let thawed = thaw_all(frozen);
    drop(hold);
    let done = match (copied, thawed) {
        (Ok(()), true) => {
            let below = store.layer(row.top)?.and_then(|layer| layer.below);
            store.sync_layer(copy).map(|()| Some((copy, below))).map_err(Error::from)
        }
        // A run ended in the middle, or was not quite still: once more.
        (Ok(()) | Err(LayerError::Stopped), _) => Ok(None),
        (Err(error), _) => {
            Err(Error::from(error).hint("wait until nothing runs in it, and try again"))
        }
    };
    if !matches!(done, Ok(Some(_))) {
        let _ = store.discard_layer(copy);
    }
    done
}

fn fill(
    engine: &Engine,
    row: &SandboxRow,
    copy: Id,
    frozen: &[(Id, Frozen)],
) -> std::result::Result<(), LayerError> {
    let store = &engine.store;
    // So that flushing it waits for the disk.
    let marked = store.dirty_layer(copy, &label(copy));
    marked.map_err(|error| LayerError::Io {
        verb: "prepare",
        path: store.layer_dir(copy).display().to_string(),
        source: std::io::Error::other(error.to_string()),
    })?;
    let top = Layer::open(&store.layer_tree(row.top))?;
    let mut holds = || frozen.iter().all(|(_, run)| run.holds());
    duplicate(&top, &store.layer_tree(copy), &Bounds::default(), &mut holds).map(|_| ())
}

/// Alone, keeps new runs out, once those that are about to begin have begun,
/// and whoever writes from memory; otherwise keeps out who wants it alone.
pub fn hold(engine: &Engine, row: &SandboxRow, alone: bool) -> Result<Option<LayerHold>> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(hold) = engine.store.hold_layer(row.top, alone)? {
            return Ok(Some(hold));
        }
        std::thread::sleep(NAP);
    }
    Ok(None)
}

/// Freezes every run of a sandbox; `None` when there is none.
fn freeze_all(engine: &Engine, row: &SandboxRow) -> Result<Option<Vec<(Id, Frozen)>>> {
    let (layers_dir, layer) = (engine.store.layers_dir(), row.top.to_string());
    let mut frozen: Vec<(Id, Frozen)> = Vec::new();
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if !engine.is_running(row.id)? {
            return Ok(None);
        }
        // What runs in memory writes only while nobody holds the layer alone.
        let mut runs = engine.store.runs_of(row.id)?;
        runs.retain(|run| !is_in_memory(run));
        frozen.retain(|(id, run)| runs.iter().any(|other| other.id == *id) && run.holds());
        let missing = |id: Id| frozen.iter().all(|(other, _)| *other != id);
        let missing: Vec<Id> = runs.iter().map(|run| run.id).filter(|id| missing(*id)).collect();
        if missing.is_empty() {
            return Ok(Some(frozen));
        }
        for id in missing {
            match Frozen::freeze(&layers_dir, &layer, &label(id)) {
                Ok(run) => frozen.push((id, run)),
                // Its mounts are not built yet, or no longer needed.
                Err(NotFrozen::Absent) => {}
                Err(NotFrozen::Restless(_)) => {
                    return Err(busy(row, "a process in it cannot be stopped right now"));
                }
            }
        }
        std::thread::sleep(NAP);
    }
    Err(busy(row, "a run in it takes long to start or to end"))
}

/// The last one first; whether all stood still until now.
fn thaw_all(frozen: Vec<(Id, Frozen)>) -> bool {
    frozen.into_iter().rev().fold(true, |still, (_, run)| run.thaw().is_ok() && still)
}

/// Whether a run has no processes of its own: a script in memory, a session or
/// a mount, all of which live in the process that asked for them.
pub fn is_in_memory(run: &RunRow) -> bool {
    run.cgroup.is_none()
}

/// Somebody holds a sandbox in memory. The process is theirs, not ours to end.
pub fn open_in_memory(row: &SandboxRow, run: &RunRow) -> Error {
    let why = format!("process {} has it open in memory (a script, a session or a mount)", run.pid);
    let hint =
        format!("end it, for a mount with `umount`; or use a fork: `fractal fork {}`", row.name);
    busy(row, &why).hint(hint)
}

/// Ends everything that runs in a sandbox, and waits until whoever waited for
/// it has written down how it ended. A process that stands still writes
/// nothing down: then it is done here, as for one that was killed. It may be a
/// server with runs of others, so it is not ended itself.
pub fn end_all(engine: &Engine, row: &SandboxRow, patience: Duration) -> Result<()> {
    let (layers_dir, layer) = (engine.store.layers_dir(), row.top.to_string());
    let mut ended: Vec<Id> = Vec::new();
    let mut still: BTreeMap<Id, Instant> = BTreeMap::new();
    let start = Instant::now();
    while engine.is_running(row.id)? {
        let runs = engine.store.runs_of(row.id)?;
        if let Some(run) = runs.iter().find(|run| is_in_memory(run) && !scripts::end(run.id)) {
            return Err(open_in_memory(row, run));
        }
        let mut silent = Vec::new();
        for run in runs.into_iter().filter(|run| !is_in_memory(run)) {
            let end = || fractal_jail::end(&layers_dir, &layer, &label(run.id));
            if !ended.contains(&run.id) && end() {
                ended.push(run.id);
            }
            if !fractal_store::is_stopped(&run) {
                still.remove(&run.id);
            } else if still.entry(run.id).or_insert_with(Instant::now).elapsed() > STANDSTILL
                && !end()
            {
                silent.push(run);
            }
        }
        if !silent.is_empty() {
            engine.lose(silent)?;
            continue;
        }
        if start.elapsed() > patience {
            return Err(busy(row, "what runs in it was stopped but has not been recorded yet"));
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}

/// A run whose thread may break off: then its row would stand for as long as
/// this process lives, and its sandbox could not be used.
pub struct Underway<'e> {
    engine: &'e Engine,
    run: Id,
    layer: Id,
}

impl<'e> Underway<'e> {
    /// From the claim until it is dropped, when all is written down.
    pub fn new(engine: &'e Engine, run: Id, layer: Id) -> Underway<'e> {
        Underway { engine, run, layer }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let (layers_dir, layer) = (self.engine.store.layers_dir(), self.layer.to_string());
        let start = Instant::now();
        // Its processes go with what supervised them, and that takes a moment.
        while fractal_jail::end(&layers_dir, &layer, &label(self.run)) && start.elapsed() < PATIENCE
        {
            std::thread::sleep(NAP);
        }
        let runs = self.engine.store.runs().unwrap_or_default();
        let own = runs.into_iter().filter(|run| run.id == self.run).collect();
        // Should it fail, the row goes when this process does.
        let _ = self.engine.lose(own);
    }
}

/// Ends what has begun in a sandbox and is not among those that were ended
/// already; does not wait.
pub fn end_begun(engine: &Engine, row: &SandboxRow, ended: &mut BTreeSet<Id>) {
    let (layers_dir, layer) = (engine.store.layers_dir(), row.top.to_string());
    for run in engine.store.runs_of(row.id).unwrap_or_default() {
        if ended.contains(&run.id) {
            continue;
        }
        let has_ended = match is_in_memory(&run) {
            true => scripts::end(run.id),
            false => fractal_jail::end(&layers_dir, &layer, &label(run.id)),
        };
        if has_ended {
            ended.insert(run.id);
        }
    }
}

/// The sandbox cannot be had right now.
pub fn busy(row: &SandboxRow, why: &str) -> Error {
    Error::new(Code::Busy, format!("`{}` is busy: {why}", row.name)).hint("try again in a moment")
}
