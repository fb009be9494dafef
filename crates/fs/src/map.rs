//! The names of one directory: a trie over the hashes of the names.
//!
//! Each level takes four bits of the hash and leads straight to one slot, so
//! that looking a name up touches two places in memory for each level and
//! compares one name. Whoever lists a directory sorts.
//!
//! Nodes are shared between forks and copied when one of them writes, which
//! has to count every entry of a node once more and so touches all of them.
//! Therefore the first few names that are written while another fork holds
//! the trie are noted beside it ([`Recent`]) and go into it together; most
//! forks write little in any one directory.

use crate::entry::Entry;
use crate::name::Name;
use foldhash::quality::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};

const LEVEL_BITS: u32 = 4;

/// Where the hash ends: names that still agree lie in one node side by side.
const HASH_BITS: u32 = u64::BITS;

/// Chosen anew for each process, so that nobody can make up names that all
/// end in one node.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

#[inline]
fn hash(name: &[u8]) -> u64 {
    HASHER.hash_one(name)
}

/// How many names are noted beside a trie that others hold.
const RECENT_MAX: usize = 8;

#[derive(Clone, Default)]
pub(crate) struct Map {
    root: Node,
    /// Stands over what the trie says; never two of one name.
    recent: Vec<Recent>,
    len: usize,
}

/// What stands under a name since the trie is shared; `None` if the trie has
/// the name and it is gone.
#[derive(Clone)]
struct Recent {
    hash: u64,
    name: Name,
    entry: Option<Entry>,
}

impl Recent {
    fn is_of(&self, hash: u64, name: &[u8]) -> bool {
        self.hash == hash && self.name.bytes() == name
    }
}

/// Which slots there are lies beside the pointer to them, not behind it: that
/// is one place less to fetch for each level.
#[derive(Clone)]
struct Node {
    bits: u16,
    slots: Arc<[Slot]>,
}

#[derive(Clone)]
enum Slot {
    Entry(Name, Entry),
    Below(Node),
    /// Only while a node is being made anew.
    Moved,
}

/// A name, what stood under it and what stands there.
pub(crate) type Difference<'a> = (&'a Name, Option<&'a Entry>, Option<&'a Entry>);

/// The slot's bit at a level; the highest four bits of the hash come first, so
/// that slots are in the order of hashes.
#[inline]
fn bit(hash: u64, shift: u32) -> u16 {
    1 << ((hash >> (HASH_BITS - LEVEL_BITS - shift)) & 15)
}

impl Default for Node {
    fn default() -> Node {
        static NONE: LazyLock<Arc<[Slot]>> = LazyLock::new(|| Arc::new([]));
        Node { bits: 0, slots: NONE.clone() }
    }
}

impl Node {
    /// Where the slot of a bit lies, or would.
    #[inline]
    fn index(&self, bit: u16) -> usize {
        (self.bits & (bit - 1)).count_ones() as usize
    }

    #[inline]
    fn slot(&self, bit: u16) -> Option<&Slot> {
        (self.bits & bit != 0).then(|| &self.slots[self.index(bit)])
    }

    /// Where a name lies among those whose whole hashes agree.
    fn beside(&self, name: &[u8]) -> Option<usize> {
        let is = |slot: &Slot| matches!(slot, Slot::Entry(other, _) if other.bytes() == name);
        self.slots.iter().position(is)
    }

    fn is(&self, other: &Node) -> bool {
        Arc::ptr_eq(&self.slots, &other.slots)
    }

    /// Whether writing would copy; a hint, as others may let go any moment.
    /// The empty node is everybody's and costs nothing to copy.
    fn is_held_by_others(&self) -> bool {
        !self.slots.is_empty() && Arc::strong_count(&self.slots) > 1
    }

