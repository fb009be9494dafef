//! Where entries come from, and what waits there until it is asked for.
//!
//! A [`Source`] lists directories and reads files. The tree holds what it has
//! not asked for yet as lazy entries; it never calls a source itself but says
//! what is missing ([`Miss`]), so that no lock is held while a source works
//! and a provider may read the view it serves.

use crate::content::Content;
use crate::entry::{Dir, Entries, Entry, File, Link, Meta, number};
use crate::error::{Fault, Kind};
use crate::map::Map;
use crate::name::Name;
use crate::view::Vfs;
use bytes::Bytes;
use fractal_model::SandboxPath;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The most names a source may give one directory.
pub const LISTING_ENTRIES_MAX: usize = 2_000_000;

/// Who asks a source, and for what.
pub struct Ask<'a> {
    /// The view that is read; it may be read by the source as well.
    pub view: &'a Vfs,
    /// Where the entry stands in the view.
    pub path: &'a SandboxPath,
    /// The name the view goes by, for providers that answer differently.
    pub who: &'a str,
    /// What the entry looked like when it was listed; a frozen source refuses
    /// to give anything else.
    pub stamp: Option<Stamp>,
}

/// What a source's entry looked like when it was listed; two stamps of an
/// entry that did not change are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(pub u128);

/// One name that a source lists.
#[derive(Clone, Debug)]
pub struct Item {
    /// The name: one component, checked when it is put into the tree.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: ItemKind,
    /// Permission bits, if the source knows.
    pub mode: Option<u32>,
    /// Owner and group, if the source knows.
    pub owner: Option<(u32, u32)>,
    /// Nanoseconds since 1970, if the source knows.
    pub modified_ns: Option<i64>,
    /// For sources that can tell whether it changed.
    pub stamp: Option<Stamp>,
}

/// What a listed name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A directory.
    Dir,
    /// A file, with its size if the source knows without making it.
    File(Option<u64>),
    /// A symlink and where it leads.
    Link(Vec<u8>),
}

impl Item {
    /// A directory of which only the name is known.
    pub fn dir(name: impl Into<Vec<u8>>) -> Item {
        Item::new(name, ItemKind::Dir)
    }

    /// A file of which only the name is known.
    pub fn file(name: impl Into<Vec<u8>>) -> Item {
        Item::new(name, ItemKind::File(None))
    }

    /// A symlink.
    pub fn link(name: impl Into<Vec<u8>>, target: impl Into<Vec<u8>>) -> Item {
        Item::new(name, ItemKind::Link(target.into()))
    }

    /// Anything of which nothing else is known.
    pub fn new(name: impl Into<Vec<u8>>, kind: ItemKind) -> Item {
        Item { name: name.into(), kind, mode: None, owner: None, modified_ns: None, stamp: None }
    }
}

/// Where entries come from. Two methods are enough; the others make it
/// cheaper or writable. Paths are those below the place it is mounted at.
pub trait Source: Send + Sync {
    /// One word for people: `host`, `git`, `provider` …
    fn kind(&self) -> &str;

    /// What it stands for, in a line: a directory, a commit, a command.
    fn describe(&self) -> String {
        String::new()
    }

    /// The names in a directory.
    fn list(&self, at: &SandboxPath, ask: &Ask) -> Result<Vec<Item>, Fault>;

    /// The whole content of a file.
    fn read(&self, at: &SandboxPath, ask: &Ask) -> Result<Bytes, Fault>;

    /// One entry, for sources that can say without listing. `Ok(None)` for
    /// "ask `list`"; the root always counts as a directory.
    fn stat(&self, _at: &SandboxPath, _ask: &Ask) -> Result<Option<Item>, Fault> {
        Ok(None)
    }

    /// A part of a file, for sources that need not make all of it. `Ok(None)`
    /// for "ask `read`".
    fn read_range(
        &self,
        _at: &SandboxPath,
        _range: Range<u64>,
        _ask: &Ask,
    ) -> Result<Option<Bytes>, Fault> {
        Ok(None)
    }

    /// These will be asked for soon.
    fn prefetch(&self, _paths: &[SandboxPath]) {}

    /// Puts a file's content where it comes from; only ever called for a
    /// mount that was made for writing back.
    fn write(&self, _at: &SandboxPath, _content: Bytes, _ask: &Ask) -> Result<(), Fault> {
        Err(Fault::new(Kind::ReadOnly))
    }

    /// Removes a file where it comes from; as with `write`.
    fn remove(&self, _at: &SandboxPath, _ask: &Ask) -> Result<(), Fault> {
        Err(Fault::new(Kind::ReadOnly))
    }
}

/// How long an answer of a source holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// For ever: asked once, then part of the tree, and may be written over
    /// in the view.
    Frozen,
    /// So long; zero asks for every single access. Cannot be written over.
    Live(Duration),
}

