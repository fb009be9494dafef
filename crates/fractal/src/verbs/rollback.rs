//! `rollback`: return to a snapshot. What was there before is kept as a
//! snapshot of its own, so that a rollback can be rolled back.

use crate::{Caller, Engine, insert_layer, record};
use fractal_model::{Error, Id, Result, SandboxInfo};
use fractal_store::{Reads, SandboxRow, new_id, now_ms};
use serde_json::json;

/// The state a sandbox started from.
pub const BASE: &str = "base";

pub fn rollback(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    to: &str,
) -> Result<SandboxInfo> {
    let row = engine.find(caller, selector)?;
    engine.require_idle(&row, "roll back")?;
    let target = target(engine, &row, to)?;
    let row = keep_present(engine, caller, row)?;
    let top = new_id();
    engine.store.new_layer_dir(top)?;
    let mut body = record(caller, "rollback", Some(&row));
    body.after = Some(top);
    body.detail = json!({ "to": to, "layer": target });
    let written = engine.store.transact(|tx| {
        insert_layer(tx, top, target)?;
        tx.set_top(row.id, row.epoch, top)?;
        tx.touch_sandbox(row.id, now_ms())?;
        tx.delete_layer_if_unused(row.top)?;
        tx.append(body)
    });
    match written {
        Ok(_) => {
            // The empty top that nobody stands on any more.
            if engine.store.layer(row.top)?.is_none() {
                let _ = engine.store.discard_layer(row.top);
            }
            super::list::info(engine, &engine.find(caller, Some(row.id.as_str()))?)
        }
        Err(error) => {
            let _ = engine.store.discard_layer(top);
            Err(error.into())
        }
    }
}

fn target(engine: &Engine, row: &SandboxRow, to: &str) -> Result<Option<Id>> {
    if to == BASE {
        return Ok(row.base);
    }
    let snapshot = engine.store.snapshot(row.id, to)?.ok_or_else(|| {
        let names: Vec<String> = engine
            .store
            .snapshots(row.id)
            .unwrap_or_default()
            .into_iter()
            .map(|snapshot| snapshot.name)
            .chain([BASE.to_owned()])
            .collect();
        Error::not_found(format!("`{}` has no snapshot `{}`", row.name, to.escape_debug()))
            .hint(format!("there are: {}", names.join(", ")))
    })?;
    Ok(Some(snapshot.layer))
}

/// Names the present state unless its top holds nothing.
fn keep_present(engine: &Engine, caller: &Caller, row: SandboxRow) -> Result<SandboxRow> {
    if engine.top_is_empty(&row)? {
        return Ok(row);
    }
    let name = super::snapshot::free_name(engine, &row, "before-rollback")?;
    super::snapshot::take(engine, caller, &row, &name, "snapshot")?;
    engine.find(caller, Some(row.id.as_str()))
}
