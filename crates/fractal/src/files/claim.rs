//! Writing a sandbox's top layer while nothing else does.
//!
//! A layer must not be written beside an overlay that is mounted on it. So who
//! writes from outside has a row like any run, in the same transaction in
//! which it is seen that there is no other; runs wait for it, or are told.

use super::Files;
use crate::doorway::Promised;
use crate::{Caller, Engine, base, living, record};
use fractal_jail::layer::{Bounds, Layer, Writer, disk_usage};
use fractal_model::{Code, Error, Id, Result, SandboxPath, Tier, Verb, format_bytes};
use fractal_store::{LayerHold, Reads, RunRow, SandboxRow, new_id, now_ms, process_start};
use serde_json::json;
use std::io::Read;
use std::time::{Duration, Instant};

/// How long to wait for others: a write of theirs takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

const NAP: Duration = Duration::from_millis(3);

/// Has `decide` look at the sandbox and say what is to change, and does that,
/// with nobody else writing in between.
pub fn writing<'c, T>(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    decide: impl FnOnce(&Files<'_>) -> Result<(Edit<'c>, T)>,
) -> Result<T> {
    let run = new_id();
    let (row, _hold) = claim(engine, row, run)?;
    let _settled = living::Underway::new(engine, run, row.top);
    let done = write(engine, caller, &row, run, decide);
    let mut body = record(caller, "copy", Some(&row));
    body.detail = json!({ "way": "in" });
    engine.store.transact(|tx| {
        tx.delete_run(run)?;
        if done.is_ok() {
            tx.touch_sandbox(row.id, now_ms())?;
            tx.append(body)?;
        }
        Ok(())
    })?;
    done
}

/// What is to change.
pub enum Edit<'c> {
    Put(NewFile<'c>),
    /// Of a directory, all that is below it too.
    Delete(SandboxPath),
}

/// A file as it is to be.
pub struct NewFile<'c> {
    pub path: SandboxPath,
    pub content: Box<dyn Read + 'c>,
    pub size_bytes: u64,
    pub executable: bool,
}

impl Edit<'_> {
    /// A file that holds these bytes.
    pub fn put(path: SandboxPath, content: Vec<u8>, executable: bool) -> Edit<'static> {
        let size_bytes = content.len() as u64;
        let content = Box::new(std::io::Cursor::new(content));
        Edit::Put(NewFile { path, content, size_bytes, executable })
    }
}

fn write<'c, T>(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    run: Id,
    decide: impl FnOnce(&Files<'_>) -> Result<(Edit<'c>, T)>,
) -> Result<T> {
    let files = Files::open(engine, caller, Verb::Copy, row)?;
    let (edit, said) = decide(&files)?;
    let _room = match &edit {
        Edit::Put(file) => {
            files.refuse_write(&file.path)?;
            refuse_full(engine, caller, row, file.size_bytes)?
        }
        Edit::Delete(path) => files.refuse_delete(path).map(|()| None)?,
    };
    let below = engine.store.layer(row.top)?.and_then(|top| top.below);
    let below = engine.views(row, below)?.common;
    engine.store.dirty_layer(row.top, &crate::verbs::run::claim::label(run))?;
    let tree = engine.store.layer_tree(row.top);
    let writer = Writer::open(&tree, &below, engine.tier()? >= Tier::Masked)?;
    match edit {
        Edit::Put(file) => put(&writer, &files, file)?,
        Edit::Delete(path) => writer.delete(&path)?,
    }
    let changes = engine.views(row, row.base)?.changes(&Bounds::default())?;
    // Without notes a promotion is more careful, no more.
    let _ = base::note(engine, row, run, &changes);
    Ok(said)
}

/// Mode, owner and what programs noted stay those of the file that was there;
/// a new one is its directory's.
fn put(writer: &Writer<'_>, files: &Files<'_>, mut file: NewFile<'_>) -> Result<()> {
    let path = &file.path;
    let there = files.view.lookup(path)?;
    let mode = there.as_ref().map_or(0o644, |entry| entry.mode);
    let mode = if file.executable { mode | 0o111 } else { mode };
    let owner = match &there {
        Some(entry) => (entry.uid, entry.gid),
        None => owner_above(files, path)?,
    };
    let mut missing = Vec::new();
    let mut above = path.parent();
    while let Some(directory) = above {
        if files.view.lookup(&directory)?.is_some() {
            break;
        }
        above = directory.parent();
        missing.push(directory);
    }
    for directory in missing.iter().rev() {
        writer.directory(directory, 0o755, owner)?;
    }
    let noted = files.view.attributes(path)?;
    writer.file(path, mode, owner, &noted, &mut *file.content)?;
    Ok(())
}

fn owner_above(files: &Files<'_>, path: &SandboxPath) -> Result<(u32, u32)> {
    let mut above = path.parent();
    while let Some(directory) = above {
        if let Some(entry) = files.view.lookup(&directory)? {
            return Ok((entry.uid, entry.gid));
        }
        above = directory.parent();
    }
    Ok((0, 0))
}

/// Programs are stopped at the disk limit; so is who writes in their place.
/// Behind a door the room is theirs until they have written.
fn refuse_full(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    more: u64,
) -> Result<Option<Promised>> {
    let room = engine.require_disk_below(caller, more)?;
    let policy = caller.policy.meet(&row.policy);
    let Some(most) = policy.limits.disk_bytes else { return Ok(room) };
    let top = Layer::open(&engine.store.layer_tree(row.top))?;
    let used = disk_usage(&top, &Bounds::default())?;
    if !used.truncated && used.bytes.saturating_add(more) <= most {
        return Ok(room);
    }
    let (used, most) = (format_bytes(used.bytes), format_bytes(most));
    let why = format!("`{}` holds {used} of {most}: there is no room for more", row.name);
    Err(Error::new(Code::Limit, why).hint("delete something in it with `run`"))
}

/// Says that we write, once nobody else does.
fn claim(engine: &Engine, row: &SandboxRow, run: Id) -> Result<(SandboxRow, LayerHold)> {
    let store = &engine.store;
    let start = Instant::now();
    engine.rest_servers(row.id);
    loop {
        let now = engine.find_again(row)?;
        // Whoever copies the layer holds it alone, and we must not write then.
        if let Some(hold) = store.hold_layer(now.top, false)? {
            let living = living_row(&now, run);
            let claimed = store.transact_relaxed(|tx| {
                let same = tx.sandbox(now.id)?.is_some_and(|row| row.top == now.top);
                let free = same && tx.runs_of(now.id)?.is_empty();
                if free {
                    tx.insert_run(&living)?;
                }
                Ok(free)
            })?;
            if claimed {
                return Ok((now, hold));
            }
        }
        if start.elapsed() > PATIENCE {
            let hint =
                format!("wait for it to end, write with `run`, or use a fork of `{}`", row.name);
            return Err(living::busy(row, "something runs in it").hint(hint));
        }
        std::thread::sleep(NAP);
        // Rows of processes that died are settled on the way.
        engine.is_running(row.id)?;
    }
}

/// A row without a group of processes: what writes is this thread.
fn living_row(row: &SandboxRow, run: Id) -> RunRow {
    let pid = std::process::id() as i32;
    let pid_start = process_start(pid).unwrap_or(0);
    let (sandbox, epoch) = (row.id, row.epoch);
    RunRow { id: run, sandbox, pid, pid_start, epoch, cgroup: None, started_ms: now_ms() }
}
