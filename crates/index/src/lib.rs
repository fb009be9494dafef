//! What was learned: records as files, and the indexes that find them again.
//!
//! A record is a Markdown file with a head in YAML, in a bundle that other
//! tools read too. Those files are the truth; full text, vectors and graph are
//! made from them and may be thrown away at any time. This crate knows nothing
//! about sandboxes, runs or terminals.

pub mod bundle;
mod catalog;
mod edges;
pub mod embed;
mod error;
mod graph;
mod index;
mod learned;
mod lint;
mod meaning;
pub mod record;
mod search;
pub mod servers;
mod sync;
pub mod vectors;
mod walk;

pub use error::{Fault, IndexError, Result};
pub use graph::{GraphStore, around, path};
pub use index::{Counts, Index};
pub use meaning::Embedded;
pub use search::Mix;
pub use sync::{Progress, Synced};
pub use walk::{Root, RootKind};
