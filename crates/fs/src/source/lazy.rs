//! What waits at its source until it is asked for.

use super::chain;
use super::{Ask, Freshness, Item, ItemKind, LISTING_ENTRIES_MAX, Source, Stamp};
use crate::content::Content;
use crate::entry::{Dir, Entries, Entry, File, Link, Meta, number};
use crate::error::{Fault, Kind};
use crate::map::Map;
use crate::name::Name;
use crate::view::Vfs;
use bytes::Bytes;
use fractal_model::SandboxPath;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// How many entries that it does not list a live directory remembers.
const UNLISTED_MAX: usize = 1000;

/// A directory that its source was not asked for, or is asked again and again.
pub(crate) struct LazyDir {
    pub(crate) origin: Origin,
    frozen: OnceLock<Map>,
    live: Mutex<Option<(Instant, Arc<Map>)>>,
    unlisted: Mutex<BTreeMap<Name, (Instant, Entry)>>,
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
    /// Owner of what the source tells no owner of, and the moment it was
    /// mounted.
    pub(crate) meta: Meta,
}

/// What one operation was told by live sources; it sees the same answer for
/// the same question until it ends.
#[derive(Default)]
pub(crate) struct Answers {
    lists: Vec<(Arc<LazyDir>, Arc<Map>)>,
    contents: Vec<(Arc<LazyFile>, Bytes)>,
    unlisted: Vec<(Arc<LazyDir>, Name, Option<Entry>)>,
    /// How often a source was asked.
    pub(crate) asked: u32,
}

/// What the tree lacks to go on.
pub(crate) enum Miss {
    Dir(Arc<LazyDir>),
    Content(Arc<LazyFile>),
    /// A name that a live directory may have without listing it.
    Unlisted(Arc<LazyDir>, Name),
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

    /// One entry of a directory, listed or not.
    pub(crate) fn entry<'a>(
        &'a self,
        dir: &'a Dir,
        name: &[u8],
    ) -> Result<Option<&'a Entry>, Stop> {
        let listed = self.entries(dir)?.get(name);
        match &dir.entries {
            Entries::Lazy(lazy) if listed.is_none() && lazy.has_unlisted() => {
                let known = self.unlisted.iter();
                let mut known =
                    known.filter(|(of, known, _)| Arc::ptr_eq(of, lazy) && known.bytes() == name);
                match known.next() {
                    Some((_, _, entry)) => Ok(entry.as_ref()),
                    None => Err(Stop::Miss(Miss::Unlisted(lazy.clone(), Name::new(name)?))),
                }
            }
            _ => Ok(listed),
        }
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

    /// The whole content in one piece, loaded if it was lazy.
    #[inline]
    pub(crate) fn bytes(&self, content: &Content) -> Result<Bytes, Stop> {
        match content {
            Content::Whole(bytes) => Ok(bytes.clone()),
            content => Ok(self.content(content)?.whole()?),
        }
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
            Miss::Unlisted(lazy, name) => {
                let entry = lazy.load_unlisted(&name, view, who)?;
                self.unlisted.push((lazy, name, entry));
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
        verb: chain::Verb,
        at: &SandboxPath,
        call: impl FnOnce(&dyn Source, &Ask) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let path = at.moved(&SandboxPath::root(), &self.mounted);
        let path = path.unwrap_or_else(|| self.mounted.clone());
        let frozen = self.freshness == Freshness::Frozen;
        let ask = Ask {
            view,
            path: &path,
            who,
            stamp: self.stamp.filter(|_| frozen),
            frozen_ns: frozen.then_some(self.meta.modified_ns),
        };
        let _link = chain::enter(&self.source, verb, at)?;
        call(&*self.source, &ask)
    }

    fn holds(&self, since: Instant) -> bool {
        matches!(self.freshness, Freshness::Live(age) if since.elapsed() < age)
    }
}

impl LazyDir {
    pub(crate) fn new(origin: Origin) -> LazyDir {
        LazyDir {
            origin,
            frozen: OnceLock::new(),
            live: Mutex::new(None),
            unlisted: Mutex::default(),
        }
    }

    /// Whether its source is asked again and again.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.origin.freshness, Freshness::Live(_))
    }

    fn has_unlisted(&self) -> bool {
        self.is_live() && self.origin.source.has_unlisted()
    }

    fn load_unlisted(&self, name: &Name, view: &Vfs, who: &str) -> Result<Option<Entry>, Fault> {
        let Ok(at) = self.origin.at.join(name.bytes()) else { return Ok(None) };
        let item = self.origin.ask(view, who, chain::Verb::Stat, &at, |source, ask| {
            let ask = Ask { stamp: None, ..*ask };
            source.stat(&at, &ask)
        })?;
        let Some(item) = item else { return Ok(None) };
        let item = Item { name: name.bytes().to_vec(), ..item };
        let mut known = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, entry)) = known.get(name)
            && alike(entry, &item)
        {
            return Ok(Some(entry.clone()));
        }
        let entry = self.entry(item)?;
        if known.len() >= UNLISTED_MAX {
            let oldest = known.iter().min_by_key(|(_, (since, _))| *since);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| known.remove(&name));
        }
        known.insert(name.clone(), (Instant::now(), entry.clone()));
        Ok(Some(entry))
    }

    fn load(&self, view: &Vfs, who: &str) -> Result<Arc<Map>, Fault> {
        let cached = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((since, map)) = &cached
            && self.origin.holds(*since)
        {
            return Ok(map.clone());
        }
        let at = &self.origin.at;
        let list = |source: &dyn Source, ask: &Ask| source.list(at, ask);
        let items = self.origin.ask(view, who, chain::Verb::List, at, list)?;
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
        let at = &self.origin.at;
        let read = |source: &dyn Source, ask: &Ask| source.read(at, ask);
        let bytes = self.origin.ask(view, who, chain::Verb::Read, at, read)?;
        match self.origin.freshness {
            Freshness::Frozen if self.origin.source.rereads() => Ok(bytes),
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
            let at = &self.origin.at;
            let part = |source: &dyn Source, ask: &Ask| source.read_range(at, range.clone(), ask);
            let part = self.origin.ask(view, who, chain::Verb::Read, at, part)?;
            if let Some(bytes) = part {
                return Ok(bytes);
            }
        }
        Ok(Content::Whole(self.load(view, who)?).range(range))
    }
}
