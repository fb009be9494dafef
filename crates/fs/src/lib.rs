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
//! This crate knows nothing about processes and networks. Paths are bytes, as
//! in Linux, and are resolved inside the tree: there is no path, link or name
//! that leads to the host.

mod change;
mod content;
mod entry;
mod error;
mod exchange;
#[cfg(feature = "fuse")]
pub mod fuse;
mod map;
mod name;
mod page;
mod read;
mod rules;
mod source;
mod tree;
mod view;
mod walk;
mod watch;
mod write;

pub use content::{FILE_BYTES_MAX, READ_BYTES_MAX};
pub use entry::{Meta, Weight};
pub use error::{Fault, FsError, Kind};
pub use name::{NAME_BYTES_MAX, Name};
pub use page::Paged;
pub use read::{Listed, Stat};
pub use rules::Access;
pub use source::{Ask, Freshness, Item, ItemKind, LISTING_ENTRIES_MAX, Source, Stamp};
pub use tree::{DEPTH_MAX, Gone, Tree};
pub use view::{Limits, Mount, Vfs};
pub use walk::PATH_BYTES_MAX;
pub use write::NewMeta;
