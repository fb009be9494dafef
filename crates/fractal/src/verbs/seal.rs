//! Sealing: the present state of a sandbox becomes a layer that others can
//! stand on. Fork and snapshot are this and a row.
//!
//! Where nothing runs, the top itself is sealed and the sandbox gets a new,
//! empty one: pointers move. Where something runs, the top goes on being
//! written; then the runs are frozen for as long as it takes to copy it, and
//! the copy is sealed. The sandbox itself stays as it is.

use crate::{Engine, insert_layer, living};
use fractal_model::{Code, Error, Id, Result};
use fractal_store::{Reads, SandboxRow, Tx, new_id};
use std::time::{Duration, Instant};

/// How long it tries while others seal the same sandbox, or runs come and go.
const PATIENCE: Duration = Duration::from_secs(10);

/// The kernel mounts at most 500 layers over each other.
const DEPTH_MAX: usize = 450;

/// A layer with the state of a sandbox, on disk but in no table yet.
pub struct Seal {
    /// What a child stands on afterwards; `None` is reality.
    pub layer: Option<Id>,
    how: How,
}

enum How {
    /// The top holds nothing, so what it stands on is the state.
    Below,
    /// The top itself, and the one that takes its place.
    Top { next: Id },
    /// A copy of the top, on what the top stands on.
    Copy { below: Option<Id> },
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
        if engine.is_running(row.id)? {
            let copied = living::copy_top(engine, row)?;
            return Ok(
                copied.map(|(copy, below)| Seal { layer: Some(copy), how: How::Copy { below } })
            );
        }
        let store = &engine.store;
        if engine.top_is_empty(row)? {
            let below = store.layer(row.top)?.and_then(|layer| layer.below);
            return Ok(Some(Seal { layer: below, how: How::Below }));
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
        let next = new_id();
        store.new_layer_dir(next)?;
        Ok(Some(Seal { layer: Some(row.top), how: How::Top { next } }))
    }

    /// Writes the rows; returns the sandbox's top afterwards.
    pub fn write(&self, tx: &Tx<'_>, row: &SandboxRow) -> fractal_store::Result<Id> {
        match (&self.how, self.layer) {
            (How::Top { next }, _) => {
                tx.seal_layer(row.top, 0)?;
                insert_layer(tx, *next, Some(row.top))?;
                tx.set_top(row.id, row.epoch, *next)?;
                Ok(*next)
            }
            (How::Copy { below }, Some(copy)) => {
                insert_layer(tx, copy, *below)?;
                tx.seal_layer(copy, 0)?;
                Ok(row.top)
            }
            (How::Below | How::Copy { .. }, _) => Ok(row.top),
        }
    }

    /// Takes back what `prepare` made.
    fn discard(&self, engine: &Engine) {
        let made = match self.how {
            How::Below => None,
            How::Top { next } => Some(next),
            How::Copy { .. } => self.layer,
        };
        if let Some(id) = made {
            let _ = engine.store.discard_layer(id);
        }
    }
}
