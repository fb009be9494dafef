//! Whole trees in and out of a view: host directories, tar, zip, JSON, and
//! our own format that keeps several trees with what they share.
//!
//! What comes in is built aside and put into the view in one step, at a path
//! where nothing is yet: an error changes nothing, and nothing is written
//! over. What goes out is a view that was forked first, so that it is of one
//! moment.

#[cfg(unix)]
mod dir;
mod json;
mod save;
#[cfg(feature = "archive")]
mod tar;
#[cfg(feature = "archive")]
mod unpack;
#[cfg(feature = "archive")]
mod zip;

pub use save::{LoadBounds, load, save};

use crate::about::NewMeta;
use crate::entry::{Dir, Entries, Entry};
use crate::error::{Fault, FsError, Kind, shown};
use crate::read::Stat;
use crate::rules::Need;
use crate::view::{Limits, Vfs, now_ns};
use crate::walk::{Last, Reached};
use crate::write::check_new;
use bytes::Bytes;
use fractal_model::{EntryKind, SandboxPath};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// How much of a file is moved at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// One entry on its way out.
struct Out {
    /// Below the directory that is exported; the root is that directory.
    path: SandboxPath,
    stat: Stat,
    kind: OutKind,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

enum OutKind {
    Dir,
    File,
    Link(Vec<u8>),
    /// Another name of a file that came before.
    Same(SandboxPath),
}

/// A view on its way out.
struct Leaving {
    view: Vfs,
    at: SandboxPath,
}

impl Leaving {
    fn new(view: &Vfs, at: &SandboxPath) -> Leaving {
        Leaving { view: view.fork(), at: at.clone() }
    }

    fn path(&self, below: &SandboxPath) -> Vec<u8> {
        let path = below.moved(&SandboxPath::root(), &self.at);
        shown(&path.unwrap_or_else(|| self.at.clone()))
    }

    /// Every entry, the ones that hold others first; names in their order.
    fn entries(&self) -> Result<Vec<Out>, FsError> {
        let root = SandboxPath::root();
        let stat = self.view.stat(self.path(&root))?;
        if stat.kind != EntryKind::Directory {
            return Err(Fault::new(Kind::NotADirectory).at(&self.path(&root)));
        }
        let (mut out, mut seen) = (Vec::new(), BTreeMap::new());
        let mut waiting = vec![(root, stat)];
        while let Some((path, stat)) = waiting.pop() {
            if stat.kind == EntryKind::Directory {
                let start = waiting.len();
                for (name, stat) in self.view.list_stat(self.path(&path))? {
                    let below = path.join(name.bytes()).map_err(|_| Fault::new(Kind::NameTooLong));
                    waiting.push((below.map_err(|fault| fault.at(&self.path(&path)))?, stat));
                }
                waiting[start..].reverse();
            }
            out.push(self.out(path, stat, &mut seen)?);
        }
        Ok(out)
    }

    fn out(
        &self,
        path: SandboxPath,
        stat: Stat,
        seen: &mut BTreeMap<u64, SandboxPath>,
    ) -> Result<Out, FsError> {
        let place = self.path(&path);
        let kind = match stat.kind {
            EntryKind::Directory => OutKind::Dir,
            EntryKind::Symlink => OutKind::Link(self.view.read_link(&place)?),
            _ => match seen.get(&stat.inode) {
                Some(first) => OutKind::Same(first.clone()),
                None => OutKind::File,
            },
        };
        if stat.names > 1 {
            seen.entry(stat.inode).or_insert_with(|| path.clone());
        }
        let mut xattrs = BTreeMap::new();
        for name in self.view.xattrs(&place)? {
            let value = self.view.xattr(&place, &name)?;
            xattrs.insert(name, value);
        }
        Ok(Out { path, stat, kind, xattrs })
    }

    /// Where a file has data.
    fn extents(&self, out: &Out) -> Result<Vec<Range<u64>>, FsError> {
        self.view.extents(self.path(&out.path))
    }

    /// The bytes of a range, piece by piece.
    fn pieces(
        &self,
        out: &Out,
        range: Range<u64>,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), FsError> {
        let path = self.path(&out.path);
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + CHUNK_BYTES);
            let bytes = self.view.read_range(&path, at..end)?;
            if bytes.is_empty() {
                let reason = "it became shorter while it was read";
                return Err(Fault::because(Kind::Changed, reason).at(&path));
            }
            take(at, &bytes).map_err(|fault| fault.at(&path))?;
            at += bytes.len() as u64;
        }
        Ok(())
    }
}

/// A tree in the making, on its way into a view.
struct Coming {
    view: Vfs,
    /// Times of directories are set last: making what they hold changes them.
    dirs: Vec<(Vec<u8>, NewMeta)>,
}

