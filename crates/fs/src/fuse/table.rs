//! What the kernel knows: which inodes it holds, and by which names.
//!
//! The kernel speaks of inodes, a view of paths. Every inode that the kernel
//! was told of stands here with the names it was told, until the kernel
//! forgets it. A path made from this table may be out of date by the time it
//! is used, so it is only ever used with the inode it must lead to.

use crate::Name;
use crate::error::Kind;
use crate::read::Stat;
use fractal_model::EntryKind;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What FUSE calls the root.
pub(crate) const ROOT: u64 = 1;

/// For how many names the kernel may know that they are not there. Past that
/// it is told so without being allowed to remember.
const MISSING_MAX: usize = 65_536;

/// A directory and a name in it.
pub(crate) type Place = (u64, Name);

pub(crate) struct Table {
    nodes: Mutex<Nodes>,
    /// How many moves and removals there were, and how many are under way:
    /// an inode that is not where its path says may be found again.
    moved: AtomicU64,
    moving: AtomicU64,
}

/// The path of the directory that is shown, without a slash at its end: empty
/// for the view's own root.
pub(crate) type Top = Box<[u8]>;

struct Nodes {
    top: Top,
    all: HashMap<u64, Node>,
    /// How many names all nodes together know to be missing.
    missing: usize,
}

struct Node {
    /// How often the kernel was told of it and has not forgotten yet.
    lookups: u64,
    names: SmallVec<[Place; 1]>,
    told: Told,
    state: Life,
    /// Names in this directory that the kernel knows not to be there.
    missing: BTreeSet<Name>,
}

/// Whether an inode still has a name in the view.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Life {
    Named,
    /// A file without a name, which lives in the attic while it is open.
    Attic,
    /// A directory or link without a name: what was known last.
    Ended(Box<Stat>),
}

/// What of an entry the kernel was told last; it is told again if another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    version: u64,
    changed_ns: i64,
    names: u32,
}

impl Told {
    pub(crate) fn of(stat: &Stat) -> Told {
        Told { version: stat.version, changed_ns: stat.meta.changed_ns, names: stat.names }
    }
}

/// Where an inode can be found.
pub(crate) enum Where {
    /// At one of these paths, each with its inode given; none for one whose
    /// names are all unknown.
    Named(SmallVec<[Vec<u8>; 1]>),
    Attic,
    Ended(Box<Stat>),
}

/// One inode as the kernel knows it, for a look at what changed.
pub(crate) struct Known {
    pub(crate) inode: u64,
    pub(crate) told: Told,
    /// Where, and the path that this is.
    pub(crate) names: Vec<(Place, Vec<u8>)>,
    /// The same for names that are not there.
    pub(crate) missing: Vec<(Place, Vec<u8>)>,
}

