//! Which rows belong to which key: a list that only grows, of which the last
//! word on a key counts.

/// How long an entry is in its file.
pub(super) const BYTES: usize = 16;

/// The rows of a key; none says that the key is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) first: u32,
    pub(super) count: u32,
}

impl Entry {
    pub(super) fn push(&self, out: &mut Vec<u8>) {
        out.extend(self.key.to_le_bytes());
        out.extend(self.first.to_le_bytes());
        out.extend(self.count.to_le_bytes());
    }

    pub(super) fn read(bytes: &[u8]) -> Vec<Entry> {
        let number = |bytes: [u8; 4]| u32::from_le_bytes(bytes);
        let entry = |[a, b, c, d, e, f, g, h, rest @ ..]: &[u8; BYTES]| {
            let [i, j, k, l, m, n, o, p] = *rest;
            let key = u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
            Entry { key, first: number([i, j, k, l]), count: number([m, n, o, p]) }
        };
        bytes.as_chunks::<BYTES>().0.iter().map(entry).collect()
    }
}

/// What is left of a list, in the order of rows, so that a scan goes through
/// memory from front to back.
pub(super) fn settle(entries: &[Entry]) -> Vec<Entry> {
    let mut order: Vec<(u64, usize)> =
        entries.iter().enumerate().map(|(at, entry)| (entry.key, at)).collect();
    order.sort_unstable();
    let is_last = |pair: &&[(u64, usize)]| pair[0].0 != pair[1].0;
    let mut last: Vec<usize> = order.windows(2).filter(is_last).map(|pair| pair[0].1).collect();
    last.extend(order.last().map(|(_, at)| *at));
    let mut left: Vec<Entry> =
        last.into_iter().map(|at| entries[at]).filter(|entry| entry.count > 0).collect();
    left.sort_unstable_by_key(|entry| entry.first);
    left
}

/// A sum that another row changes wherever it stands, and that goes on where
/// it ended. Rows are a multiple of eight bytes long.
pub(super) fn sum(bytes: &[u8], stride: usize, first: usize) -> u64 {
    let rows = bytes.chunks_exact(stride).zip(first as u64..);
    rows.fold(0, |sum, (row, at)| sum.wrapping_add(mix(hash(row) ^ mix(at + 1))))
}

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

fn hash(row: &[u8]) -> u64 {
    let (quarters, rest) = row.as_chunks::<32>();
    let mut lanes = [1, 2, 3, 4u64];
    for quarter in quarters {
        for (lane, word) in lanes.iter_mut().zip(quarter.as_chunks::<8>().0) {
            *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(ODD).rotate_left(29);
        }
    }
    for (lane, word) in lanes.iter_mut().zip(rest.as_chunks::<8>().0) {
        *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(ODD).rotate_left(29);
    }
    lanes.iter().fold(0, |all, lane| mix(all ^ lane))
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 32).wrapping_mul(ODD);
    (value ^ value >> 29).wrapping_mul(ODD) ^ value >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_a_key_counts() {
        let entry = |key, first, count| Entry { key, first, count };
        let list = [entry(7, 0, 2), entry(3, 2, 1), entry(7, 3, 1), entry(9, 4, 1), entry(9, 0, 0)];
        assert_eq!(settle(&list), [entry(3, 2, 1), entry(7, 3, 1)]);
        assert_eq!(settle(&[]), []);
        assert_eq!(settle(&list[..1]), list[..1]);
        let mut bytes = Vec::new();
        list.iter().for_each(|entry| entry.push(&mut bytes));
        assert_eq!(Entry::read(&bytes), list);
    }

    #[test]
    fn a_sum_goes_on_where_it_ended_and_sees_each_bit_and_order() {
        let bytes: Vec<u8> = (0..40 * 5).map(|at| (at * 7) as u8).collect();
        let whole = sum(&bytes, 40, 0);
        assert_eq!(sum(&bytes[..80], 40, 0).wrapping_add(sum(&bytes[80..], 40, 2)), whole);
        for at in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[at / 8] ^= 1 << (at % 8);
            assert_ne!(sum(&other, 40, 0), whole);
        }
        let mut other = bytes.clone();
        other.rotate_left(40);
        assert_ne!(sum(&other, 40, 0), whole);
    }
}