    #[inline]
    fn get(&self, hash: u64, name: &[u8]) -> Option<&Entry> {
        let mut node = self;
        for shift in (0..HASH_BITS).step_by(LEVEL_BITS as usize) {
            match node.slot(bit(hash, shift))? {
                Slot::Entry(other, entry) => return (other.bytes() == name).then_some(entry),
                Slot::Below(next) => node = next,
                Slot::Moved => return None,
            }
        }
        match &node.slots[node.beside(name)?] {
            Slot::Entry(_, entry) => Some(entry),
            Slot::Below(_) | Slot::Moved => None,
        }
    }

    /// From a hash on, in the order of hashes.
    fn from(&self, start: u64) -> impl Iterator<Item = (u64, &Name, &Entry)> {
        let (mut open, mut node, mut shift) = (Vec::new(), self, 0);
        while shift < HASH_BITS {
            let bit = bit(start, shift);
            let at = node.index(bit);
            match node.slot(bit) {
                Some(Slot::Below(next)) => {
                    open.push(node.slots[at + 1..].iter());
                    node = next;
                    shift += LEVEL_BITS;
                }
                _ => {
                    open.push(node.slots[at..].iter());
                    break;
                }
            }
        }
        if shift >= HASH_BITS {
            open.push(node.slots.iter());
        }
        let hashed = Iter { open }.map(|(name, entry)| (hash(name.bytes()), name, entry));
        hashed.skip_while(move |(hash, ..)| *hash < start)
    }

    /// The slots for editing; copied if anyone else has them.
    fn edit(&mut self) -> &mut [Slot] {
        Arc::make_mut(&mut self.slots)
    }

    /// The slots to be put together anew: moved if nobody else has them.
    fn take(&mut self) -> Vec<Slot> {
        let room = self.slots.len() + 1;
        let mut out = Vec::with_capacity(room);
        match Arc::get_mut(&mut self.slots) {
            Some(own) => {
                out.extend(own.iter_mut().map(|slot| std::mem::replace(slot, Slot::Moved)))
            }
            None => out.extend(self.slots.iter().cloned()),
        }
        out
    }

    fn add(&mut self, at: usize, slot: Slot) {
        let mut slots = self.take();
        slots.insert(at, slot);
        self.slots = slots.into();
    }

    /// A node with two entries whose hashes agree up to this level.
    fn of_two(shift: u32, one: (u64, Slot), two: (u64, Slot)) -> Node {
        if shift >= HASH_BITS {
            return Node { bits: 0, slots: Arc::new([one.1, two.1]) };
        }
        let (first, second) = (bit(one.0, shift), bit(two.0, shift));
        if first == second {
            let below = Node::of_two(shift + LEVEL_BITS, one, two);
            return Node { bits: first, slots: Arc::new([Slot::Below(below)]) };
        }
        let slots = if first < second { [one.1, two.1] } else { [two.1, one.1] };
        Node { bits: first | second, slots: Arc::new(slots) }
    }

    /// Puts an entry below; true if the name is new.
    fn insert(&mut self, hash: u64, shift: u32, name: Name, entry: Entry) -> bool {
        if shift >= HASH_BITS {
            let known = self.beside(name.bytes());
            match known {
                Some(at) => self.edit()[at] = Slot::Entry(name, entry),
                None => self.add(self.slots.len(), Slot::Entry(name, entry)),
            }
            return known.is_none();
        }
        let bit = bit(hash, shift);
        let at = self.index(bit);
        if self.bits & bit == 0 {
            self.bits |= bit;
            self.add(at, Slot::Entry(name, entry));
            return true;
        }
        let slot = &mut self.edit()[at];
        match slot {
            Slot::Below(next) => return next.insert(hash, shift + LEVEL_BITS, name, entry),
            Slot::Entry(other, old) if *other == name => {
                *old = entry;
                return false;
            }
            Slot::Entry(..) | Slot::Moved => {}
        }
        let old = std::mem::replace(slot, Slot::Moved);
        let Slot::Entry(other, _) = &old else { unreachable!("the others were dealt with") };
        let old = (self::hash(other.bytes()), old);
        let new = (hash, Slot::Entry(name, entry));
        *slot = Slot::Below(Node::of_two(shift + LEVEL_BITS, old, new));
        true
    }