/// A directory that its source was not asked for, or is asked again and again.
pub(crate) struct LazyDir {
    pub(crate) origin: Origin,
    frozen: OnceLock<Map>,
    live: Mutex<Option<(Instant, Arc<Map>)>>,
}

/// A file's content at its source.
pub(crate) struct LazyFile {
    pub(crate) origin: Origin,
    size: OnceLock<u64>,
    frozen: OnceLock<Bytes>,
    live: Mutex<Option<(Instant, Bytes)>>,
}

#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) source: Arc<dyn Source>,
    /// Where in the source.
    pub(crate) at: SandboxPath,
    /// Where the source stands in the view.
    pub(crate) mounted: SandboxPath,
    pub(crate) freshness: Freshness,
    pub(crate) stamp: Option<Stamp>,
    /// Frozen content is kept in memory once read, unless the source is as
    /// quick as memory itself.
    pub(crate) meta: Meta,
}

/// What one operation was told by live sources; it sees the same answer for
/// the same question until it ends.
#[derive(Default)]
pub(crate) struct Answers {
    lists: Vec<(Arc<LazyDir>, Arc<Map>)>,
    contents: Vec<(Arc<LazyFile>, Bytes)>,
    /// How often a source was asked.
    pub(crate) asked: u32,
}

/// What the tree lacks to go on.
pub(crate) enum Miss {
    Dir(Arc<LazyDir>),
    Content(Arc<LazyFile>),
}

/// Why an operation on the tree did not finish.
pub(crate) enum Stop {
    Fault(Fault),
    Miss(Miss),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<Kind> for Stop {
    fn from(kind: Kind) -> Stop {
        Stop::Fault(Fault::new(kind))
    }
}

impl Answers {
    pub(crate) fn entries<'a>(&'a self, dir: &'a Dir) -> Result<&'a Map, Stop> {
        let lazy = match &dir.entries {
            Entries::Here(map) => return Ok(map),
            Entries::Lazy(lazy) => lazy,
        };
        if let Some(map) = lazy.frozen.get() {
            return Ok(map);
        }
        let known = self.lists.iter().find(|(of, _)| Arc::ptr_eq(of, lazy));
        known.map(|(_, map)| &**map).ok_or_else(|| Stop::Miss(Miss::Dir(lazy.clone())))
    }

    /// The content in memory, loaded if it was lazy.
    pub(crate) fn content(&self, content: &Content) -> Result<Content, Stop> {
        let lazy = match content {
            Content::Lazy(lazy) => lazy,
            loaded => return Ok(loaded.clone()),
        };
        if let Some(bytes) = lazy.frozen.get() {
            return Ok(Content::Whole(bytes.clone()));
        }
        let known = self.contents.iter().find(|(of, _)| Arc::ptr_eq(of, lazy));
        let bytes = known.map(|(_, bytes)| Content::Whole(bytes.clone()));
        bytes.ok_or_else(|| Stop::Miss(Miss::Content(lazy.clone())))
    }

    /// Asks the source for what was missing. No lock of the view is held.
    pub(crate) fn load(&mut self, miss: Miss, view: &Vfs, who: &str) -> Result<(), Fault> {
        self.asked += 1;
        match miss {
            Miss::Dir(lazy) => {
                let map = lazy.load(view, who)?;
                self.lists.push((lazy, map));
            }
            Miss::Content(lazy) => {
                let bytes = lazy.load(view, who)?;
                self.contents.push((lazy, bytes));
            }
        }
        Ok(())
    }
}

impl Origin {
    /// Calls the source with who asks and for what.
    fn ask<T>(
        &self,
        view: &Vfs,
        who: &str,
        call: impl FnOnce(&dyn Source, &Ask) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let path = self.at.moved(&SandboxPath::root(), &self.mounted);
        let path = path.unwrap_or_else(|| self.mounted.clone());
        call(&*self.source, &Ask { view, path: &path, who, stamp: self.stamp })
    }

    fn holds(&self, since: Instant) -> bool {
        matches!(self.freshness, Freshness::Live(age) if since.elapsed() < age)
    }
}

impl LazyDir {
    pub(crate) fn new(origin: Origin) -> LazyDir {
        LazyDir { origin, frozen: OnceLock::new(), live: Mutex::new(None) }
    }

    /// Whether its source is asked again and again.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.origin.freshness, Freshness::Live(_))
    }

    fn load(&self, view: &Vfs, who: &str) -> Result<Arc<Map>, Fault> {
        let cached = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((since, map)) = &cached
            && self.origin.holds(*since)
        {
            return Ok(map.clone());
        }
        let items = self.origin.ask(view, who, |source, ask| source.list(&self.origin.at, ask))?;
        let map = self.map(items, cached.as_ref().map(|(_, map)| &**map))?;
        if self.is_live() {
            let map = Arc::new(map);
            *self.live.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((Instant::now(), map.clone()));
            return Ok(map);
        }
        // Two that asked at once get the same answer: the first one's.
        Ok(Arc::new(self.frozen.get_or_init(|| map).clone()))
    }

