//! Several sealed trees in one file, with what they share stored once.
//!
//! The format is told byte by byte in `docs/format.md`. What is shared is
//! found by identity in memory, so that saving a tree with a thousand
//! snapshots costs what differs between them, and loading gives the same
//! sharing back. Loading believes nothing: numbers lead to what came before,
//! sizes are bounded before memory is taken, and a digest of everything comes
//! last.

mod read;
mod write;

pub use read::{LoadBounds, load};
pub use write::save;

/// What a file of trees begins with; the last byte is the version.
const MAGIC: [u8; 8] = *b"FRTREES\x01";

/// The sorts of records.
const BLOB: u8 = b'B';
const FILE: u8 = b'F';
const LINK: u8 = b'L';
const DIR: u8 = b'D';
const TREE: u8 = b'T';
const END: u8 = b'E';
