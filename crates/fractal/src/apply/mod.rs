//! Writing into reality: plan, then do.
//!
//! A promotion arrives here as a list of [`Step`]s: for each path what stands
//! there now and what shall stand there. New contents are staged beside their
//! targets on the same filesystem and flushed; the decision to go on is one
//! durable row; then each path is exchanged in one system call and what stood
//! there is kept for `undo`. A process that dies on the way leaves a row, and
//! whoever opens the state directory next goes back (before the decision) or
//! on (after it): old or new, never between.

use fractal_jail::layer::View;
use fractal_model::{Code, EntryKind, Error, Id, RecordBody, Result, SandboxPath};
use std::path::PathBuf;

/// One path of the host as it shall become.
#[derive(Clone, Debug)]
pub struct Step {
    /// Where, from the root of the machine.
    pub path: SandboxPath,
    /// What stands there and must still stand there when it is exchanged.
    pub old: Option<Seen>,
    /// What shall stand there.
    pub new: Option<New>,
}

/// What was seen at a path of the host: enough to notice any change since.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Seen {
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Last change of the content.
    pub mtime_ns: i64,
    /// Last change of anything about it.
    pub ctime_ns: i64,
    /// Filesystem and inode.
    pub inode: (u64, u64),
}

/// What shall stand at a path.
#[derive(Clone, Debug)]
pub struct New {
    /// Permission bits; set-uid, set-gid and sticky are never set.
    pub mode: u32,
    /// Owner and group, where we may set them.
    pub owner: Option<(u32, u32)>,
    /// Last change of the content.
    pub mtime_ns: i64,
    /// The rest, by kind.
    pub what: What,
}

/// The kinds of things that can be made.
#[derive(Clone, Debug)]
pub enum What {
    /// A regular file.
    File(Content),
    /// A directory; its entries are steps of their own.
    Directory,
    /// A symbolic link to these bytes.
    Symlink(Vec<u8>),
}

/// Where a file's bytes come from.
#[derive(Clone, Debug)]
pub enum Content {
    /// The file at the same path of the job's view.
    View,
    /// These.
    Bytes(Vec<u8>),
    /// A file of the state directory.
    Kept(PathBuf),
    /// They stay as they are: only mode or owner change, in place.
    Same,
}

/// A list of steps to be carried out completely or not at all.
pub struct Job<'a> {
    /// The directory that every path lies below, opened once.
    pub root: PathBuf,
    /// Sorted by path.
    pub steps: Vec<Step>,
    /// Where [`Content::View`] is read.
    pub view: Option<&'a View>,
    /// What the journal says when it is done; `undo` is added to its detail.
    pub record: RecordBody,
}

/// A job that was carried out.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The id for `undo`.
    pub undo: Id,
}

/// STUB until the branch `apply` is merged.
pub fn apply(_engine: &crate::Engine, _job: Job<'_>) -> Result<Done> {
    Err(Error::new(Code::Unsupported, "stub"))
}
