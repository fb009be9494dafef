//! Bytes on disk that everything behind a door shares.
//!
//! What sandboxes below hold is measured. A layer that a run writes is not: it
//! counts as full as it may become, from before the run begins until it is
//! over, so that runs which are at it together cannot pass the whole between
//! two looks. Copies that are about to be made count in the same way. Runs in
//! one sandbox write one layer, which counts once.

use super::{Doorway, lock};
use crate::{Caller, Engine};
use fractal_model::{Code, Error, Id, Result, format_bytes};
use fractal_store::{Reads, SandboxRow, new_id};
use std::sync::Arc;

/// A run that asks for nothing may write so much, if there is as much.
const LEAST_BYTES: u64 = 1 << 20;

/// So many bytes may be in this layer soon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    pub token: Id,
    pub layer: Id,
    pub bytes: u64,
}

/// Room that nobody else gets, until dropped.
#[derive(Debug)]
pub(crate) struct Promised {
    doorway: Arc<Doorway>,
    token: Id,
}

impl Promised {
    pub(super) fn new(doorway: &Arc<Doorway>, token: Id) -> Promised {
        Promised { doorway: doorway.clone(), token }
    }

    /// The sandbox's top may have moved between the promise and the claim.
    pub(super) fn moved_to(&self, layer: Id) {
        self.each_level(|list, token| {
            let own = list.iter_mut().filter(|promise| promise.token == token);
            own.for_each(|promise| promise.layer = layer);
        });
    }

    fn each_level(&self, change: impl Fn(&mut Vec<Promise>, Id)) {
        for level in self.doorway.levels() {
            change(&mut lock(&level.taken).disk, self.token);
        }
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        self.each_level(|list, token| list.retain(|promise| promise.token != token));
    }
}

/// What all these layers may come to hold, each counted once.
fn promised(list: &[Promise], without: Option<Id>) -> u64 {
    let mut largest = std::collections::HashMap::<Id, u64>::new();
    for promise in list.iter().filter(|promise| Some(promise.layer) != without) {
        let bytes = largest.entry(promise.layer).or_default();
        *bytes = promise.bytes.max(*bytes);
    }
    largest.into_values().fold(0, u64::saturating_add)
}

/// How much a layer may come to hold that holds `size` now, where `left` is
/// free for it as a whole; an error says how much that is.
fn part_of(
    (left, size): (u64, u64),
    (own, asked): (Option<u64>, Option<u64>),
) -> std::result::Result<u64, u64> {
    let free = left.saturating_sub(size);
    match asked {
        _ if free == 0 => Err(left),
        Some(asked) if asked > left => Err(left),
        Some(asked) => Ok(asked),
        None => {
            let half = size + (free / 2).max(LEAST_BYTES.min(free));
            Ok(own.map_or(half, |own| own.min(half)))
        }
    }
}

impl Doorway {
    /// The part of a run that writes this layer: with what its sandbox may
    /// hold, and what was asked for.
    pub(super) fn disk_part(
        &self,
        engine: &Engine,
        taken: &super::Taken,
        (layer, own, asked): (Id, Option<u64>, Option<u64>),
    ) -> Result<Option<u64>> {
        let Some(total) = self.limits.disk_bytes else { return Ok(None) };
        // What it writes itself is bounded where it runs.
        if engine.store.sandbox(self.root)?.is_some_and(|root| root.top == layer) {
            return Ok(None);
        }
        let used = engine.held_below(self.root, &taken.disk, Some(layer))?;
        let used = used.saturating_add(promised(&taken.disk, Some(layer)));
        let left = total.saturating_sub(used);
        let size = engine.store.layer_size(layer).unwrap_or(0);
        match part_of((left, size), (own, asked)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(left) if asked.is_some_and(|asked| asked > left) && left > size => {
                let (total, left) = (format_bytes(total), format_bytes(left));
                let text = format!("of disk {total}, {left} are left behind this door");
                Err(Error::new(Code::Busy, text)
                    .hint("wait for another run to end, drop sandboxes, or ask for less"))
            }
            Err(_) => Err(full(used.saturating_add(size), total)),
        }
    }

