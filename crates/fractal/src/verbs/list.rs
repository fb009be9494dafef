//! `list`: what sandboxes there are.

use crate::{Caller, Engine};
use fractal_model::{Id, ListReply, Result, SandboxInfo, Scope, format_iso_ms};
use fractal_store::{Reads, SandboxRow};

pub fn list(engine: &Engine, caller: &Caller) -> Result<ListReply> {
    let rows = engine.in_reach(caller, engine.store.sandboxes()?)?;
    let sandboxes = rows.iter().map(|row| info(engine, caller, row)).collect::<Result<_>>()?;
    Ok(ListReply { sandboxes })
}

/// Those of them that follow an id, oldest first, and the id to go on from.
/// The store leaves out what it can; who sees a part of a tree of forks has
/// the rest of it passed over here.
pub fn page(
    engine: &Engine,
    caller: &Caller,
    after: Option<Id>,
    limit: usize,
) -> Result<(Vec<SandboxInfo>, Option<Id>)> {
    let reach = &caller.reach;
    let template = match &reach.scope {
        Scope::Template(name) => Some(name.as_str()),
        Scope::All | Scope::Sandbox(_) => None,
    };
    let tenant = reach.tenant.as_deref();
    // One more than asked for tells whether there is a next page.
    let chunk = u32::try_from(limit).unwrap_or(u32::MAX).saturating_add(1);
    let (mut rows, mut at) = (Vec::new(), after);
    while rows.len() <= limit {
        let more = engine.store.sandboxes_after(at, tenant, template, chunk)?;
        let is_last = more.len() < chunk as usize;
        at = more.last().map(|row| row.id);
        rows.extend(engine.in_reach(caller, more)?);
        if is_last {
            break;
        }
    }
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().map(|row| row.id).filter(|_| has_more);
    let sandboxes = rows.iter().map(|row| info(engine, caller, row)).collect::<Result<_>>()?;
    Ok((sandboxes, next))
}

/// One sandbox as every surface shows it.
pub fn info(engine: &Engine, caller: &Caller, row: &SandboxRow) -> Result<SandboxInfo> {
    let parent = match row.parent.map(|id| engine.store.sandbox(id)).transpose()?.flatten() {
        Some(parent) if engine.reaches(caller, &parent)? => Some(parent.name),
        // A dropped parent has no name any more, but promotion still knows it.
        // One out of reach shows as a dropped one does.
        _ => row.parent.map(|id| id.to_string()),
    };
    let state = if engine.is_running(row.id)? { "running" } else { "idle" };
    Ok(SandboxInfo {
        name: row.name.clone(),
        id: row.id,
        parent,
        base: row.base,
        state: state.to_owned(),
        created: format_iso_ms(row.created_ms),
        expires: row.ttl_ms.map(|ttl| format_iso_ms(row.touched_ms.saturating_add(ttl))),
        size_bytes: size(engine, row)?,
        policy: row.policy.clone(),
        template: row.template.clone(),
        directory: row.directory.display().to_string(),
    })
}

/// A sandbox whose layer is missing takes nothing; `doctor` tells of it.
fn size(engine: &Engine, row: &SandboxRow) -> Result<u64> {
    match engine.store.own_size(row) {
        Err(_) if !engine.store.layer_tree(row.top).is_dir() => Ok(0),
        size => Ok(size?),
    }
}
