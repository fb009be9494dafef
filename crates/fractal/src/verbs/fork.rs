//! `fork`: make a child that sees exactly what its parent sees now.

use super::run::place::refuse_wider;
use crate::{Caller, Engine, insert_layer, names, record};
use fractal_model::{Code, Error, Id, Name, Policy, Result, SandboxInfo};
use fractal_store::{Reads, SandboxRow, Tx, new_id, now_ms};
use serde_json::json;

pub fn fork(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    name: Option<&str>,
    ask: &Policy,
    ttl_ms: Option<u64>,
) -> Result<SandboxInfo> {
    let parent = engine.find(caller, selector)?;
    engine.require_idle(&parent, "fork")?;
    refuse_wider(&parent.name, &caller.policy.meet(&parent.policy), ask, None)?;
    let id = new_id();
    let name = name
        .map(Name::parse)
        .transpose()?
        .map_or_else(|| names::for_id(id), |name| name.to_string());
    if engine.store.sandbox_named(&name)?.is_some() {
        return Err(Error::new(Code::Exists, format!("there is already a sandbox `{name}`"))
            .hint("choose another name, or `fractal drop` that one"));
    }
    let seal = Seal::prepare(engine, &parent)?;
    let now = now_ms();
    let child = SandboxRow {
        id,
        name,
        parent: Some(parent.id),
        base: seal.base,
        top: new_id(),
        policy: caller.policy.meet(&parent.policy).meet(ask),
        template: parent.template.clone(),
        mounts: parent.mounts.clone(),
        directory: parent.directory.clone(),
        created_ms: now,
        touched_ms: now,
        ttl_ms: ttl_ms.or(parent.ttl_ms),
        fork_ctime_ns: parent.fork_ctime_ns,
        epoch: 0,
    };
    engine.store.new_layer_dir(child.top)?;
    let mut body = record(caller, "fork", Some(&parent));
    body.detail = json!({ "child": child.id, "child_name": child.name });
    let written = engine.store.transact(|tx| {
        body.after = Some(seal.write(tx, &parent)?);
        insert_layer(tx, child.top, child.base)?;
        tx.insert_sandbox(&child)?;
        tx.append(body)
    });
    if let Err(error) = written {
        seal.discard(engine);
        let _ = engine.store.discard_layer(child.top);
        return Err(error.into());
    }
    super::list::info(engine, &child)
}

/// The kernel mounts at most 500 layers over each other.
const DEPTH_MAX: usize = 450;

/// Sealing a sandbox: its top becomes a layer that others can stand on, and
/// it gets a new, empty top. An empty top needs no sealing.
pub struct Seal {
    /// What a child stands on afterwards; `None` is reality.
    pub base: Option<Id>,
    new_top: Option<Id>,
}

impl Seal {
    /// Makes the directory and the old top's content durable; changes no row.
    pub fn prepare(engine: &Engine, row: &SandboxRow) -> Result<Seal> {
        let store = &engine.store;
        if engine.top_is_empty(row)? {
            let below = store.layer(row.top)?.and_then(|layer| layer.below);
            return Ok(Seal { base: below, new_top: None });
        }
        let depth = store.stack(row.top)?.len();
        if depth >= DEPTH_MAX {
            return Err(Error::new(
                Code::Limit,
                format!("`{}` stands on {depth} layers, more than can be mounted", row.name),
            )
            .hint("`fractal export` and `fractal import` make one layer of them"));
        }
        store.sync_layer(row.top)?;
        let new_top = new_id();
        store.new_layer_dir(new_top)?;
        Ok(Seal { base: Some(row.top), new_top: Some(new_top) })
    }

    /// Moves the pointers; returns the sandbox's top afterwards.
    pub fn write(&self, tx: &Tx<'_>, row: &SandboxRow) -> fractal_store::Result<Id> {
        let Some(new_top) = self.new_top else { return Ok(row.top) };
        tx.seal_layer(row.top, 0)?;
        insert_layer(tx, new_top, Some(row.top))?;
        tx.set_top(row.id, row.epoch, new_top)?;
        Ok(new_top)
    }

    /// Takes back what `prepare` made.
    pub fn discard(&self, engine: &Engine) {
        if let Some(top) = self.new_top {
            let _ = engine.store.discard_layer(top);
        }
    }
}
