//! Where entries come from, and what waits there until it is asked for.
//!
//! A [`Source`] lists directories and reads files. The tree holds what it has
//! not asked for yet as lazy entries; it never calls a source itself but says
//! what is missing ([`Miss`]), so that no lock is held while a source works
//! and a provider may read the view it serves.

#[cfg(feature = "archive")]
pub(crate) mod archive;
mod chain;
mod find;
#[cfg(feature = "git")]
mod git;
#[cfg(unix)]
pub(crate) mod host;
mod index;
mod lazy;
mod memory;
mod other;
mod provider;
#[cfg(unix)]
mod volume;

#[cfg(feature = "archive")]
pub use archive::{Archive, ArchiveBounds};
pub use find::{Find, FindBounds};
#[cfg(feature = "git")]
pub use git::Git;
#[cfg(unix)]
pub use host::{Host, WriteBack, read_range};
pub use memory::Memory;
pub use other::Other;
#[cfg(unix)]
pub use provider::Command;
#[cfg(feature = "http")]
pub use provider::HttpJson;
pub use provider::{Call, Context, Made, Names, Provide, Provider, ProviderBounds, Text};
#[cfg(unix)]
pub use volume::Volume;

pub(crate) use lazy::{Answers, LazyDir, LazyFile, Origin, Stop};

use crate::error::{Fault, Kind};
use crate::view::Vfs;
use bytes::Bytes;
use fractal_model::SandboxPath;
use std::ops::Range;
use std::time::Duration;

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
    /// What the entry looked like when it was listed, if it is to be given
    /// as it was or not at all. Live mounts want whatever is there now.
    pub stamp: Option<Stamp>,
    /// Since when nothing may have changed, in nanoseconds since 1970: the
    /// moment of a frozen mount.
    pub frozen_ns: Option<i64>,
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

    /// Whether there are entries that it does not list; `stat` is asked for
    /// those, in live mounts.
    fn has_unlisted(&self) -> bool {
        false
    }

    /// One entry, for sources that have some they do not list. `Ok(None)` for
    /// "there is none".
    fn stat(&self, _at: &SandboxPath, _ask: &Ask) -> Result<Option<Item>, Fault> {
        Ok(None)
    }

    /// Whether it gives the same bytes for the same stamp again, or an error:
    /// then a frozen mount need not keep in memory what was read.
    fn rereads(&self) -> bool {
        false
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

    /// Changes an entry where it comes from, if it is still what the view
    /// was made from; only [`Vfs::write_back`] calls it.
    fn write(&self, _at: &SandboxPath, _edit: &Edit, _ask: &Ask) -> Result<(), Fault> {
        Err(Fault::because(Kind::ReadOnly, "its source is not there to be written"))
    }
}

/// What [`Vfs::write_back`] does to one entry of a source.
#[derive(Clone, Debug)]
pub struct Edit {
    /// What the view was made from; anything else is somebody's edit, and
    /// stays.
    pub before: Before,
    /// What is to stand there.
    pub after: After,
}

/// What stands at a source according to the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// A directory.
    Dir,
    /// A file that looked like this.
    File(Option<Stamp>),
    /// A symlink that led there.
    Link(Vec<u8>),
}

/// What is to stand at a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing; directories are empty by then.
    Nothing,
    /// A directory with these permission bits.
    Dir(u32),
    /// A file with content, permission bits and time of modification.
    File(Bytes, u32, i64),
    /// A symlink that leads there.
    Link(Vec<u8>),
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

/// A path that the embedding program gives.
pub(crate) fn parse(path: &[u8]) -> Result<SandboxPath, Fault> {
    SandboxPath::parse(path).map_err(|error| Fault::because(Kind::Invalid, error.to_string()))
}
