//! The names of one directory.
//!
//! They are kept in the order of a hash, because comparing two numbers is
//! several times quicker than comparing two names that begin alike, as the
//! names of one directory do. Whoever lists a directory sorts.

use crate::entry::Entry;
use crate::name::Name;
use equivalent::{Comparable, Equivalent};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use std::cmp::Ordering;
use std::ops::Bound;

#[derive(Clone, Default)]
pub(crate) struct Map(OrdMap<Key, Entry>);

/// Names with the same hash, should there be any, are in the order of their
/// bytes: nothing gets lost or slow, whoever chose them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    hash: u64,
    name: Name,
}

/// A name that is looked for.
struct Wanted<'a> {
    hash: u64,
    name: &'a [u8],
}

impl<'a> Wanted<'a> {
    fn new(name: &'a [u8]) -> Wanted<'a> {
        Wanted { hash: hash(name), name }
    }
}

impl Equivalent<Key> for Wanted<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.hash == key.hash && self.name == key.name.bytes()
    }
}

impl Comparable<Key> for Wanted<'_> {
    fn compare(&self, key: &Key) -> Ordering {
        self.hash.cmp(&key.hash).then_with(|| self.name.cmp(key.name.bytes()))
    }
}

/// Eight bytes at a time; good enough to spread names over a tree.
fn hash(name: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(ODD);
        hash ^ (hash >> 29)
    };
    let mut words = name.chunks_exact(8);
    let mut out = name.len() as u64;
    for word in words.by_ref() {
        out = mix(out, u64::from_le_bytes(word.try_into().expect("eight of them")));
    }
    let mut rest = [0; 8];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    mix(mix(out, u64::from_le_bytes(rest)), ODD)
}

impl Map {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Entry> {
        self.0.get(&Wanted::new(name))
    }

    pub(crate) fn get_mut(&mut self, name: &[u8]) -> Option<&mut Entry> {
        self.0.get_mut(&Wanted::new(name))
    }

    /// Puts an entry under a name, over the one that was there.
    pub(crate) fn insert(&mut self, name: Name, entry: Entry) {
        self.0.insert(Key { hash: hash(name.bytes()), name }, entry);
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Entry> {
        self.0.remove(&Wanted::new(name))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        self.0.iter().map(|(key, entry)| (&key.name, entry))
    }

    /// All of them, in the order of their names.
    pub(crate) fn sorted(&self) -> Vec<(&Name, &Entry)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by(|a, b| a.0.cmp(b.0));
        all
    }

    /// From a hash on, in the order of hashes.
    pub(crate) fn from(&self, hash: u64) -> impl Iterator<Item = (u64, &Name, &Entry)> {
        let first = Wanted { hash, name: b"" };
        let range = self.0.range::<_, Wanted>((Bound::Included(first), Bound::Unbounded));
        range.map(|(key, entry)| (key.hash, &key.name, entry))
    }

    /// Whether both are the same value in memory.
    pub(crate) fn is(&self, other: &Map) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// The names under which both differ, with what stands there in each.
    /// What both hold in the same memory is not looked at.
    pub(crate) fn diff<'a>(
        &'a self,
        other: &'a Map,
    ) -> impl Iterator<Item = (&'a Name, Option<&'a Entry>, Option<&'a Entry>)> {
        self.0.diff(&other.0).map(|item| match item {
            DiffItem::Add(key, entry) => (&key.name, None, Some(entry)),
            DiffItem::Remove(key, entry) => (&key.name, Some(entry), None),
            DiffItem::Update { old: (key, old), new: (_, new) } => {
                (&key.name, Some(old), Some(new))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_names_that_begin_alike_are_spread() {
        let mut high = [0u32; 16];
        for number in 0..16_000 {
            high[(hash(format!("file-{number:07}.txt").as_bytes()) >> 60) as usize] += 1;
        }
        assert!(high.iter().all(|count| (800..1200).contains(count)), "{high:?}");
        assert_ne!(hash(b"a"), hash(b"a\0"));
        assert_ne!(hash(b""), hash(b"\0"));
    }
}