impl Coming {
    fn new(limits: Limits) -> Coming {
        Coming { view: Vfs::new(limits), dirs: Vec::new() }
    }

    fn dir(&mut self, path: &SandboxPath, meta: NewMeta) -> Result<(), FsError> {
        let path = shown(path);
        self.view.make_dir_all(&path)?;
        self.dirs.push((path, meta));
        Ok(())
    }

    fn file(&mut self, path: &SandboxPath, content: Bytes, meta: NewMeta) -> Result<(), FsError> {
        let path = shown(path);
        self.view.write_all(&path, content)?;
        self.view.set_meta(&path, meta)
    }

    /// A file with holes: so long, with these pieces in it.
    fn sparse(
        &mut self,
        path: &SandboxPath,
        size: u64,
        extents: Vec<Range<u64>>,
        meta: NewMeta,
        mut piece: impl FnMut(Range<u64>) -> Result<Bytes, Fault>,
    ) -> Result<(), FsError> {
        let path = shown(path);
        self.view.write_all(&path, Bytes::new())?;
        self.view.truncate(&path, size)?;
        for extent in extents {
            let mut at = extent.start;
            while at < extent.end {
                let bytes = piece(at..extent.end.min(at + CHUNK_BYTES));
                let bytes = bytes.map_err(|fault| fault.at(&path))?;
                if bytes.is_empty() {
                    return Err(Fault::because(Kind::Changed, "it is cut off").at(&path));
                }
                self.view.write_at(&path, at, &bytes)?;
                at += bytes.len() as u64;
            }
        }
        self.view.set_meta(&path, meta)
    }

    fn link(&mut self, path: &SandboxPath, target: &[u8], meta: NewMeta) -> Result<(), FsError> {
        let path = shown(path);
        self.make_parent(&path)?;
        self.view.symlink(&path, target)?;
        self.view.set_meta(&path, NewMeta { mode: None, ..meta })
    }

    fn same(&mut self, path: &SandboxPath, first: &SandboxPath) -> Result<(), FsError> {
        let path = shown(path);
        self.make_parent(&path)?;
        self.view.link(shown(first), &path)
    }

    fn xattr(&mut self, path: &SandboxPath, name: &[u8], value: &[u8]) -> Result<(), FsError> {
        self.view.set_xattr(shown(path), name, value)
    }

    fn make_parent(&mut self, path: &[u8]) -> Result<(), FsError> {
        let cut = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.view.make_dir_all(&path[..cut])
    }

    /// Puts it into a view, where nothing is yet but perhaps an empty
    /// directory.
    fn arrive(self, into: &Vfs, at: &SandboxPath) -> Result<u64, FsError> {
        for (path, meta) in self.dirs.iter().rev() {
            self.view.set_meta(path, *meta)?;
        }
        if let Some(parent) = at.parent() {
            into.make_dir_all(shown(&parent))?;
        }
        let tree = self.view.tree();
        let (weight, now) = (tree.weight(), now_ns());
        into.writing(&shown(at), |state, answers| {
            let path = shown(at);
            let found = state.find(&path, Last::Keep, answers)?;
            let old = match found.entry {
                None => None,
                Some(Reached::Dir(dir)) if answers.entries(dir)?.is_empty() => Some(dir.clone()),
                Some(Reached::Dir(_)) => return Err(Kind::NotEmpty.into()),
                Some(_) => return Err(Kind::Exists.into()),
            };
            match &old {
                None => check_new(&found)?,
                Some(_) if found.live => return Err(Kind::ReadOnly.into()),
                Some(_) => found.access.check(Need::Write)?,
            }
            state.check_room(weight.bytes, weight.entries + 1)?;
            let place = found.into_place();
            let new = (*tree.root).clone();
            if old.is_some() {
                let Entries::Here(names) = &new.entries else { return Err(Kind::Source.into()) };
                for (name, entry) in names.iter() {
                    let path = [&place[..], name.bytes()];
                    let path =
                        if place.is_empty() { name.bytes().into() } else { path.join(&b'/') };
                    state.top.put(&path, entry.clone(), None, answers, now)?;
                }
                state.top.edit_dir(&place, answers, &mut |dir: &mut Dir| {
                    dir.meta = new.meta;
                    dir.xattrs = new.xattrs.clone();
                })?;
            } else {
                state.top.put(&place, Entry::Dir(Arc::new(new)), None, answers, now)?;
            }
            state.top.shared = state.top.shared.clone().union(tree.shared.clone());
            state.top.shared_bytes += tree.shared_bytes;
            Ok(weight.entries)
        })
    }
}