    /// The entries of a listing. What was known before under the same name
    /// and looks the same stays the same entry, with what it has cached.
    fn map(&self, items: Vec<Item>, before: Option<&Map>) -> Result<Map, Fault> {
        if items.len() > LISTING_ENTRIES_MAX {
            let reason = format!("it lists more than {LISTING_ENTRIES_MAX} names");
            return Err(Fault::because(Kind::Source, reason));
        }
        let mut map = Map::default();
        for item in items {
            let name = Name::new(&item.name).map_err(|_| {
                let shown = String::from_utf8_lossy(&item.name);
                Fault::because(Kind::Source, format!("it lists the name {shown:?}"))
            })?;
            let known =
                before.and_then(|map| map.get(name.bytes())).filter(|entry| alike(entry, &item));
            let entry = known.cloned().map_or_else(|| self.entry(item), Ok)?;
            map.insert(name, entry);
        }
        Ok(map)
    }

    fn entry(&self, item: Item) -> Result<Entry, Fault> {
        let mut origin = self.origin.clone();
        origin.at = self.origin.at.join(&item.name).map_err(|_| Fault::new(Kind::NameTooLong))?;
        origin.stamp = item.stamp;
        let usual = match item.kind {
            ItemKind::Dir => 0o755,
            ItemKind::File(_) => 0o644,
            ItemKind::Link(_) => 0o777,
        };
        let (uid, gid) = item.owner.unwrap_or((origin.meta.uid, origin.meta.gid));
        let modified_ns = item.modified_ns.unwrap_or(origin.meta.modified_ns);
        let mode = item.mode.unwrap_or(usual) & 0o7777;
        let meta = Meta { mode, uid, gid, modified_ns, changed_ns: modified_ns };
        Ok(match item.kind {
            ItemKind::Dir => {
                let entries = Entries::Lazy(Arc::new(LazyDir::new(origin)));
                Entry::Dir(Arc::new(Dir::new(meta, entries)))
            }
            ItemKind::File(size) => {
                let lazy = LazyFile::new(origin, size);
                Entry::File(Arc::new(File::new(meta, Content::Lazy(Arc::new(lazy)))))
            }
            ItemKind::Link(target) => {
                Entry::Link(Arc::new(Link { inode: number(), meta, target: target.into() }))
            }
        })
    }
}

/// Whether a source's new answer still describes the entry.
fn alike(entry: &Entry, item: &Item) -> bool {
    match (entry, &item.kind) {
        (Entry::Dir(_), ItemKind::Dir) => true,
        (Entry::Link(link), ItemKind::Link(target)) => *link.target == **target,
        (Entry::File(file), ItemKind::File(size)) => match &file.content {
            Content::Lazy(lazy) => {
                lazy.origin.stamp == item.stamp && (size.is_none() || lazy.size() == *size)
            }
            _ => false,
        },
        _ => false,
    }
}

impl LazyFile {
    pub(crate) fn new(origin: Origin, size: Option<u64>) -> LazyFile {
        let known = OnceLock::new();
        if let Some(size) = size {
            known.get_or_init(|| size);
        }
        LazyFile { origin, size: known, frozen: OnceLock::new(), live: Mutex::new(None) }
    }

    /// The size, if known. Live content that nobody sized has none for long.
    pub(crate) fn size(&self) -> Option<u64> {
        if let Some(size) = self.size.get() {
            return Some(*size);
        }
        self.frozen.get().map(|bytes| bytes.len() as u64)
    }

    pub(crate) fn load(&self, view: &Vfs, who: &str) -> Result<Bytes, Fault> {
        if let Some(bytes) = self.frozen.get() {
            return Ok(bytes.clone());
        }
        let cached = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((since, bytes)) = cached
            && self.origin.holds(since)
        {
            return Ok(bytes);
        }
        let bytes = self.origin.ask(view, who, |source, ask| source.read(&self.origin.at, ask))?;
        match self.origin.freshness {
            Freshness::Frozen => Ok(self.frozen.get_or_init(|| bytes).clone()),
            Freshness::Live(_) => {
                *self.live.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some((Instant::now(), bytes.clone()));
                Ok(bytes)
            }
        }
    }

    /// A part, without loading all of it where the source can do that.
    pub(crate) fn range(&self, range: Range<u64>, view: &Vfs, who: &str) -> Result<Bytes, Fault> {
        if self.frozen.get().is_none() {
            let part = self.origin.ask(view, who, |source, ask| {
                source.read_range(&self.origin.at, range.clone(), ask)
            })?;
            if let Some(bytes) = part {
                return Ok(bytes);
            }
        }
        Ok(Content::Whole(self.load(view, who)?).range(range))
    }
}
