//! The nearest of all, exactly.
//!
//! A scan over bytes bounds from above how near each key can be. Keys are then
//! taken in the order of these bounds and looked at exactly, until no bound is
//! as good as the worst of what was found. Nothing is estimated: the answer is
//! that of comparing with every vector.

use super::row::{self, Query};
use super::state::State;
use super::{Entry, VectorsError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::unix::fs::FileExt;
use std::thread;

/// With fewer bytes a second thread takes longer to start than to scan.
const LARGE_BYTES: usize = 4 << 20;

/// The best of what was looked at, best first, equals by key.
struct Best {
    found: Vec<(u64, f32)>,
    limit: usize,
}

impl Best {
    fn add(&mut self, key: u64, score: f32) {
        let better = |(other, than): &(u64, f32)| {
            than.total_cmp(&score).reverse().then(other.cmp(&key)).is_lt()
        };
        let at = self.found.partition_point(better);
        self.found.insert(at, (key, score));
        self.found.truncate(self.limit);
    }

    /// Whether a key whose score is not above this cannot be among them.
    fn excludes(&self, bound: f32) -> bool {
        self.found.len() == self.limit && self.found.last().is_some_and(|(_, worst)| bound < *worst)
    }
}

/// The question has length one and the right size.
pub(super) fn nearest(
    state: &State,
    question: &[f32],
    limit: usize,
    filter: &dyn Fn(u64) -> bool,
) -> Result<Vec<(u64, f32)>, VectorsError> {
    let mut best = Best { found: Vec::new(), limit };
    if limit == 0 {
        return Ok(best.found);
    }
    let query = Query::new(question);
    let mut open: BinaryHeap<(u32, Reverse<usize>)> = bounds(state, &query)
        .into_iter()
        .enumerate()
        .map(|(at, bound)| (ordered(bound), Reverse(at)))
        .collect();
    while let Some((bound, Reverse(at))) = open.pop() {
        if best.excludes(number(bound)) {
            break;
        }
        let entry = state.live[at];
        if filter(entry.key) {
            best.add(entry.key, look(state, &query, question, entry)?);
        }
    }
    Ok(best.found)
}

/// The exact scores of some keys, which are in order; those that are not there
/// are passed over.
pub(super) fn of(
    state: &State,
    question: &[f32],
    keys: &[u64],
) -> Result<Vec<(u64, f32)>, VectorsError> {
    let query = Query::new(question);
    let asked = state.live.iter().filter(|entry| keys.binary_search(&entry.key).is_ok());
    asked.map(|entry| Ok((entry.key, look(state, &query, question, *entry)?))).collect()
}

/// From above, how near the best vector of each key can be.
fn bounds(state: &State, query: &Query) -> Vec<f32> {
    let scan = |entries: &[Entry]| -> Vec<f32> {
        entries.iter().map(|entry| bound(state, query, *entry)).collect()
    };
    let live = &state.live;
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    if state.rows.len() < LARGE_BYTES || threads < 2 {
        return scan(live);
    }
    let (left, right) = live.split_at(live.len() / 2);
    thread::scope(|scope| {
        let other = scope.spawn(|| scan(right));
        let mut all = scan(left);
        all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        all
    })
}

fn bound(state: &State, query: &Query, entry: Entry) -> f32 {
    let rows = state.rows_of(entry).map(|row| {
        let (about, off) = query.score(row);
        about + off
    });
    rows.fold(f32::NEG_INFINITY, f32::max)
}

/// The exact score of the best vector of a key.
fn look(state: &State, query: &Query, question: &[f32], entry: Entry) -> Result<f32, VectorsError> {
    let width = question.len() * 4;
    let mut numbers = vec![0; entry.count as usize * width];
    let damaged = |why: &str| VectorsError::damaged(&state.dir, why);
    let full = state.full.as_ref().ok_or_else(|| damaged("its vectors are gone"))?;
    full.read_exact_at(&mut numbers, u64::from(entry.first) * width as u64)
        .map_err(|_| damaged("its vectors cannot be read"))?;
    let mut top = f32::NEG_INFINITY;
    for (numbers, row) in numbers.chunks_exact(width).zip(state.rows_of(entry)) {
        let (score, (about, off)) = (row::exact(question, numbers), query.score(row));
        // Bytes were checked when they were read; numbers are checked by them.
        let is_within = (score - about).abs() <= off;
        if !is_within {
            return Err(damaged("a vector is not the one that was written"));
        }
        top = top.max(score);
    }
    Ok(top)
}

/// A number whose order is that of the floating one.
fn ordered(value: f32) -> u32 {
    let bits = value.to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

fn number(ordered: u32) -> f32 {
    f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_order() {
        let values = [f32::NEG_INFINITY, -2.0, -0.5, 0.0, 1e-9, 0.5, 2.0];
        assert!(values.windows(2).all(|pair| ordered(pair[0]) < ordered(pair[1])));
        assert!(values.iter().all(|value| number(ordered(*value)) == *value));
    }
}
