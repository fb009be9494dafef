//! Stacks that would become too deep are flattened.
//!
//! A sealed layer never changes its meaning, so nothing below a sandbox is
//! touched. Instead the uppermost layers of its stack are put together into a
//! new one that means the same, and the sandbox's next top goes on that. The
//! layers it replaces stay for whoever else stands on them, or is just reading
//! them; `gc` finds those that nobody needs.
//!
//! The invariant: **after flattening, what the base pointer names means what
//! it meant before, and the layers above it are the sandbox's own changes.**
//! So what is put together never reaches across the base: the layers above it
//! become one, the base with those below it another one, and that is the new
//! base.

use crate::Engine;
use crate::verbs::run::claim::label;
use fractal_jail::layer::{self, Bounds, Layer};
use fractal_model::{Code, Error, Id, Result};
use fractal_store::{LayerRow, Tx, new_id, now_ms};

/// Sealed layers under a top. One page of mount options, all that kernels
/// before 6.8 take, holds this many at paths of up to 80 bytes; and looking up
/// a name that is nowhere asks each of them.
const DEPTH_MAX: usize = 32;

/// How many more a copy may stand on: the sandbox goes on as it is, and would
/// have the same layers flattened for every copy.
pub const SLACK: usize = 8;

/// What the kernel can mount, and some room.
const MOUNTABLE_MAX: usize = 450;

/// The least number of layers that are worth it.
const RUN_MIN: usize = 8;

/// New layers, on disk but in no table yet.
pub struct Flat {
    /// Lowest first, each on the one before.
    made: Vec<LayerRow>,
    /// What takes the place of the base, if it was among those.
    pub base: Option<Id>,
}

/// Flattens the upper part of a sealed stack (top first) if it is deeper than
/// `DEPTH_MAX` and some slack. Where that fails the stack stays as it is, for
/// as long as it can be mounted at all.
pub fn flatten(
    engine: &Engine,
    name: &str,
    stack: &[LayerRow],
    base: Option<Id>,
    slack: usize,
) -> Result<Option<Flat>> {
    if stack.len() <= DEPTH_MAX + slack {
        return Ok(None);
    }
    let mut flat = Flat { made: Vec::new(), base: None };
    match flat.make(engine, stack, base) {
        Ok(()) => Ok(Some(flat)),
        Err(error) => {
            flat.ids().for_each(|id| drop(engine.store.discard_layer(id)));
            if stack.len() < MOUNTABLE_MAX {
                return Ok(None);
            }
            let message = format!("`{name}` stands on {} layers: {}", stack.len(), error.message);
            Err(Error::new(Code::Limit, message)
                .hint("`fractal export` and `fractal import` make one layer of them"))
        }
    }
}

impl Flat {
    /// The uppermost of them: it means what the whole stack meant.
    pub fn top(&self) -> Id {
        self.made.last().expect("there is at least one").id
    }

    /// The new layers.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.made.iter().map(|layer| layer.id)
    }

    fn make(&mut self, engine: &Engine, stack: &[LayerRow], base: Option<Id>) -> Result<()> {
        let layers = stack.iter().map(|row| {
            Ok(Layer::open(&engine.store.layer_tree(row.id))?.marked_by(engine.marks()))
        });
        let layers = layers.collect::<Result<Vec<Layer>>>()?;
        let run = choose(layers.len(), |at, enough| weight(&layers[at], enough));
        let cut = stack[..run].iter().position(|row| Some(row.id) == base);
        let mut below = stack[run - 1].below;
        for part in [cut.unwrap_or(run)..run, 0..cut.unwrap_or(run)] {
            if part.is_empty() {
                continue;
            }
            let is_base = Some(part.start) == cut;
            let row = LayerRow { below, ..unlisted(new_id()) };
            engine.store.new_layer_dir(row.id)?;
            let id = row.id;
            self.made.push(row);
            engine.store.dirty_layer(id, &label(id))?;
            layer::flatten(&layers[part], &engine.store.layer_tree(id), &Bounds::default())?;
            if is_base {
                self.base = Some(id);
            }
            below = Some(id);
        }
        self.ids().try_for_each(|id| engine.store.sync_layer(id)).map_err(Error::from)
    }

    /// Writes their rows.
    pub fn insert(&self, tx: &Tx<'_>) -> fractal_store::Result<()> {
        self.made.iter().try_for_each(|row| tx.insert_layer(row))
    }
}

/// The row of a sealed layer on reality.
pub fn unlisted(id: Id) -> LayerRow {
    LayerRow { id, below: None, sealed: true, created_ms: now_ms(), size_bytes: 0 }
}

/// What putting a layer together with others costs, roughly: its names. Large
/// ones are counted until it is enough.
fn weight(layer: &Layer, enough: u64) -> u64 {
    const OPENING: u64 = 16;
    let bounds = Bounds { entries_max: enough, ..Bounds::default() };
    let usage = layer::disk_usage(layer, &bounds);
    usage.map_or(enough, |usage| usage.entries.saturating_add(OPENING))
}

/// How many of the uppermost layers to put together: for as long as the next
/// one is not much larger than all before it. So a large layer is left alone
/// while small ones come and go above it, each name is put together a
/// logarithmic number of times, and counting costs less than doing it.
fn choose(count: usize, weight: impl Fn(usize, u64) -> u64) -> usize {
    let all = Bounds::default().entries_max;
    let mut run = 1;
    let mut sum = weight(0, all);
    while run < count {
        let enough = sum.saturating_mul(2).saturating_add(1);
        let next = weight(run, enough);
        if next >= enough && run >= RUN_MIN {
            break;
        }
        sum = sum.saturating_add(if next >= enough { weight(run, all) } else { next });
        run += 1;
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_layer_is_left_alone_until_enough_has_gathered_on_it() {
        let check = |weights: &[(usize, u64)], expect: usize| {
            let weights: Vec<u64> =
                weights.iter().flat_map(|(count, weight)| vec![*weight; *count]).collect();
            let run = choose(weights.len(), |at, enough| weights[at].min(enough));
            assert_eq!(run, expect, "{weights:?}");
        };
        check(&[(33, 20)], 33);
        check(&[(32, 20), (1, 100_000)], 32);
        check(&[(31, 20), (1, 600), (1, 100_000)], 32);
        check(&[(31, 20), (1, 900), (1, 3000)], 33);
        check(&[(3, 20), (30, 100_000)], 33);
        check(&[(4, 20), (1, 100_000), (28, 20)], 33);
        check(&[(1, 20)], 1);
    }
}