/// A move or removal under way.
pub(crate) struct Moving<'a>(&'a Table);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.moved.fetch_add(1, Ordering::SeqCst);
        self.0.moving.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Table {
    /// The kernel knows the root from the start and never forgets it.
    pub(crate) fn new(top: Top) -> Table {
        let root = Node::new(Told { version: 0, changed_ns: 0, names: 1 });
        let nodes = Nodes { top, all: HashMap::from_iter([(ROOT, root)]), missing: 0 };
        Table { nodes: Mutex::new(nodes), moved: AtomicU64::new(0), moving: AtomicU64::new(0) }
    }

    /// What of a path the mount shows: what follows the directory at its top.
    pub(crate) fn shown(&self, path: &[u8]) -> Option<Vec<u8>> {
        let rest = path.strip_prefix(&*self.nodes().top)?;
        rest.starts_with(b"/").then(|| rest.to_vec())
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a move or removal until the guard is dropped.
    pub(crate) fn moving(&self) -> Moving<'_> {
        self.moving.fetch_add(1, Ordering::SeqCst);
        Moving(self)
    }

    /// A number that is another one after every move, and whether one is
    /// under way.
    pub(crate) fn moves(&self) -> (u64, bool) {
        (self.moved.load(Ordering::SeqCst), self.moving.load(Ordering::SeqCst) > 0)
    }

    /// The kernel is about to be told of an entry.
    pub(crate) fn tell(&self, stat: &Stat, place: Place) {
        let mut nodes = self.nodes();
        nodes.present(&place);
        let told = Told::of(stat);
        let node = nodes.all.entry(stat.inode).or_insert_with(|| Node::new(told));
        node.lookups += 1;
        node.told = told;
        node.state = Life::Named;
        if !node.names.contains(&place) {
            match stat.kind {
                // A directory has one name; what was known is out of date.
                EntryKind::Directory => node.names = SmallVec::from_iter([place]),
                _ => node.names.push(place),
            }
        }
    }

    /// The kernel was told again how an entry is.
    pub(crate) fn told(&self, inode: u64, stat: &Stat) {
        if let Some(node) = self.nodes().all.get_mut(&inode) {
            node.told = Told::of(stat);
        }
    }

    /// The kernel is about to be told that there is no such name. Whether it
    /// may remember.
    pub(crate) fn tell_missing(&self, (dir, name): Place) -> bool {
        let mut nodes = self.nodes();
        let room = nodes.missing < MISSING_MAX;
        let Some(node) = nodes.all.get_mut(&dir).filter(|_| room) else { return false };
        if node.missing.insert(name) {
            nodes.missing += 1;
        }
        true
    }

    /// The kernel knows by itself that a name is there, because it made it.
    pub(crate) fn present(&self, place: &Place) {
        self.nodes().present(place);
    }

    /// The kernel has forgotten an inode so many times. Whether it is to be
    /// taken from the attic.
    pub(crate) fn forget(&self, inode: u64, times: u64) -> bool {
        let mut nodes = self.nodes();
        let Some(node) = nodes.all.get_mut(&inode) else { return false };
        node.lookups = node.lookups.saturating_sub(times);
        if node.lookups > 0 || inode == ROOT {
            return false;
        }
        let node = nodes.all.remove(&inode).expect("it was there above");
        nodes.missing -= node.missing.len();
        node.state == Life::Attic
    }

    /// An entry has another name now.
    pub(crate) fn renamed(&self, inode: u64, from: &Place, to: Place) {
        let mut nodes = self.nodes();
        nodes.present(&to);
        if let Some(node) = nodes.all.get_mut(&inode) {
            node.names.retain(|name| name != from && *name != to);
            node.names.push(to);
        }
    }

    /// Two entries have changed places; the inodes are those now there.
    pub(crate) fn exchanged(&self, [one, two]: [(u64, Place); 2]) {
        let mut nodes = self.nodes();
        for ((inode, now), before) in [(&one, &two.1), (&two, &one.1)] {
            if let Some(node) = nodes.all.get_mut(inode) {
                node.names.retain(|name| name != before);
                node.names.push(now.clone());
            }
        }
    }

    /// A name is gone.
    pub(crate) fn unnamed(&self, inode: u64, place: &Place) {
        if let Some(node) = self.nodes().all.get_mut(&inode) {
            node.names.retain(|name| name != place);
        }
    }

    /// An entry has no name any more. Whether the kernel still knows it.
    pub(crate) fn ended(&self, inode: u64, last: Option<Stat>) -> bool {
        let mut nodes = self.nodes();
        let Some(node) = nodes.all.get_mut(&inode) else { return false };
        node.names.clear();
        node.state = match last {
            Some(stat) => Life::Ended(Box::new(stat)),
            None => Life::Attic,
        };
        true
    }

    /// Where an inode can be found.
    pub(crate) fn find(&self, inode: u64) -> Result<Where, Kind> {
        let nodes = self.nodes();
        if inode == ROOT {
            let top = if nodes.top.is_empty() { b"/" } else { &*nodes.top };
            return Ok(Where::Named(SmallVec::from_iter([top.to_vec()])));
        }
        let node = nodes.all.get(&inode).ok_or(Kind::Changed)?;
        Ok(match &node.state {
            Life::Attic => Where::Attic,
            Life::Ended(stat) => Where::Ended(stat.clone()),
            Life::Named => {
                Where::Named(node.names.iter().filter_map(|place| nodes.path(place)).collect())
            }
        })
    }

    /// Another name of an inode was found.
    pub(crate) fn found(&self, inode: u64, place: Place) {
        if let Some(node) = self.nodes().all.get_mut(&inode)
            && !node.names.contains(&place)
        {
            node.names.push(place);
        }
    }

    /// Everything the kernel knows and could be wrong about.
    pub(crate) fn known(&self) -> Vec<Known> {
        let nodes = self.nodes();
        let with_path = |place: &Place| Some((place.clone(), nodes.path(place)?));
        let named = nodes.all.iter().filter(|(_, node)| node.state == Life::Named);
        let known = named.map(|(inode, node)| Known {
            inode: *inode,
            told: node.told,
            names: node.names.iter().filter_map(with_path).collect(),
            missing: node
                .missing
                .iter()
                .filter_map(|name| with_path(&(*inode, name.clone())))
                .collect(),
        });
        known.collect()
    }

    #[cfg(test)]
    fn len(&self) -> (usize, usize) {
        let nodes = self.nodes();
        (nodes.all.len(), nodes.missing)
    }
}

