//! Into a parent that is a sandbox: its stack grows by one sealed layer, in
//! one transaction. What it had before stays under a snapshot's name.

use super::evidence::Landed;
use super::links;
use super::plan::{Against, Plan, plan};
use super::rehearse::put;
use super::{Progress, hold, stopped};
use crate::flat::{self, Flat};
use crate::{Caller, Engine, base, check, insert_layer};
use fractal_jail::layer::Writer;
use fractal_model::{
    CheckReport, Code, Error, Form, Id, Promote, PromoteReply, RecordBody, Result, Tier, Verdict,
};
use fractal_store::{LayerRow, Reads, SandboxRow, SnapshotRow, Tx, new_id, now_ms};
use serde_json::json;

pub fn promote(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    parent: &SandboxRow,
    asked: &Promote,
) -> Result<PromoteReply> {
    if asked.form != Form::Files {
        let message = format!("`{}` is a sandbox, which takes files only", parent.name);
        return Err(
            Error::invalid(message).hint("leave out `--as`, or promote with `--to reality`")
        );
    }
    engine
        .require_idle(parent, "promote into")
        .map_err(|error| living(caller, row, parent, error))?;
    let _holds = (hold(engine, row)?, hold(engine, parent)?);
    let theirs = engine.views(parent, parent.base)?.top();
    let plan = plan(engine, caller, row, asked, Against::Sandbox(theirs))?;
    let mut progress = Progress {
        row,
        stage: &parent.name,
        plan: &plan,
        checks: Vec::new(),
        notes: Vec::new(),
        overruled: None,
    };
    let stop = stopped(&plan, asked.allow_autorun);
    if asked.dry_run {
        let verdict = stop.map_or(Verdict::Planned, |(verdict, _)| verdict);
        return Ok(progress.reply(verdict, None, None));
    }
    if let Some((verdict, code)) = stop {
        return progress.refuse(engine, caller, verdict, code);
    }
    if plan.wishes.is_empty() {
        return Ok(progress.reply(Verdict::Nothing, None, None));
    }
    progress.checks = checks(engine, caller, row, parent, asked)?;
    if progress.checks.iter().any(CheckReport::rules_out) {
        return progress.refuse(engine, caller, Verdict::Gate, Code::Gate);
    }
    let mut received = crate::record(caller, "promote", Some(parent));
    received.detail = json!({ "from": row.name });
    let records = Records { gave: progress.record(caller), received, landed: None };
    let before = grow(engine, parent, &plan, records)?;
    progress.notes.push(format!("`fractal rollback {} {before}` takes it back", parent.name));
    progress.notes.extend(links::separated(&plan.ours, &plan.wishes)?);
    Ok(progress.reply(Verdict::Applied, None, None))
}

/// The kernel leaves it open what a mounted overlay shows when its layer is
/// written from outside, so a sandbox takes nothing while something runs in it;
/// for who is in it that is as long as they are.
fn living(caller: &Caller, row: &SandboxRow, parent: &SandboxRow, error: Error) -> Error {
    if caller.door.as_ref().is_none_or(|door| door.root != parent.id) {
        return error;
    }
    Error::new(Code::Busy, format!("`{}` is the sandbox that you are in, and it runs", parent.name))
        .hint(format!(
            "take the files: `fractal diff {} | git apply`; or promote it when this run is over",
            row.name
        ))
}

/// A child that stands on its parent's present state shows what would come
/// out; checks in one that does not would judge something else.
fn checks(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    parent: &SandboxRow,
    asked: &Promote,
) -> Result<Vec<CheckReport>> {
    if asked.checks.is_empty() {
        return Ok(Vec::new());
    }
    let below = engine.store.layer(parent.top)?.and_then(|top| top.below);
    if !engine.top_is_empty(parent)? || below != row.base {
        let message = format!("`{}` moved on since `{}` was forked", parent.name, row.name);
        return Err(Error::new(Code::Conflict, message)
            .hint("promote without `--check`, and check in the parent afterwards"));
    }
    check::run_checks(engine, caller, &row.name, &asked.checks, 1)
}

/// What the journal says: of who gave, and of who received.
pub struct Records {
    pub gave: RecordBody,
    pub received: RecordBody,
    /// What is signed with the latter, in a stage.
    pub landed: Option<Landed>,
}

impl Records {
    /// Writes both down, and signs what landed.
    pub fn write(self, engine: &Engine, tx: &Tx<'_>) -> fractal_store::Result<()> {
        tx.append(self.gave)?;
        let record = tx.append(self.received)?;
        if let Some(landed) = &self.landed {
            landed.sign(engine, &record);
        }
        Ok(())
    }
}

/// Writes the wishes into a layer on top of the parent; returns the name of
/// the snapshot that holds what it was.
pub fn grow(engine: &Engine, parent: &SandboxRow, plan: &Plan, records: Records) -> Result<String> {
    let layer = new_id();
    engine.store.new_layer_dir(layer)?;
    let grown =
        fill(engine, parent, layer, plan).and_then(|()| stack(engine, parent, layer, records));
    if grown.is_err() {
        let _ = engine.store.discard_layer(layer);
    }
    grown
}

fn fill(engine: &Engine, parent: &SandboxRow, layer: Id, plan: &Plan) -> Result<()> {
    let below = engine.views(parent, parent.base)?.top();
    let tree = engine.store.layer_tree(layer);
    let writer = Writer::open(&tree, &below, engine.tier()? >= Tier::Masked)?;
    put(&writer, &plan.ours, &plan.wishes)?;
    engine.store.dirty_layer(layer, "promote")?;
    engine.store.sync_layer(layer)?;
    Ok(engine.store.sync_layer(parent.top)?)
}

fn stack(engine: &Engine, parent: &SandboxRow, layer: Id, records: Records) -> Result<String> {
    let name = format!("before-{}", layer.as_str()[16..].to_lowercase());
    let next = new_id();
    engine.store.new_layer_dir(next)?;
    let mut records = records;
    records.gave.detail["snapshot"] = json!(name);
    records.received.detail["snapshot"] = json!(name);
    records.received.after = Some(next);
    let flat = flattened(engine, parent, layer)?;
    let written = engine.store.transact(|tx| {
        tx.seal_layer(parent.top, 0)?;
        insert_layer(tx, layer, Some(parent.top))?;
        tx.seal_layer(layer, 0)?;
        if let Some(flat) = &flat {
            flat.insert(tx)?;
        }
        insert_layer(tx, next, Some(flat.as_ref().map_or(layer, Flat::top)))?;
        tx.set_top(parent.id, parent.epoch, next)?;
        if let Some(base) = flat.as_ref().and_then(|flat| flat.base) {
            tx.set_base(parent.id, base)?;
        }
        tx.insert_snapshot(&SnapshotRow {
            sandbox: parent.id,
            name: name.clone(),
            layer: parent.top,
            created_ms: now_ms(),
        })?;
        records.write(engine, tx)
    });
    if let Err(error) = written {
        let made = flat.iter().flat_map(Flat::ids).chain([next]);
        made.for_each(|id| drop(engine.store.discard_layer(id)));
        return Err(error.into());
    }
    base::mark(engine, parent, parent.top);
    Ok(name)
}

/// Two layers come with every promotion; a stack that grows too deep by them
/// is flattened, as it is by a seal.
fn flattened(engine: &Engine, parent: &SandboxRow, layer: Id) -> Result<Option<Flat>> {
    let mut stack = engine.store.stack(parent.top)?;
    stack.insert(0, LayerRow { below: Some(parent.top), ..flat::unlisted(layer) });
    flat::flatten(engine, &parent.name, &stack, parent.base, 0)
}
