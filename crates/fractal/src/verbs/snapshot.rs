//! `snapshot`: name the present state, durably, in constant time.

use super::fork::Seal;
use crate::{Caller, Engine, insert_layer, record};
use fractal_model::{Code, Error, Name, Result, SnapshotInfo, format_iso_ms};
use fractal_store::{Reads, SandboxRow, SnapshotRow, new_id, now_ms};
use serde_json::json;

pub fn snapshot(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    name: Option<&str>,
) -> Result<SnapshotInfo> {
    let row = engine.find(caller, selector)?;
    engine.require_idle(&row, "snapshot")?;
    let name = match name {
        Some(name) => Name::parse(name)?.to_string(),
        None => free_name(engine, &row, "snap")?,
    };
    if name == super::rollback::BASE {
        return Err(Error::invalid(format!(
            "`{name}` always means the state a sandbox started from"
        ))
        .hint("choose another name"));
    }
    if engine.store.snapshot(row.id, &name)?.is_some() {
        return Err(Error::new(
            Code::Exists,
            format!("`{}` has a snapshot `{name}` already", row.name),
        )
        .hint("choose another name; `fractal show` lists them"));
    }
    take(engine, caller, &row, &name, "snapshot")
}

/// Seals the sandbox and names the layer.
pub fn take(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    name: &str,
    action: &str,
) -> Result<SnapshotInfo> {
    let seal = Seal::prepare(engine, row)?;
    // Nothing was ever written: the snapshot needs a layer to point at, so an
    // empty one is sealed between reality and the top.
    let empty = if seal.base.is_none() { Some(new_id()) } else { None };
    if let Some(id) = empty {
        engine.store.new_layer_dir(id)?;
    }
    let layer = seal.base.or(empty).expect("one of both is set");
    let snapshot =
        SnapshotRow { sandbox: row.id, name: name.to_owned(), layer, created_ms: now_ms() };
    let mut body = record(caller, action, Some(row));
    body.detail = json!({ "snapshot": name, "layer": layer });
    let written = engine.store.transact(|tx| {
        body.after = Some(seal.write(tx, row)?);
        if let Some(id) = empty {
            insert_layer(tx, id, None)?;
            tx.seal_layer(id, 0)?;
        }
        tx.insert_snapshot(&snapshot)?;
        tx.append(body)
    });
    if let Err(error) = written {
        seal.discard(engine);
        if let Some(id) = empty {
            let _ = engine.store.discard_layer(id);
        }
        return Err(error.into());
    }
    Ok(info(&snapshot))
}

/// `snap-1`, `snap-2`, … whichever is free.
pub fn free_name(engine: &Engine, row: &SandboxRow, prefix: &str) -> Result<String> {
    let taken = engine.store.snapshots(row.id)?;
    let free = (1..)
        .map(|number| format!("{prefix}-{number}"))
        .find(|name| taken.iter().all(|other| other.name != *name));
    Ok(free.expect("numbers do not end"))
}

pub fn info(snapshot: &SnapshotRow) -> SnapshotInfo {
    SnapshotInfo {
        name: snapshot.name.clone(),
        layer: snapshot.layer,
        created: format_iso_ms(snapshot.created_ms),
    }
}