    /// Takes an entry away that is below.
    fn remove(&mut self, hash: u64, shift: u32, name: &[u8]) -> Option<Entry> {
        let (at, bit) = match shift >= HASH_BITS {
            true => (self.beside(name)?, 0),
            false => (self.index(bit(hash, shift)), bit(hash, shift)),
        };
        if let Some(Slot::Below(_)) = self.slots.get(at) {
            let slot = &mut self.edit()[at];
            let Slot::Below(next) = slot else { unreachable!("looked at above") };
            let entry = next.remove(hash, shift + LEVEL_BITS, name)?;
            // One that is left alone moves up, so that equal directories have
            // equal shapes.
            if let [Slot::Entry(..)] = next.slots[..] {
                *slot = next.take().pop().expect("there is one");
            }
            return Some(entry);
        }
        self.bits &= !bit;
        let mut slots = self.take();
        let gone = slots.remove(at);
        self.slots = slots.into();
        match gone {
            Slot::Entry(_, entry) => Some(entry),
            Slot::Below(_) | Slot::Moved => unreachable!("looked at above"),
        }
    }

    fn get_mut(&mut self, hash: u64, shift: u32, name: &[u8]) -> Option<&mut Entry> {
        let at = match shift >= HASH_BITS {
            true => self.beside(name)?,
            false => self.index(bit(hash, shift)),
        };
        match &mut self.edit()[at] {
            Slot::Below(next) => next.get_mut(hash, shift + LEVEL_BITS, name),
            Slot::Entry(_, entry) => Some(entry),
            Slot::Moved => None,
        }
    }
}

impl Map {
    #[inline]
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Entry> {
        self.find(hash(name), name)
    }

    #[inline]
    fn find(&self, hash: u64, name: &[u8]) -> Option<&Entry> {
        match self.noted(hash, name) {
            Some(at) => self.recent[at].entry.as_ref(),
            None => self.root.get(hash, name),
        }
    }

    /// Where a name is noted beside the trie.
    #[inline]
    fn noted(&self, hash: u64, name: &[u8]) -> Option<usize> {
        self.recent.iter().position(|recent| recent.is_of(hash, name))
    }

    /// The entry for editing. What is shared on the way is copied, so nothing
    /// is looked for that is not there.
    pub(crate) fn get_mut(&mut self, name: &[u8]) -> Option<&mut Entry> {
        let hash = hash(name);
        if let Some(at) = self.noted(hash, name) {
            return self.recent[at].entry.as_mut();
        }
        let entry = self.root.get(hash, name)?;
        if self.root.is_held_by_others() {
            let (name, entry) = (Name::trusted(name), Some(entry.clone()));
            return self.note(Recent { hash, name, entry }).entry.as_mut();
        }
        self.root.get_mut(hash, 0, name)
    }