impl Node {
    fn new(told: Told) -> Node {
        Node {
            lookups: 0,
            names: SmallVec::new(),
            told,
            state: Life::Named,
            missing: BTreeSet::new(),
        }
    }
}

impl Nodes {
    fn present(&mut self, (dir, name): &Place) {
        if let Some(node) = self.all.get_mut(dir)
            && node.missing.remove(name)
        {
            self.missing -= 1;
        }
    }

    /// The path of a place, if all directories above it are known.
    fn path(&self, place: &Place) -> Option<Vec<u8>> {
        let mut names = vec![place.1.bytes()];
        let mut dir = place.0;
        while dir != ROOT {
            let (above, name) = self.all.get(&dir)?.names.first()?;
            names.push(name.bytes());
            dir = *above;
            // Only a view that was changed from outside could have a loop.
            if names.len() > crate::DEPTH_MAX as usize + 1 {
                return None;
            }
        }
        let length: usize = names.iter().map(|name| name.len() + 1).sum();
        let mut path = Vec::with_capacity(self.top.len() + length);
        path.extend_from_slice(&self.top);
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Vfs;

    fn place(dir: u64, name: &str) -> Place {
        (dir, Name::trusted(name.as_bytes()))
    }

    fn paths(table: &Table, inode: u64) -> Vec<String> {
        match table.find(inode) {
            Ok(Where::Named(paths)) => {
                paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn it_is_as_large_as_what_the_kernel_knows() {
        let (vfs, table) = (Vfs::default(), Table::new(Top::default()));
        vfs.write_all("/d/f", "x").expect("a view takes it");
        let (dir, file) = (vfs.lstat("/d").expect("there"), vfs.lstat("/d/f").expect("there"));
        for _ in 0..3 {
            table.tell(&dir, place(ROOT, "d"));
            table.tell(&file, place(dir.inode, "f"));
        }
        assert!(table.tell_missing(place(dir.inode, "none")));
        assert!(table.tell_missing(place(ROOT, "none")));
        assert_eq!(table.len(), (3, 2));
        assert!(!table.forget(file.inode, 2));
        assert_eq!(paths(&table, file.inode), ["/d/f"]);
        assert!(!table.forget(file.inode, 1));
        table.forget(dir.inode, 3);
        table.forget(ROOT, 1000);
        assert_eq!(table.len(), (1, 1));
        table.present(&place(ROOT, "none"));
        assert_eq!(table.len(), (1, 0));
    }

    #[test]
    fn what_is_missing_is_remembered_up_to_a_limit() {
        let table = Table::new(Top::default());
        let many = (0..MISSING_MAX + 10)
            .map(|number| table.tell_missing(place(ROOT, &number.to_string())));
        assert_eq!(many.filter(|remembered| *remembered).count(), MISSING_MAX);
    }

    #[test]
    fn names_follow_moves_of_what_is_above_them() {
        let (vfs, table) = (Vfs::default(), Table::new(Top::default()));
        vfs.write_all("/a/b/f", "x").expect("a view takes it");
        let stat = |path: &str| vfs.lstat(path).expect("there");
        let (a, b, f) = (stat("/a"), stat("/a/b"), stat("/a/b/f"));
        table.tell(&a, place(ROOT, "a"));
        table.tell(&b, place(a.inode, "b"));
        table.tell(&f, place(b.inode, "f"));
        table.tell(&f, place(ROOT, "hard"));
        table.renamed(b.inode, &place(a.inode, "b"), place(ROOT, "c"));
        assert_eq!(paths(&table, f.inode), ["/c/f", "/hard"]);
        table.exchanged([(b.inode, place(ROOT, "a")), (a.inode, place(ROOT, "c"))]);
        assert_eq!(paths(&table, f.inode), ["/a/f", "/hard"]);
        table.unnamed(f.inode, &place(ROOT, "hard"));
        assert_eq!(paths(&table, f.inode), ["/a/f"]);
        assert!(table.ended(f.inode, None));
        assert!(table.forget(f.inode, 2));
    }
}
