//! Stages: sandboxes with a gate that only promote writes.
//!
//! Every stage of a project has a sandbox, made when something first comes to
//! it: its layers are what stands there, its records are its history. A stage
//! that is a directory or a branch has one too, which holds what was promoted
//! there, so that moving on from any stage is the same. The stage that is the
//! project itself has one for its records only.

pub mod digest;
pub mod history;

use crate::config::{Config, Line};
use crate::template::Template;
use crate::verbs::run::place::new_policy;
use crate::{Caller, Engine, insert_layer, record, stale};
use fractal_model::{Code, Error, Id, Result, Run, StageKind};
use fractal_store::{Reads, SandboxRow, new_id, now_ms};
use history::{History, Landing};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a stage has in place of a template; no template can have this name.
pub const TEMPLATE: &str = "stage";

/// Records of one stage that are looked at.
const LOOK_BACK: u64 = 100_000;

/// Whether a sandbox is a stage.
pub fn is_stage(row: &SandboxRow) -> bool {
    row.template == TEMPLATE
}

/// Refuses what would write to a stage past its gate.
pub fn refuse_write(row: &SandboxRow, verb: &str) -> Result<()> {
    if !is_stage(row) {
        return Ok(());
    }
    let message = format!("cannot {verb} `{}`: it is a stage, which only promote writes", row.name);
    Err(Error::denied(message)
        .hint(format!("work in `fractal fork {0} NAME`; look with `fractal diff {0}`", row.name)))
}

/// The stages that apply to a directory, whoever asks from wherever.
pub fn line_of(caller: &Caller, directory: &Path) -> Result<Option<Line>> {
    Ok(config_of(caller, directory)?.line())
}

/// The settings of a project.
pub fn config_of(caller: &Caller, directory: &Path) -> Result<Config> {
    match directory == caller.directory {
        true => Ok(caller.config.clone()),
        false => Config::load(directory, None),
    }
}

/// The sandbox's name: the stage's, with a mark of the project, since every
/// project may have a stage of that name.
pub fn row_name(line: &Line, at: usize) -> String {
    let digest = Sha256::digest(line.root.as_os_str().as_bytes());
    let mark: String = digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    format!("{}.{mark}", line.stages[at].name)
}

/// A stage's sandbox by the stage's own name, for verbs that only look.
pub fn named(engine: &Engine, caller: &Caller, name: &str) -> Result<Option<SandboxRow>> {
    let line = caller.config.line();
    let at = line.as_ref().and_then(|line| line.position(name));
    line.zip(at).map_or(Ok(None), |(line, at)| find(engine, caller, &line, at))
}

/// A stage's sandbox, if something ever came to it.
pub fn find(
    engine: &Engine,
    caller: &Caller,
    line: &Line,
    at: usize,
) -> Result<Option<SandboxRow>> {
    let name = row_name(line, at);
    match engine.store.sandbox_named(caller.reach.home(), &name)? {
        Some(row) if !is_stage(&row) => Err(Error::new(
            Code::Exists,
            format!("a sandbox has the name of the stage `{}`: {name}", line.stages[at].name),
        )
        .hint(format!("`fractal drop {name}`"))),
        found => Ok(found),
    }
}

/// A stage's sandbox; made if there is none.
pub fn row(engine: &Engine, caller: &Caller, line: &Line, at: usize) -> Result<SandboxRow> {
    let parent = match line.stages.get(at + 1) {
        Some(next) if next.kind != StageKind::Reality => {
            Some(row(engine, caller, line, at + 1)?.id)
        }
        _ => None,
    };
    let Some(found) = find(engine, caller, line, at)? else {
        return make(engine, caller, line, at, parent);
    };
    if found.parent == parent {
        return Ok(found);
    }
    // Somebody wrote another stage into the line.
    let moved = SandboxRow { parent, ..found };
    engine.store.transact(|tx| tx.update_sandbox(&moved))?;
    Ok(moved)
}

