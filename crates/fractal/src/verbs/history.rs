//! Snapshots in archives: what a sandbox went through, oldest first.
//!
//! Each snapshot stands there as what it differs by from the one before it in
//! time, the first as what it differs by from the base. So it does not matter
//! whether they were taken one after the other or on both sides of a rollback,
//! and an import puts one layer on the next. What the sandbox holds now stands
//! beside them, whole: who does not want its past reads only that.

use crate::{Cancel, Engine, base, insert_layer};
use fractal_jail::layer::{Bounds, Layer, View};
use fractal_model::{Change, Code, Error, Id, Name, Result};
use fractal_store::{Reads, SandboxRow, SnapshotRow, Tx, new_id, now_ms};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

use super::rollback::BASE;
use super::run::without_mount_points;

/// More than anybody names; an archive may come from anywhere.
const SNAPSHOTS_MAX: usize = 10_000;

/// A snapshot in a manifest.
#[derive(Debug, Serialize, Deserialize)]
pub struct Past {
    pub name: String,
    pub created_ms: u64,
    /// From the snapshot before it to this one.
    pub changes: Vec<Change>,
}

/// Where the entries of a snapshot stand in an archive.
pub fn folder(number: usize) -> String {
    format!("history/{number}/")
}

/// A sandbox's snapshots in the order in which they were taken, each with what
/// it shows.
pub fn of(engine: &Engine, row: &SandboxRow, cancel: &Cancel) -> Result<Vec<(Past, View)>> {
    let mut snapshots = engine.store.snapshots(row.id)?;
    snapshots.sort_by_key(|snapshot| (snapshot.created_ms, snapshot.layer));
    let mut before = row.base;
    let mut list = Vec::new();
    for snapshot in snapshots {
        let then = SandboxRow { top: snapshot.layer, ..row.clone() };
        let views = engine.views(&then, before)?.wanted_until(cancel);
        let mut found = views.changes(&Bounds::default())?;
        if found.truncated || found.unreadable > 0 {
            let what = format!("the snapshot `{}` cannot be read whole", snapshot.name);
            return Err(Error::new(Code::Limit, what).hint("leave out `--history`"));
        }
        without_mount_points(&mut found.list, &row.mounts)?;
        before = Some(snapshot.layer);
        let SnapshotRow { name, created_ms, .. } = snapshot;
        list.push((Past { name, created_ms, changes: found.list }, views.top()));
    }
    Ok(list)
}

/// What ever differed: now, or in a snapshot. Each path once.
pub fn union(changes: &[Change], past: &[Past]) -> Vec<Change> {
    let all = past.iter().flat_map(|past| &past.changes).chain(changes);
    let all: BTreeMap<_, _> = all.map(|change| (&change.path, change)).collect();
    all.into_values().cloned().collect()
}

/// Refuses names that no sandbox could have given.
pub fn check(past: &[Past]) -> Result<()> {
    if past.len() > SNAPSHOTS_MAX {
        return Err(Error::new(Code::Limit, format!("more than {SNAPSHOTS_MAX} snapshots")));
    }
    let mut seen = BTreeSet::new();
    for Past { name, .. } in past {
        Name::parse(name)?;
        if name == BASE || !seen.insert(name) {
            return Err(Error::invalid(format!("`{name}` cannot be the name of a snapshot here")));
        }
    }
    Ok(())
}

/// The layers that snapshots come back as, each on the one before it.
#[derive(Default)]
pub struct Layers(Vec<Id>);

impl Layers {
    /// A new one on top, and what it stands on.
    pub fn push(&mut self, engine: &Engine, row: &SandboxRow) -> Result<(Id, View)> {
        let open =
            |id: &Id| Ok(Layer::open(&engine.store.layer_tree(*id))?.marked_by(engine.marks()));
        let below = self.0.iter().rev().map(open).collect::<Result<_>>()?;
        let below = engine.host_view(row, below)?;
        let id = new_id();
        engine.store.new_layer_dir(id)?;
        self.0.push(id);
        Ok((id, below))
    }

    /// Whatever is noted of the base counts for all of them.
    pub fn mark(&self, engine: &Engine, row: &SandboxRow) {
        self.0.iter().for_each(|layer| base::mark(engine, row, *layer));
    }

    /// Makes them last.
    pub fn sync(&self, engine: &Engine) -> Result<()> {
        for id in &self.0 {
            engine.store.dirty_layer(*id, "import")?;
            engine.store.sync_layer(*id)?;
        }
        Ok(())
    }

    /// Gives them their rows and names.
    pub fn write(&self, tx: &Tx<'_>, row: &SandboxRow, past: &[Past]) -> fractal_store::Result<()> {
        let mut below = None;
        for (layer, past) in self.0.iter().copied().zip(past) {
            insert_layer(tx, layer, below)?;
            tx.seal_layer(layer, 0)?;
            let (name, created_ms) = (past.name.clone(), past.created_ms.min(now_ms()));
            tx.insert_snapshot(&SnapshotRow { sandbox: row.id, name, layer, created_ms })?;
            below = Some(layer);
        }
        Ok(())
    }

    /// Takes back what an import that failed has made.
    pub fn discard(&self, engine: &Engine) {
        for id in &self.0 {
            let _ = engine.store.discard_layer(*id);
        }
    }
}
