//! What stands at a path: file, directory or symlink, as immutable values.
//!
//! Entries are shared between forks and changed by replacing them; whoever
//! holds one holds it as it was. Nothing here asks a source.

use crate::content::Content;
use crate::map::Map;
use crate::source::LazyDir;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Extended attributes; few entries have any.
pub(crate) type Xattrs = Option<Arc<BTreeMap<Box<[u8]>, Box<[u8]>>>>;

/// Permission bits, owner and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits with set-uid, set-gid and sticky: twelve bits.
    pub mode: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// When the content was written, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// When anything about it changed.
    pub changed_ns: i64,
}

#[derive(Clone)]
pub(crate) enum Entry {
    Dir(Arc<Dir>),
    File(Arc<File>),
    Link(Arc<Link>),
    /// A file with several names: it stands in the tree's table.
    Shared(u64),
}

#[derive(Clone)]
pub(crate) struct File {
    pub(crate) inode: u64,
    /// Another number after every write, unique in this process, for
    /// compare-and-swap.
    pub(crate) version: u64,
    pub(crate) names: u32,
    pub(crate) meta: Meta,
    pub(crate) xattrs: Xattrs,
    pub(crate) content: Content,
}

/// A file in the tree's table of those with several names.
#[derive(Clone)]
pub(crate) struct SharedFile(pub(crate) Arc<File>);

/// Being the same value, as with [`Entry`].
impl PartialEq for SharedFile {
    fn eq(&self, other: &SharedFile) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) inode: u64,
    pub(crate) meta: Meta,
    pub(crate) target: Box<[u8]>,
}

#[derive(Clone)]
pub(crate) struct Dir {
    pub(crate) inode: u64,
    pub(crate) meta: Meta,
    pub(crate) xattrs: Xattrs,
    pub(crate) entries: Entries,
    /// All that is loaded below, kept right by every edit on its way down.
    pub(crate) weight: Weight,
    /// At least how many levels of directories there are below.
    pub(crate) depth: u32,
}

#[derive(Clone)]
pub(crate) enum Entries {
    Here(Map),
    /// Still at its source, or always asked for there.
    Lazy(Arc<LazyDir>),
}

/// What a subtree takes from the sandbox's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Files, directories and links.
    pub entries: u64,
    /// Bytes of content in memory.
    pub bytes: u64,
    /// Names of files that have several.
    pub(crate) shared: u64,
}

impl Weight {
    pub(crate) fn minus(self, other: Weight) -> Delta {
        Delta {
            entries: self.entries as i64 - other.entries as i64,
            bytes: self.bytes as i64 - other.bytes as i64,
            shared: self.shared as i64 - other.shared as i64,
        }
    }

    pub(crate) fn add(&mut self, delta: Delta) {
        self.entries = self.entries.saturating_add_signed(delta.entries);
        self.bytes = self.bytes.saturating_add_signed(delta.bytes);
        self.shared = self.shared.saturating_add_signed(delta.shared);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) entries: i64,
    pub(crate) bytes: i64,
    pub(crate) shared: i64,
}

/// From 2 on: 1 is what FUSE calls the root of every filesystem.
static NUMBERS: AtomicU64 = AtomicU64::new(2);

/// A number that nobody else in this process has: inodes and versions.
pub(crate) fn number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

impl Entry {
    pub(crate) fn inode(&self) -> u64 {
        match self {
            Entry::Dir(dir) => dir.inode,
            Entry::File(file) => file.inode,
            Entry::Link(link) => link.inode,
            Entry::Shared(inode) => *inode,
        }
    }

    pub(crate) fn weight(&self) -> Weight {
        match self {
            Entry::Dir(dir) => Weight { entries: dir.weight.entries + 1, ..dir.weight },
            Entry::File(file) => Weight { entries: 1, bytes: file.content.held(), shared: 0 },
            Entry::Link(link) => Weight { entries: 1, bytes: link.target.len() as u64, shared: 0 },
            // Its bytes are counted once, in the tree's table.
            Entry::Shared(_) => Weight { entries: 1, bytes: 0, shared: 1 },
        }
    }

    /// Whether both are the very same value in memory.
    pub(crate) fn is(&self, other: &Entry) -> bool {
        match (self, other) {
            (Entry::Dir(a), Entry::Dir(b)) => Arc::ptr_eq(a, b),
            (Entry::File(a), Entry::File(b)) => Arc::ptr_eq(a, b),
            (Entry::Link(a), Entry::Link(b)) => Arc::ptr_eq(a, b),
            (Entry::Shared(a), Entry::Shared(b)) => a == b,
            _ => false,
        }
    }
}

/// Being the same value, for the comparison of maps: what differs in memory
/// is looked at closely afterwards.
impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.is(other)
    }
}

impl Dir {
    pub(crate) fn new(meta: Meta, entries: Entries) -> Dir {
        Dir { inode: number(), meta, xattrs: None, entries, weight: Weight::default(), depth: 0 }
    }

    pub(crate) fn empty(meta: Meta) -> Dir {
        Dir::new(meta, Entries::Here(Map::default()))
    }
}

impl File {
    pub(crate) fn new(meta: Meta, content: Content) -> File {
        File { inode: number(), version: number(), names: 1, meta, xattrs: None, content }
    }
}