    /// Puts an entry under a name; whether one was there before.
    pub(crate) fn insert(&mut self, name: Name, entry: Entry) -> bool {
        let hash = hash(name.bytes());
        let new = if let Some(at) = self.noted(hash, name.bytes()) {
            self.recent[at].entry.replace(entry).is_none()
        } else if self.root.is_held_by_others() {
            let new = self.root.get(hash, name.bytes()).is_none();
            self.note(Recent { hash, name, entry: Some(entry) });
            new
        } else {
            self.root.insert(hash, 0, name, entry)
        };
        self.len += usize::from(new);
        !new
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Entry> {
        let hash = hash(name);
        let gone = match self.noted(hash, name) {
            Some(at) if self.root.get(hash, name).is_some() => self.recent[at].entry.take()?,
            Some(at) => self.recent.swap_remove(at).entry?,
            None => self.remove_below(hash, name)?,
        };
        self.len -= 1;
        Some(gone)
    }

    /// Takes a name away that is not noted.
    fn remove_below(&mut self, hash: u64, name: &[u8]) -> Option<Entry> {
        let entry = self.root.get(hash, name)?;
        if self.root.is_held_by_others() {
            let entry = entry.clone();
            self.note(Recent { hash, name: Name::trusted(name), entry: None });
            return Some(entry);
        }
        self.root.remove(hash, 0, name)
    }

    /// Notes what stands under a name that is not noted yet. If there is no
    /// room, all that is noted goes into the trie first, which is our own from
    /// then on.
    fn note(&mut self, recent: Recent) -> &mut Recent {
        if self.recent.len() >= RECENT_MAX {
            for Recent { hash, name, entry } in self.recent.drain(..) {
                match entry {
                    Some(entry) => drop(self.root.insert(hash, 0, name, entry)),
                    None => drop(self.root.remove(hash, 0, name.bytes())),
                }
            }
        }
        self.recent.push(recent);
        self.recent.last_mut().expect("pushed above")
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        let below = Iter { open: vec![self.root.slots.iter()] };
        let below = below.filter(|(name, _)| !self.is_noted(name));
        let noted = self.recent.iter();
        below.chain(noted.filter_map(|recent| Some((&recent.name, recent.entry.as_ref()?))))
    }

    fn is_noted(&self, name: &Name) -> bool {
        self.recent.iter().any(|recent| recent.name == *name)
    }

    /// All of them, in the order of their names.
    pub(crate) fn sorted(&self) -> Vec<(&Name, &Entry)> {
        let mut all = Vec::with_capacity(self.len);
        all.extend(self.iter());
        all.sort_unstable_by(|a, b| a.0.cmp(b.0));
        all
    }

    /// From a hash on, in the order of hashes.
    pub(crate) fn from(&self, start: u64) -> impl Iterator<Item = (u64, &Name, &Entry)> {
        let below = self.root.from(start).filter(|(_, name, _)| !self.is_noted(name));
        let noted = self.recent.iter().filter(|recent| recent.hash >= start);
        let noted = noted.filter_map(|it| Some((it.hash, &it.name, it.entry.as_ref()?)));
        let mut noted: Vec<_> = noted.collect();
        noted.sort_unstable_by_key(|(hash, ..)| std::cmp::Reverse(*hash));
        let mut below = below.peekable();
        std::iter::from_fn(move || match (below.peek(), noted.last()) {
            (Some(one), Some(other)) if other.0 < one.0 => noted.pop(),
            (None, Some(_)) => noted.pop(),
            _ => below.next(),
        })
    }

    /// Whether both are the same value in memory, as far as one look tells.
    pub(crate) fn is(&self, other: &Map) -> bool {
        self.root.is(&other.root) && self.recent.is_empty() && other.recent.is_empty()
    }

    /// The names under which both differ. What both hold in the same memory
    /// is not looked at.
    pub(crate) fn diff<'a>(&'a self, other: &'a Map) -> Vec<Difference<'a>> {
        let mut out = Vec::new();
        diff_nodes(&self.root, &other.root, 0, &mut out);
        out.retain(|(name, ..)| !self.is_noted(name) && !other.is_noted(name));
        let ours = self.recent.iter();
        let theirs = other.recent.iter().filter(|recent| !self.is_noted(&recent.name));
        for Recent { hash, name, .. } in ours.chain(theirs) {
            let (old, new) = (self.find(*hash, name.bytes()), other.find(*hash, name.bytes()));
            diff_one(name, old, new, &mut out);
        }
        out
    }
}

fn diff_one<'a>(
    name: &'a Name,
    old: Option<&'a Entry>,
    new: Option<&'a Entry>,
    out: &mut Vec<Difference<'a>>,
) {
    let same = match (old, new) {
        (Some(old), Some(new)) => old.is(new),
        (old, new) => old.is_none() && new.is_none(),
    };
    if !same {
        out.push((name, old, new));
    }
}

