//! `show`: everything about one sandbox.

use crate::{Caller, Engine, stale};
use fractal_model::{Result, ShowReply};
use fractal_store::Reads;

pub fn show(engine: &Engine, caller: &Caller, selector: Option<&str>) -> Result<ShowReply> {
    let row = engine.find(caller, selector)?;
    let layers = engine.store.stack(row.top)?;
    // Whoever drops it takes its layers away first.
    if layers.is_empty() {
        engine.find_again(&row)?;
    }
    let snapshots = engine.store.snapshots(row.id)?.iter().map(super::snapshot::info).collect();
    let children = engine.in_reach(caller, engine.store.children(row.id)?)?;
    let children = children.into_iter().map(|child| child.name).collect();
    Ok(ShowReply {
        info: super::list::info(engine, caller, &row)?,
        base_kind: stale::base_kind(engine, &row)?,
        depth: layers.len().saturating_sub(1),
        snapshots,
        mounts: row.mounts.clone(),
        children,
        changes: super::diff::count(engine, &row, &caller.cancel)?,
        stale: stale::look(engine, &row),
    })
}