fn make(
    engine: &Engine,
    caller: &Caller,
    line: &Line,
    at: usize,
    parent: Option<Id>,
) -> Result<SandboxRow> {
    let clone = Template::find(caller, "clone")?;
    let row = SandboxRow {
        id: new_id(),
        name: row_name(line, at),
        parent,
        base: None,
        top: new_id(),
        policy: new_policy(caller, &Run::default(), &clone)?,
        template: TEMPLATE.to_owned(),
        mounts: Vec::new(),
        directory: line.root.clone(),
        created_ms: now_ms(),
        // Nobody means it by "the latest sandbox".
        touched_ms: 0,
        ttl_ms: None,
        fork_ctime_ns: stale::file_clock_ns(engine.home()),
        epoch: 0,
        tenant: caller.reach.home().to_owned(),
    };
    engine.store.new_layer_dir(row.top)?;
    let written = engine.store.transact(|tx| {
        insert_layer(tx, row.top, None)?;
        tx.insert_sandbox(&row)
    });
    match written {
        Ok(()) => Ok(row),
        Err(error) => {
            let _ = engine.store.discard_layer(row.top);
            Err(error.into())
        }
    }
}

/// What happened to a stage.
pub fn history(engine: &Engine, row: &SandboxRow) -> Result<History> {
    let records = engine.store.journal(Some(row.id), LOOK_BACK)?;
    Ok(History::read(records.iter().rev()))
}

/// Forgets what stood in a stage before its newest promotion came: only that
/// one can be taken back from the layers. `gc` collects what nobody needs then.
pub fn forget_older(engine: &Engine, row: &SandboxRow, landing: &Landing) -> Result<()> {
    let Some(newest) = landing.arrival.snapshot.as_deref() else { return Ok(()) };
    let snapshots = engine.store.snapshots(row.id)?;
    let older = snapshots.iter().map(|snapshot| snapshot.name.as_str());
    let older = older.filter(|name| name.starts_with("before-") && *name != newest);
    engine.store.transact_relaxed(|tx| {
        older.clone().try_for_each(|name| tx.delete_snapshot(row.id, name).map(drop))
    })?;
    Ok(())
}

/// A stage as it is, with its history. What `undo` took back from a directory
/// is taken back from the layers first.
pub fn settled(
    engine: &Engine,
    caller: &Caller,
    line: &Line,
    at: usize,
) -> Result<(SandboxRow, History)> {
    let row = row(engine, caller, line, at)?;
    let history = history(engine, &row)?;
    if let Some(landing) = history.taken_back()
        && take_back(engine, caller, &row, landing, "it was undone")?
    {
        return Ok((engine.find_again(&row)?, history));
    }
    Ok((row, history))
}

/// Puts a stage's layers back to what stood before a promotion, if that is
/// still on top; false when there is nothing to put back.
pub fn take_back(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    landing: &Landing,
    why: &str,
) -> Result<bool> {
    let Some(name) = landing.arrival.snapshot.as_deref() else { return Ok(false) };
    if landing.top != Some(row.top) {
        return Ok(false);
    }
    let snapshot = engine.store.snapshot(row.id, name)?.ok_or_else(|| {
        Error::new(Code::Corrupt, format!("`{}` has lost its snapshot `{name}`", row.name))
            .hint("`fractal doctor` looks for what else is missing")
    })?;
    let top = new_id();
    engine.store.new_layer_dir(top)?;
    let mut body = record(caller, "undo", Some(row));
    body.after = Some(top);
    // Who took it back from its directory has said so in the journal already.
    let key = if landing.undone { "follows" } else { "undoes" };
    body.detail = json!({ key: landing.arrival.promotion, "snapshot": name, "why": why });
    let written = engine.store.transact(|tx| {
        insert_layer(tx, top, Some(snapshot.layer))?;
        tx.set_top(row.id, row.epoch, top)?;
        tx.append(body)
    });
    if let Err(error) = written {
        let _ = engine.store.discard_layer(top);
        return Err(error.into());
    }
    Ok(true)
}