fn diff_nodes<'a>(old: &'a Node, new: &'a Node, shift: u32, out: &mut Vec<Difference<'a>>) {
    if old.is(new) {
        return;
    }
    if shift >= HASH_BITS {
        return diff_all(old.slots.iter(), new.slots.iter(), out);
    }
    let mut bits = old.bits | new.bits;
    while bits != 0 {
        let bit = bits & bits.wrapping_neg();
        bits ^= bit;
        match (old.slot(bit), new.slot(bit)) {
            (Some(Slot::Below(old)), Some(Slot::Below(new))) => {
                diff_nodes(old, new, shift + LEVEL_BITS, out);
            }
            (Some(Slot::Entry(name, old)), Some(Slot::Entry(other, new))) if name == other => {
                diff_one(name, Some(old), Some(new), out);
            }
            (old, new) => diff_all(old.into_iter(), new.into_iter(), out),
        }
    }
}

/// Name by name, where the two have different shapes: there are few.
fn diff_all<'a>(
    old: impl Iterator<Item = &'a Slot>,
    new: impl Iterator<Item = &'a Slot>,
    out: &mut Vec<Difference<'a>>,
) {
    let all = |slots: Vec<&'a Slot>| slots.into_iter().flat_map(Iter::of);
    let mut new: Vec<(&Name, &Entry)> = all(new.collect()).collect();
    for (name, before) in all(old.collect()) {
        match new.iter().position(|(other, _)| *other == name) {
            Some(at) => {
                let (_, after) = new.swap_remove(at);
                diff_one(name, Some(before), Some(after), out);
            }
            None => out.push((name, Some(before), None)),
        }
    }
    out.extend(new.into_iter().map(|(name, after)| (name, None, Some(after))));
}

/// Entries below some nodes.
struct Iter<'a> {
    open: Vec<std::slice::Iter<'a, Slot>>,
}

