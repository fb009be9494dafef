//! Sealing: the present state of a sandbox becomes a layer that others can
//! stand on. Fork and snapshot are this and a row.
//!
//! Where nothing runs, the top itself is sealed and the sandbox gets a new,
//! empty one: pointers move. Where something runs, the top goes on being
//! written; then the runs are frozen for as long as it takes to copy it, and
//! the copy is sealed. The sandbox itself stays as it is. A stack that would
//! become too deep is flattened on the way.

use crate::flat::{self, Flat};
use crate::{Engine, insert_layer, living};
use fractal_model::{Id, Result};
use fractal_store::{LayerRow, Reads, SandboxRow, Tx, new_id};
use std::time::{Duration, Instant};

/// How long it tries while others seal the same sandbox, or runs come and go.
const PATIENCE: Duration = Duration::from_secs(10);

/// A layer with the state of a sandbox, on disk but in no table yet.
pub struct Seal {
    /// What a child stands on afterwards; `None` is reality.
    pub layer: Option<Id>,
    how: How,
    /// What takes the place of the uppermost layers.
    flat: Option<Flat>,
}

enum How {
    /// The top holds nothing, so what it stands on is the state.
    Below,
    /// The top itself, and the one that takes its place.
    Top { next: Id },
    /// A copy of the top, on what the top stands on.
    Copy { copy: Id, below: Option<Id> },
}

/// Calls `job` with the sealed state of a sandbox, which is to write it down;
/// again when somebody else was faster.
pub fn while_sealed<T>(
    engine: &Engine,
    mut row: SandboxRow,
    mut job: impl FnMut(&SandboxRow, &Seal) -> fractal_store::Result<T>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(seal) = Seal::prepare(engine, &row)? {
            match job(&row, &seal) {
                Ok(value) => return Ok(value),
                Err(error) if error.is_race() && start.elapsed() < PATIENCE => {
                    seal.discard(engine);
                }
                Err(error) => {
                    seal.discard(engine);
                    return Err(error.into());
                }
            }
        } else if start.elapsed() > PATIENCE {
            return Err(living::busy(&row, "something else starts, ends or is sealed in it"));
        }
        std::thread::sleep(Duration::from_millis(2));
        row = engine.find_again(&row)?;
    }
}

impl Seal {
    /// Puts the state of a sandbox on disk, durably; changes no row. `None`
    /// when it has to be looked at again.
    fn prepare(engine: &Engine, row: &SandboxRow) -> Result<Option<Seal>> {
        let store = &engine.store;
        if engine.is_running(row.id)? {
            let Some((copy, below)) = living::copy_top(engine, row)? else { return Ok(None) };
            let how = How::Copy { copy, below };
            let mut stack = below.map_or(Ok(Vec::new()), |below| store.stack(below))?;
            stack.insert(0, LayerRow { below, ..flat::unlisted(copy) });
            // The sandbox itself becomes no deeper by this, only who stands on
            // the copy.
            let flat = flat::flatten(engine, &row.name, &stack, Some(copy), flat::SLACK);
            return Seal { layer: Some(copy), how, flat: None }.flattened(engine, flat).map(Some);
        }
        if engine.top_is_empty(row)? {
            let below = store.layer(row.top)?.and_then(|layer| layer.below);
            return Ok(Some(Seal { layer: below, how: How::Below, flat: None }));
        }
        store.sync_layer(row.top)?;
        let flat = flat::flatten(engine, &row.name, &store.stack(row.top)?, row.base, 0);
        let next = new_id();
        let seal = Seal { layer: Some(row.top), how: How::Top { next }, flat: None };
        let seal = seal.flattened(engine, flat)?;
        store.new_layer_dir(next)?;
        Ok(Some(seal))
    }

    fn flattened(mut self, engine: &Engine, flat: Result<Option<Flat>>) -> Result<Seal> {
        match flat {
            Ok(flat) => {
                self.layer = flat.as_ref().map(|flat| flat.top()).or(self.layer);
                self.flat = flat;
                Ok(self)
            }
            Err(error) => {
                self.discard(engine);
                Err(error)
            }
        }
    }

    /// Writes the rows; returns the sandbox's top afterwards.
    pub fn write(&self, tx: &Tx<'_>, row: &SandboxRow) -> fractal_store::Result<Id> {
        match self.how {
            How::Top { .. } => tx.seal_layer(row.top, 0)?,
            How::Copy { copy, below } => {
                insert_layer(tx, copy, below)?;
                tx.seal_layer(copy, 0)?;
            }
            How::Below => {}
        }
        if let Some(flat) = &self.flat {
            flat.insert(tx)?;
        }
        let How::Top { next } = self.how else { return Ok(row.top) };
        insert_layer(tx, next, self.layer)?;
        tx.set_top(row.id, row.epoch, next)?;
        match self.flat.as_ref().and_then(|flat| flat.base) {
            Some(base) => tx.set_base(row.id, base).map(|()| next),
            None => Ok(next),
        }
    }

    /// Takes back what `prepare` made.
    fn discard(&self, engine: &Engine) {
        let made = match self.how {
            How::Below => None,
            How::Top { next } => Some(next),
            How::Copy { copy, .. } => Some(copy),
        };
        let flat = self.flat.iter().flat_map(|flat| flat.ids());
        for id in made.into_iter().chain(flat) {
            let _ = engine.store.discard_layer(id);
        }
    }
}
