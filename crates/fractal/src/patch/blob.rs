//! One side of a file in git's terms: a mode and some bytes.

use super::{PatchError, PatchOptions, SkipReason};
use fractal_jail::layer::{Entry, LayerError, View};
use fractal_model::{EntryKind, SandboxPath};
use sha1::{Digest, Sha1};
use std::io::Read;

/// Bytes in which git looks for a NUL to tell binary from text.
const SNIFF_BYTES: usize = 8000;

const MODE_SYMLINK: u32 = 0o120000;

/// A regular file or a symlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    /// 100644, 100755 or 120000.
    pub mode: u32,
    /// The content; of a symlink, its target.
    pub content: Vec<u8>,
}

/// What reading one side came to.
pub(super) enum Loaded {
    /// The blob, or `None` where git sees nothing (nothing, a directory, a
    /// device).
    Blob(Option<Blob>),
    /// It is there and stays out of the patch.
    Skip(SkipReason),
}

impl Blob {
    pub fn is_symlink(&self) -> bool {
        self.mode == MODE_SYMLINK
    }

    pub fn is_binary(&self, options: &PatchOptions) -> bool {
        let head = &self.content[..self.content.len().min(SNIFF_BYTES)];
        head.contains(&0) || self.content.len() as u64 > options.text_bytes_max
    }

    /// The object id git gives it.
    pub fn id(&self) -> String {
        let mut hasher = Sha1::new();
        hasher.update(format!("blob {}\0", self.content.len()));
        hasher.update(&self.content);
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The bytes of a side; where there is none, no bytes.
pub(super) fn content(blob: Option<&Blob>) -> &[u8] {
    blob.map_or(&[], |blob| &blob.content)
}

/// Reads the entry that `view.lookup(path)` gave.
pub(super) fn load(
    view: &View,
    path: &SandboxPath,
    entry: Option<&Entry>,
    options: &PatchOptions,
) -> Result<Loaded, PatchError> {
    let Some(entry) = entry else { return Ok(Loaded::Blob(None)) };
    match entry.kind {
        EntryKind::Directory | EntryKind::Special => Ok(Loaded::Blob(None)),
        EntryKind::Symlink => {
            let content = entry.target.clone().unwrap_or_default();
            Ok(Loaded::Blob(Some(Blob { mode: MODE_SYMLINK, content })))
        }
        EntryKind::File => load_file(view, path, entry, options),
    }
}

fn load_file(
    view: &View,
    path: &SandboxPath,
    entry: &Entry,
    options: &PatchOptions,
) -> Result<Loaded, PatchError> {
    let too_large = |size_bytes| Ok(Loaded::Skip(SkipReason::TooLarge { size_bytes }));
    if entry.size > options.file_bytes_max {
        return too_large(entry.size);
    }
    let file = match view.open_file(path) {
        Ok(file) => file,
        Err(error @ LayerError::Unsupported) => return Err(error.into()),
        Err(_) => return Ok(Loaded::Skip(SkipReason::Unreadable)),
    };
    let mut content = Vec::new();
    // One byte more than allowed shows that it grew while we read.
    let read = file.take(options.file_bytes_max.saturating_add(1)).read_to_end(&mut content);
    if read.is_err() {
        return Ok(Loaded::Skip(SkipReason::Unreadable));
    }
    if content.len() as u64 > options.file_bytes_max {
        return too_large(content.len() as u64);
    }
    let mode = if entry.mode & 0o100 != 0 { 0o100755 } else { 0o100644 };
    Ok(Loaded::Blob(Some(Blob { mode, content })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_gits() {
        let id = |content: &[u8]| Blob { mode: 0o100644, content: content.to_vec() }.id();
        assert_eq!(id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(id(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }
}
