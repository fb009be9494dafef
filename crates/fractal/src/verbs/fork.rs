//! `fork`: make a child that sees exactly what its parent sees now.

use super::run::place::{check_ttl, refuse_wider};
use super::seal;
use crate::doorway::bound_ttl;
use crate::stages::is_stage;
use crate::{Caller, Engine, insert_layer, names, record};
use fractal_model::{Code, Error, Network, Policy, Result, SandboxInfo, World};
use fractal_store::{Reads, SandboxRow, new_id, now_ms};
use serde_json::json;

/// What the child is to be like.
pub struct Asked<'a> {
    pub ask: &'a Policy,
    pub network: Option<&'a Network>,
    pub ttl_ms: Option<u64>,
    pub world: Option<World>,
}

pub fn fork(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    name: Option<&str>,
    asked: &Asked<'_>,
) -> Result<SandboxInfo> {
    let &Asked { ask, network, ttl_ms, world } = asked;
    let parent = engine.find(caller, selector)?;
    refuse_wider(&parent.name, &caller.policy.meet(&parent.policy), ask, network)?;
    ask.check()?;
    check_ttl(ttl_ms)?;
    let network = network.cloned().unwrap_or_default();
    let ask = &ask.meet(&Policy { network, ..Policy::default() });
    engine.require_room_below(caller)?;
    let _room = engine.require_copy_below(caller, &parent)?;
    let id = new_id();
    let name = name.map_or_else(|| Ok(names::for_id(id)), names::read)?;
    if engine.store.sandbox_named(&parent.tenant, &name)?.is_some() {
        return Err(Error::new(Code::Exists, format!("there is already a sandbox `{name}`"))
            .hint("choose another name, or `fractal drop` that one"));
    }
    let template = template_for(&parent, world)?;
    engine.require_child_within(caller, &template)?;
    // A stage is for ever, a fork of it is not.
    // Nor is one of a sandbox that goes with its run.
    let ttl_of_parent = match is_stage(&parent) || parent.ttl_ms == Some(0) {
        true => Some(caller.config.ttl_ms()?),
        false => parent.ttl_ms,
    };
    let ttl_ms = match ttl_of_parent {
        Some(own) => bound_ttl(caller, ttl_ms, own).or(Some(own)),
        None => ttl_ms,
    };
    let child = seal::while_sealed(engine, parent, |parent, seal| {
        let now = now_ms();
        let child = SandboxRow {
            id,
            name: name.clone(),
            parent: Some(parent.id),
            base: seal.layer,
            top: new_id(),
            policy: caller.policy.meet(&parent.policy).meet(ask),
            template: template.clone(),
            mounts: parent.mounts.clone(),
            directory: parent.directory.clone(),
            created_ms: now,
            touched_ms: now,
            ttl_ms,
            fork_ctime_ns: parent.fork_ctime_ns,
            epoch: 0,
            tenant: parent.tenant.clone(),
        };
        engine.store.new_layer_dir(child.top)?;
        let mut body = record(caller, "fork", Some(parent));
        body.detail = json!({ "child": child.id, "child_name": child.name });
        let written = engine.store.transact(|tx| {
            body.after = Some(seal.write(tx, parent)?);
            insert_layer(tx, child.top, child.base)?;
            tx.insert_sandbox(&child)?;
            tx.append(body)
        });
        if written.is_err() {
            let _ = engine.store.discard_layer(child.top);
        }
        written.map(|_| child)
    })?;
    super::list::info(engine, caller, &child)
}

/// The parent's template, or the one that differs in its world alone.
fn template_for(parent: &SandboxRow, world: Option<World>) -> Result<String> {
    let own = if is_stage(parent) { "clone" } else { &parent.template };
    match (own, world) {
        (_, None) => Ok(own.to_owned()),
        ("clone" | "virtual", Some(World::Virtual)) => Ok("virtual".to_owned()),
        ("clone" | "virtual", Some(World::Native)) => Ok("clone".to_owned()),
        (own, Some(_)) => Err(Error::invalid(format!(
            "`{}` follows the template `{own}`, which says how its runs happen",
            parent.name
        ))
        .hint("say it with each run: `fractal run --virtual --in S -- CMD`, or `--native`")),
    }
}
