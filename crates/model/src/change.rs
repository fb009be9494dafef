//! What a run did to its files: the currency of every world.
//!
//! Native, virtual and container runners all report this list, so that diff,
//! compare, promote and export are written once.

use crate::SandboxPath;
use serde::{Deserialize, Serialize};

/// How a path differs from its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It did not exist before.
    Added,
    /// It existed and differs in content, kind, mode or target.
    Modified,
    /// It existed and is gone.
    Deleted,
}

impl ChangeKind {
    /// The letter git uses for it.
    pub fn letter(self) -> char {
        match self {
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
        }
    }
}

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A fifo, socket or device: listed, and never put into reality.
    Special,
}

/// One path that differs from the base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// Where, from the sandbox's root.
    pub path: SandboxPath,
    /// How it differs.
    pub kind: ChangeKind,
    /// What stands there now; for a deletion, what stood there.
    pub entry: EntryKind,
    /// Permission bits without set-uid, set-gid and sticky.
    pub mode: u32,
    /// Bytes of content now (0 for a deletion).
    pub size_bytes: u64,
    /// Set for files that run by themselves when someone works in the
    /// directory: hooks, shell start-up files, editor tasks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub autorun: bool,
}
