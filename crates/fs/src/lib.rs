//! The virtual filesystem: a tree in memory that forks at once.
//!
//! [`Vfs`] is a view: files, directories and symlinks that are read and
//! written by path. [`Vfs::fork`] gives a view of its own in nanoseconds
//! however large the tree is, [`Vfs::tree`] seals what a view shows, and
//! [`Vfs::changes`] tells how it differs from what it started from. A
//! [`Source`] mounted into a view makes entries when they are asked for.
//!
//! ```
//! let vfs = fractal_fs::Vfs::default();
//! vfs.write_all("/notes/a.txt", "hello")?;
//! let fork = vfs.fork();
//! fork.append("/notes/a.txt", b", world")?;
//! assert_eq!(vfs.read("/notes/a.txt")?, "hello");
//! assert_eq!(fork.changes()?[0].path.to_string(), "/notes/a.txt");
//! # Ok::<(), fractal_fs::FsError>(())
//! ```
//!
//! This crate knows nothing about processes and networks, but in the two
//! adapters of providers that are there for them. Paths are bytes, as
//! in Linux, and are resolved inside the tree: there is no path, link or name
//! that leads to the host.

mod about;
mod back;
mod change;
mod content;
mod entry;
mod error;
mod exchange;
#[cfg(feature = "fuse")]
pub mod fuse;
mod glob;
mod map;
mod name;
mod page;
mod read;
mod rules;
mod source;
mod transfer;
mod tree;
mod view;
mod walk;
mod watch;
mod write;

pub use about::NewMeta;
pub use content::{FILE_BYTES_MAX, READ_BYTES_MAX};
pub use entry::{Meta, Weight};
pub use error::{Fault, FsError, Kind};
pub use glob::matches as glob_matches;
pub use name::{NAME_BYTES_MAX, Name};
pub use page::Paged;
pub use read::{Listed, Stat};
pub use rules::Access;
#[cfg(feature = "git")]
pub use source::Git;
#[cfg(feature = "http")]
pub use source::HttpJson;
pub use source::{
    After, Ask, Before, Call, Context, Edit, Find, FindBounds, Freshness, Item, ItemKind,
    LISTING_ENTRIES_MAX, Made, Memory, Names, Other, Provide, Provider, ProviderBounds, Source,
    Stamp, Text,
};
#[cfg(feature = "archive")]
pub use source::{Archive, ArchiveBounds};
#[cfg(unix)]
pub use source::{Command, Host, Volume, WriteBack, read_range};
pub use transfer::{LoadBounds, load, save};
pub use tree::{DEPTH_MAX, Gone, Tree};
pub use view::{Limits, Mount, Vfs};
pub use walk::PATH_BYTES_MAX;

/// The examples of the guide.
#[cfg(all(doctest, unix))]
#[doc = include_str!("../../../docs/guide/virtual.md")]
struct Guide;
