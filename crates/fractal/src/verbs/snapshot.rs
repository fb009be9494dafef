//! `snapshot`: name the present state, durably; in constant time where nothing
//! runs.

use super::seal::{self, Seal};
use crate::{Caller, Engine, base, insert_layer, record};
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
    let _room = engine.require_copy_below(caller, &row)?;
    seal::while_sealed(engine, row, |row, seal| take(engine, caller, row, seal, &name))
}

/// Names the sealed layer.
fn take(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    seal: &Seal,
    name: &str,
) -> fractal_store::Result<SnapshotInfo> {
    // Nothing was ever written: the snapshot needs a layer to point at, so an
    // empty one is sealed between reality and the top.
    let empty = if seal.layer.is_none() { Some(new_id()) } else { None };
    if let Some(id) = empty {
        engine.store.new_layer_dir(id)?;
    }
    let layer = seal.layer.or(empty).expect("one of both is set");
    let snapshot =
        SnapshotRow { sandbox: row.id, name: name.to_owned(), layer, created_ms: now_ms() };
    let mut body = record(caller, "snapshot", Some(row));
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
    if let (Err(_), Some(id)) = (&written, empty) {
        let _ = engine.store.discard_layer(id);
    }
    written.map(|_| {
        base::mark(engine, row, layer);
        info(&snapshot)
    })
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
