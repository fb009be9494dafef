//! Changes as a patch that `git apply` accepts.
//!
//! Prints what `git diff --binary --full-index --no-renames` would print for
//! the same two trees, read through two views without a repository (where
//! lines repeat, of two equally short diffs it may choose the other). Binary
//! contents are always written whole in both directions, never as deltas, so
//! that a patch can be applied and taken back. What a git patch cannot say
//! (directories, devices, owners, permission bits other than "executable") is
//! counted, and what was too large to read is named: nothing is left out
//! silently.

mod binary;
mod blob;
mod hunk;
mod quote;
mod stat;

pub use stat::{write_name_status, write_stat};

use blob::{Blob, Loaded};
use fractal_jail::layer::{Entry, LayerError, View};
use fractal_model::{Change, Code, EntryKind, Error, SandboxPath};
use std::io::{self, Write};

/// How to write a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchOptions {
    /// Unchanged lines shown around a change.
    pub context_lines: u32,
    /// Files larger than this are treated as binary.
    pub text_bytes_max: u64,
    /// Files larger than this are named in [`Stat::skipped`] instead.
    pub file_bytes_max: u64,
    /// Write the contents of binary files. Without them the patch cannot be
    /// applied, but it is quickly counted and pleasant to read.
    pub binary_contents: bool,
}

impl Default for PatchOptions {
    fn default() -> PatchOptions {
        PatchOptions {
            context_lines: 3,
            text_bytes_max: 16 << 20,
            file_bytes_max: 256 << 20,
            binary_contents: true,
        }
    }
}

/// What a patch holds, and what it could not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// One per file in the patch, in its order.
    pub files: Vec<FileStat>,
    /// Directories that changed; git knows only files.
    pub directories: u64,
    /// Fifos, sockets and devices.
    pub special: u64,
    /// Files of which only the owner or other permission bits changed.
    pub attributes: u64,
    /// Changes in a repository's own directory, which `git apply` refuses.
    pub of_git: u64,
    /// Changes outside the root of the patch.
    pub outside: u64,
    /// Files that are in the changes and not in the patch.
    pub skipped: Vec<Skipped>,
}

/// The numbers of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Its path below the root of the patch.
    pub path: SandboxPath,
    /// Whether that root was `/`, to be told from paths of another one.
    pub absolute: bool,
    /// How much changed.
    pub amount: Amount,
}

/// How much of a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Lines, for text.
    Lines {
        /// Lines that are new.
        added: u64,
        /// Lines that are gone.
        deleted: u64,
    },
    /// Sizes, for everything else.
    Bytes {
        /// Size before.
        before: u64,
        /// Size after.
        after: u64,
    },
}

/// A file that is not in the patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its path in the sandbox.
    pub path: SandboxPath,
    /// Why.
    pub reason: SkipReason,
}

/// Why a file is not in the patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// It is larger than [`PatchOptions::file_bytes_max`].
    TooLarge {
        /// Its size.
        size_bytes: u64,
    },
    /// It could not be read, or changed while it was read.
    Unreadable,
}

/// Why a patch could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// A view could not be read.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The receiving end failed; a broken pipe is for the caller to end on.
    #[error("cannot write the patch: {0}")]
    Write(#[from] io::Error),
}

impl From<PatchError> for Error {
    fn from(error: PatchError) -> Error {
        match error {
            PatchError::Layer(error) => error.into(),
            PatchError::Write(_) => Error::new(Code::Internal, error.to_string()),
        }
    }
}

/// Writes the patch that turns `base` into `top` at the changed paths below
/// `root`, with names relative to it.
pub fn write_patch(
    out: &mut dyn Write,
    changes: &[Change],
    base: &View,
    top: &View,
    root: &SandboxPath,
    options: &PatchOptions,
) -> Result<Stat, PatchError> {
    let mut stat = Stat::default();
    for (index, change) in changes.iter().enumerate() {
        let Some(name) = below(&change.path, root) else {
            stat.outside += u64::from(change.path != *root);
            stat.directories += u64::from(change.path == *root);
            continue;
        };
        if is_of_git(&name) {
            stat.of_git += 1;
            continue;
        }
        let before = base.lookup(&change.path)?;
        let after = top.lookup(&change.path)?;
        if !has_blob(&before) && !has_blob(&after) {
            // A directory comes and goes with the files in it.
            let implied = change.entry == EntryKind::Directory
                && (before.is_none() || after.is_none())
                && changes[index + 1..]
                    .iter()
                    .take_while(|other| other.path.is_within(&change.path))
                    .any(|other| matches!(other.entry, EntryKind::File | EntryKind::Symlink));
            if !implied {
                count_unsayable(&mut stat, change);
            }
            continue;
        }
        let sides = (
            blob::load(base, &change.path, before.as_ref(), options)?,
            blob::load(top, &change.path, after.as_ref(), options)?,
        );
        match sides {
            (Loaded::Skip(reason), _) | (_, Loaded::Skip(reason)) => {
                stat.skipped.push(Skipped { path: change.path.clone(), reason });
            }
            (Loaded::Blob(before), Loaded::Blob(after)) => {
                write_file(out, &name, before.as_ref(), after.as_ref(), options, &mut stat)?;
            }
        }
    }
    Ok(stat)
}

