//! Files of a sandbox as doors tell of them; their bytes travel beside this.

use crate::EntryKind;
use serde::{Deserialize, Serialize};

/// Some entries of a directory, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileList {
    /// The directory, from the sandbox's root.
    pub path: String,
    /// What it holds.
    pub entries: Vec<FileEntry>,
    /// `after` of the next page, where there is one.
    pub next: Option<String>,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileEntry {
    /// Its name; what is not UTF-8 in it is replaced.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes of content.
    pub size_bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// Last change of its content, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Where a symlink leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// What became of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileReply {
    /// Where it is, or was, from the sandbox's root.
    pub path: String,
    /// Bytes that it holds now.
    pub size_bytes: u64,
    /// Whether nothing was there before.
    pub created: bool,
    /// Whether nothing is there now.
    pub deleted: bool,
}
