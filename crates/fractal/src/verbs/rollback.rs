//! `rollback`: return to a snapshot. What runs is ended first; what was there
//! before is kept as a snapshot of its own, so that a rollback can be rolled
//! back.

use crate::{Caller, Engine, base, insert_layer, living, record, stages};
use fractal_model::{Error, Id, Result, SandboxInfo};
use fractal_store::{Reads, SandboxRow, SnapshotRow, StoreError, Tx, new_id, now_ms};
use serde_json::json;
use std::time::{Duration, Instant};

/// The state a sandbox started from.
pub const BASE: &str = "base";

pub fn rollback(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    to: &str,
) -> Result<SandboxInfo> {
    let mut row = engine.find(caller, selector)?;
    stages::refuse_write(&row, "roll back")?;
    engine.refuse_own(caller, &row, "roll back")?;
    target(engine, &row, to)?;
    let start = Instant::now();
    loop {
        living::end_all(engine, &row, living::SETTLE)?;
        row = engine.find(caller, Some(row.id.as_str()))?;
        let target = target(engine, &row, to)?;
        match move_top(engine, caller, &row, to, target) {
            Ok(()) => {
                let row = engine.find(caller, Some(row.id.as_str()))?;
                return super::list::info(engine, caller, &row);
            }
            // A new run came between, or somebody else sealed it.
            Err(Failed::Race(_)) if start.elapsed() < PATIENCE => {}
            Err(Failed::Race(error)) => return Err(error.into()),
            Err(Failed::Other(error)) => return Err(error),
        }
    }
}

/// How long it tries while new runs keep coming.
const PATIENCE: Duration = Duration::from_secs(5);

enum Failed {
    Race(StoreError),
    Other(Error),
}

impl<E: Into<Error>> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed::Other(error.into())
    }
}

/// Puts a new top on the target and names what was there, in one transaction.
fn move_top(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    to: &str,
    target: Option<Id>,
) -> std::result::Result<(), Failed> {
    let store = &engine.store;
    let kept = match engine.top_is_unchanged(row)? {
        true => None,
        false => {
            store.sync_layer(row.top)?;
            Some(super::snapshot::free_name(engine, row, "before-rollback")?)
        }
    };
    if kept.is_some() {
        base::mark(engine, row, row.top);
    }
    base::note_back(engine, row, target.filter(|_| to != BASE))?;
    let base = target.map_or(Ok(None), |target| base::base_of(engine, row, target))?;
    let top = new_id();
    store.new_layer_dir(top)?;
    let written = store.transact(|tx| {
        insert_layer(tx, top, target)?;
        tx.set_top(row.id, row.epoch, top)?;
        if let Some(base) = base {
            tx.set_base(row.id, base)?;
        }
        match &kept {
            Some(name) => keep(tx, caller, row, name)?,
            None => drop(tx.delete_layer_if_unused(row.top)?),
        }
        tx.touch_sandbox(row.id, now_ms())?;
        let mut body = record(caller, "rollback", Some(row));
        body.after = Some(top);
        body.detail = json!({ "to": to, "layer": target });
        tx.append(body)
    });
    match written {
        Ok(_) if kept.is_none() => Ok(store.discard_layer(row.top)?),
        Ok(_) => Ok(()),
        Err(error) => {
            let _ = store.discard_layer(top);
            Err(if error.is_race() { Failed::Race(error) } else { Failed::Other(error.into()) })
        }
    }
}

/// Names the state that is about to be left.
fn keep(tx: &Tx<'_>, caller: &Caller, row: &SandboxRow, name: &str) -> fractal_store::Result<()> {
    let (layer, created_ms) = (row.top, now_ms());
    tx.seal_layer(layer, 0)?;
    tx.insert_snapshot(&SnapshotRow { sandbox: row.id, name: name.to_owned(), layer, created_ms })?;
    let mut body = record(caller, "snapshot", Some(row));
    body.detail = json!({ "snapshot": name, "layer": layer });
    tx.append(body).map(|_| ())
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