    /// Refuses to have so much more than sandboxes below hold and may come to
    /// hold; returns the room for it.
    fn promise(self: &Arc<Doorway>, engine: &Engine, bytes: u64) -> Result<Promised> {
        // Always from the inside out, so nobody waits for each other.
        let mut all: Vec<_> = self.levels().map(|level| (level, lock(&level.taken))).collect();
        for (level, taken) in &all {
            let Some(total) = level.limits.disk_bytes else { continue };
            let used = engine.held_below(level.root, &taken.disk, None)?;
            let used = used.saturating_add(promised(&taken.disk, None));
            if bytes > total.saturating_sub(used) {
                return Err(full(used, total));
            }
        }
        let (token, layer) = (new_id(), new_id());
        for (_, taken) in &mut all {
            taken.disk.push(Promise { token, layer, bytes });
        }
        drop(all);
        Ok(Promised::new(self, token))
    }
}

fn full(used: u64, total: u64) -> Error {
    let (used, total) = (format_bytes(used), format_bytes(total));
    let text = format!("sandboxes below this one hold {used} of {total} already");
    Error::new(Code::Limit, text)
        .hint("drop some: `fractal drop S`; what runs counts with all that it may write")
}

impl Engine {
    /// Refuses to have sandboxes behind a door hold so much more than they do
    /// than fits. What is returned keeps the room until it was used.
    pub(crate) fn require_disk_below(
        &self,
        caller: &Caller,
        more: u64,
    ) -> Result<Option<Promised>> {
        caller.door.as_ref().map(|door| door.promise(self, more)).transpose()
    }

    /// The same for who is about to take what a sandbox holds now: where
    /// something runs in it, its top is copied.
    pub(crate) fn require_copy_below(
        &self,
        caller: &Caller,
        row: &SandboxRow,
    ) -> Result<Option<Promised>> {
        match caller.door.is_some() && self.is_running(row.id)? {
            true => self.require_disk_below(caller, self.store.layer_size(row.top)?),
            false => Ok(None),
        }
    }

    /// Bytes that everything below a sandbox and its snapshots hold and the
    /// sandbox itself does not: its own are bounded where it runs. Layers that
    /// somebody has a promise for are left out, and so is `without`.
    fn held_below(&self, root: Id, promises: &[Promise], without: Option<Id>) -> Result<u64> {
        let Some(own) = self.store.sandbox(root)? else { return Ok(0) };
        let mut tops = Vec::new();
        for row in self.below(root)?.iter().chain([&own]) {
            tops.push(row.top);
            tops.extend(self.store.snapshots(row.id)?.iter().map(|snapshot| snapshot.layer));
        }
        let ground: Vec<Id> = std::iter::once(own.top).chain(own.base).collect();
        let written = promises.iter().map(|promise| promise.layer).chain(without);
        Ok(self.store.size_above(&tops, &ground, &written.collect::<Vec<_>>())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_counts_once_and_as_full_as_it_may_become() {
        let (one, other) = (new_id(), new_id());
        let promise = |layer, bytes| Promise { token: new_id(), layer, bytes };
        let list = [promise(one, 10), promise(other, 5), promise(one, 30), promise(other, 2)];
        assert_eq!(promised(&list, None), 35);
        assert_eq!(promised(&list, Some(one)), 5);
        assert_eq!(promised(&[], None), 0);
    }

    #[test]
    fn a_run_gets_half_of_what_is_free_or_what_it_asks_for() {
        const MIB: u64 = 1 << 20;
        let check = |left, size, own, asked, expect| {
            assert_eq!(part_of((left, size), (own, asked)), expect);
        };
        check(40 * MIB, 0, None, None, Ok(20 * MIB));
        check(40 * MIB, 8 * MIB, None, None, Ok(24 * MIB));
        check(40 * MIB, 0, Some(5 * MIB), None, Ok(5 * MIB));
        check(MIB, 0, None, None, Ok(MIB));
        check(MIB / 4, 0, None, None, Ok(MIB / 4));
        check(40 * MIB, 0, None, Some(40 * MIB), Ok(40 * MIB));
        check(40 * MIB, 0, None, Some(41 * MIB), Err(40 * MIB));
        check(40 * MIB, 40 * MIB, None, None, Err(40 * MIB));
        check(0, 0, None, Some(1), Err(0));
    }
}