impl<'a> Iter<'a> {
    fn of(slot: &'a Slot) -> Iter<'a> {
        Iter { open: vec![std::slice::from_ref(slot).iter()] }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a Name, &'a Entry);

    fn next(&mut self) -> Option<(&'a Name, &'a Entry)> {
        while let Some(top) = self.open.last_mut() {
            match top.next() {
                Some(Slot::Entry(name, entry)) => return Some((name, entry)),
                Some(Slot::Below(node)) => self.open.push(node.slots.iter()),
                Some(Slot::Moved) => {}
                None => drop(self.open.pop()),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn number(map: &Map, name: &str) -> Option<u64> {
        match map.get(name.as_bytes()) {
            Some(Entry::Shared(number)) => Some(*number),
            _ => None,
        }
    }

    #[test]
    fn random_histories_agree_with_a_plain_map() {
        let mut seed = 11u64;
        let mut dice = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for round in 0..60 {
            let names = 1 + dice(400);
            let (mut map, mut plain) = (Map::default(), BTreeMap::new());
            let mut sealed = Vec::new();
            for step in 0..600 {
                let name = format!("file-{:05}", dice(names));
                match dice(3) {
                    0 => {
                        let gone = map.remove(name.as_bytes()).is_some();
                        assert_eq!(gone, plain.remove(&name).is_some());
                    }
                    _ => {
                        map.insert(Name::trusted(name.as_bytes()), Entry::Shared(step));
                        plain.insert(name, step);
                    }
                }
                assert_eq!((map.len(), map.is_empty()), (plain.len(), plain.is_empty()));
                if step % 100 == 0 {
                    sealed.push((map.clone(), plain.clone()));
                }
            }
            let hashes: Vec<u64> = map.from(0).map(|(hash, ..)| hash).collect();
            assert!(hashes.is_sorted() && hashes.len() == map.len());
            for start in hashes.iter().flat_map(|hash| [hash.wrapping_sub(1), *hash, hash + 1]) {
                let after = hashes.iter().filter(|hash| **hash >= start).count();
                assert_eq!(map.from(start).count(), after, "round {round}: from {start:x}");
            }
            let listed: Vec<String> = map.sorted().iter().map(|(n, _)| n.to_string()).collect();
            assert_eq!(listed, plain.keys().cloned().collect::<Vec<_>>(), "round {round}");
            for (old, before) in &sealed {
                before.iter().for_each(|(name, n)| assert_eq!(number(old, name), Some(*n)));
                let told: BTreeMap<String, (bool, bool)> = old
                    .diff(&map)
                    .into_iter()
                    .map(|(name, a, b)| (name.to_string(), (a.is_some(), b.is_some())))
                    .collect();
                let all = before.keys().chain(plain.keys());
                let expect = all.filter(|name| before.get(*name) != plain.get(*name)).map(|name| {
                    (name.clone(), (before.contains_key(name), plain.contains_key(name)))
                });
                assert_eq!(told, expect.collect(), "round {round}");
            }
        }
    }

    fn put(map: &mut Map, at: u64) -> bool {
        map.insert(Name::trusted(format!("file-{at:05}").as_bytes()), Entry::Shared(at + 1000))
    }

    fn fill(map: &mut Map, numbers: std::ops::Range<u64>) {
        for at in numbers {
            put(map, at);
        }
    }

    #[test]
    fn a_few_writes_beside_a_shared_trie_copy_no_node_of_it() {
        let mut base = Map::default();
        fill(&mut base, 0..100);
        let mut fork = base.clone();
        assert!(put(&mut fork, 1) && !put(&mut fork, 200) && !put(&mut fork, 201));
        assert!(fork.remove(b"file-00002").is_some() && fork.remove(b"file-00002").is_none());
        assert!(fork.remove(b"file-00200").is_some() && fork.remove(b"file-00200").is_none());
        assert!(fork.get_mut(b"file-00002").is_none() && fork.get_mut(b"file-00003").is_some());
        assert!(fork.root.is(&base.root) && !fork.is(&base));
        assert_eq!((base.len(), fork.len(), fork.iter().count()), (100, 100, 100));
        // One was only borrowed and one put back as it was: no differences.
        let mut told: Vec<String> = base.diff(&fork).iter().map(|it| it.0.to_string()).collect();
        told.sort();
        assert_eq!(told, ["file-00002", "file-00201"]);
        fill(&mut fork, 300..310);
        assert!(!fork.root.is(&base.root) && fork.recent.len() < RECENT_MAX);
        assert_eq!((fork.len(), fork.sorted().len(), fork.from(0).count()), (110, 110, 110));
        assert_eq!((number(&fork, "file-00305"), number(&base, "file-00305")), (Some(1305), None));
    }

    #[test]
    fn a_map_that_nobody_else_holds_notes_nothing() {
        let mut map = Map::default();
        fill(&mut map, 0..100);
        drop(map.clone());
        (0..50).for_each(|at| drop(map.remove(format!("file-{at:05}").as_bytes())));
        assert!(map.recent.is_empty() && map.len() == 50);
    }

    #[test]
    fn names_whose_hashes_agree_lie_side_by_side() {
        let slot =
            |name: &str, number| Slot::Entry(Name::trusted(name.as_bytes()), Entry::Shared(number));
        let same = 0xdead_beef_dead_beef;
        let mut node = Node::of_two(0, (same, slot("a", 1)), (same, slot("b", 2)));
        let name = |text: &str| Name::trusted(text.as_bytes());
        assert!(node.insert(same, 0, name("c"), Entry::Shared(3)));
        assert!(!node.insert(same, 0, name("a"), Entry::Shared(4)));
        let (before, mut edited) = (node.clone(), node.clone());
        assert!(matches!(edited.get_mut(same, 0, b"a"), Some(Entry::Shared(4))));
        assert!(matches!(edited.remove(same, 0, b"b"), Some(Entry::Shared(2))));
        let mut out = Vec::new();
        diff_nodes(&before, &edited, 0, &mut out);
        assert_eq!(out.len(), 1);
        assert!(matches!(edited.remove(same, 0, b"c"), Some(Entry::Shared(3))));
        // The last of them moved all the way up.
        assert!(matches!(edited.slots[..], [Slot::Entry(..)]));
        assert_eq!(size_of::<Slot>(), 40);
    }
}