/// A digest of what stands at a path: the object id git gives it, with its
/// mode. `None` where git sees nothing; a file that is too large to read is
/// told by its size.
pub fn blob_id(
    view: &View,
    path: &SandboxPath,
    options: &PatchOptions,
) -> Result<Option<String>, PatchError> {
    let entry = view.lookup(path)?;
    Ok(match blob::load(view, path, entry.as_ref(), options)? {
        Loaded::Blob(blob) => blob.map(|blob| format!("{:o} {}", blob.mode, blob.id())),
        Loaded::Skip(SkipReason::TooLarge { size_bytes }) => Some(format!("{size_bytes} bytes")),
        Loaded::Skip(SkipReason::Unreadable) => Some("unreadable".to_owned()),
    })
}

/// The path relative to `root`; the root itself has no name in a patch.
fn below(path: &SandboxPath, root: &SandboxPath) -> Option<SandboxPath> {
    if !path.is_within(root) || path == root {
        return None;
    }
    SandboxPath::parse(&path.relative()[root.relative().len()..]).ok()
}

/// Whether a component is `.git`: one such path and git takes none of a patch.
fn is_of_git(name: &SandboxPath) -> bool {
    name.relative().split(|byte| *byte == b'/').any(|part| part.eq_ignore_ascii_case(b".git"))
}

fn has_blob(entry: &Option<Entry>) -> bool {
    let kind = entry.as_ref().map(|entry| entry.kind);
    matches!(kind, Some(EntryKind::File | EntryKind::Symlink))
}

fn count_unsayable(stat: &mut Stat, change: &Change) {
    match change.entry {
        EntryKind::Directory => stat.directories += 1,
        EntryKind::Special => stat.special += 1,
        // The views moved on since the changes were listed.
        EntryKind::File | EntryKind::Symlink => {
            let reason = SkipReason::Unreadable;
            stat.skipped.push(Skipped { path: change.path.clone(), reason });
        }
    }
}

fn write_file(
    out: &mut dyn Write,
    name: &SandboxPath,
    before: Option<&Blob>,
    after: Option<&Blob>,
    options: &PatchOptions,
    stat: &mut Stat,
) -> Result<(), PatchError> {
    let amount = match (before, after) {
        (Some(old), Some(new)) if old == new => {
            stat.attributes += 1;
            return Ok(());
        }
        // A file that became a symlink, or the reverse: git says it twice.
        (Some(old), Some(new)) if old.is_symlink() != new.is_symlink() => {
            let gone = write_diff(out, name, Some(old), None, options)?;
            let came = write_diff(out, name, None, Some(new), options)?;
            together(gone, came, old, new)
        }
        _ => write_diff(out, name, before, after, options)?,
    };
    stat.files.push(FileStat { path: name.clone(), absolute: false, amount });
    Ok(())
}

/// What a changed type counts as: lines if both sides are text.
fn together(gone: Amount, came: Amount, old: &Blob, new: &Blob) -> Amount {
    match (gone, came) {
        (Amount::Lines { deleted, .. }, Amount::Lines { added, .. }) => {
            Amount::Lines { added, deleted }
        }
        _ => Amount::Bytes { before: old.content.len() as u64, after: new.content.len() as u64 },
    }
}

/// One `diff --git` section. At least one side is there.
fn write_diff(
    out: &mut dyn Write,
    name: &SandboxPath,
    before: Option<&Blob>,
    after: Option<&Blob>,
    options: &PatchOptions,
) -> Result<Amount, PatchError> {
    let (a, b) = (quote::name("a/", name), quote::name("b/", name));
    write_parts(out, &[b"diff --git ", &a, b" ", &b, b"\n"])?;
    write_modes(out, before, after)?;
    let (old, new) = (blob::content(before), blob::content(after));
    let is_binary = |blob: Option<&Blob>| blob.is_some_and(|blob| blob.is_binary(options));
    if is_binary(before) || is_binary(after) {
        // Git counts a change of mode alone as no bytes at all.
        if old == new {
            return Ok(Amount::Bytes { before: 0, after: 0 });
        }
        match options.binary_contents {
            true => binary::write(out, old, new)?,
            false => write_parts(out, &[b"Binary files ", &a, b" and ", &b, b" differ\n"])?,
        }
        return Ok(Amount::Bytes { before: old.len() as u64, after: new.len() as u64 });
    }
    if old == new {
        return Ok(Amount::Lines { added: 0, deleted: 0 });
    }
    let label = |blob: Option<&Blob>, name: &[u8]| match blob {
        Some(_) => quote::label(name),
        None => b"/dev/null".to_vec(),
    };
    write_parts(out, &[b"--- ", &label(before, &a), b"\n+++ ", &label(after, &b), b"\n"])?;
    Ok(hunk::write(out, old, new, options.context_lines)?)
}

fn write_modes(out: &mut dyn Write, before: Option<&Blob>, after: Option<&Blob>) -> io::Result<()> {
    let id = |blob: Option<&Blob>| blob.map_or("0".repeat(40), Blob::id);
    let index = format!("index {}..{}", id(before), id(after));
    match (before, after) {
        (None, Some(new)) => write!(out, "new file mode {:06o}\n{index}\n", new.mode),
        (Some(old), None) => write!(out, "deleted file mode {:06o}\n{index}\n", old.mode),
        (Some(old), Some(new)) if old.mode != new.mode => {
            write!(out, "old mode {:06o}\nnew mode {:06o}\n", old.mode, new.mode)?;
            if old.content != new.content {
                writeln!(out, "{index}")?;
            }
            Ok(())
        }
        (Some(old), Some(_)) => writeln!(out, "{index} {:06o}", old.mode),
        (None, None) => Ok(()),
    }
}

fn write_parts(out: &mut dyn Write, parts: &[&[u8]]) -> io::Result<()> {
    parts.iter().try_for_each(|part| out.write_all(part))
}
