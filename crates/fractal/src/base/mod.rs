//! What reality held where a sandbox changed something.
//!
//! A live base is the host itself: once somebody edits a file there, what the
//! sandbox started from is gone. So at the end of each run the engine notes,
//! for every path that differs for the first time, what the host has there,
//! and keeps small files whole. Promoting compares by these notes: an outside
//! edit shows, a file that was only touched does not, and two edits of one
//! text can be joined.
//!
//! Notes are lines of JSON in `bases/<sandbox>/notes`, only ever appended; a
//! run's last line names the run, so that notes cut short by a crash are not
//! taken for complete. Without notes the host's `ctime` decides alone, which
//! errs towards conflicts.

mod injected;
mod notes;
mod pen;
mod travel;
mod way;
mod write;

pub use injected::{injected, note_injected};
pub use notes::{Count, Kept, Notes};
pub use travel::{Held, held, note_imported};
pub use way::{base_of, mark, note_back};
pub use write::{note, note_moved, note_promoted, note_staged, note_undone};

use crate::apply::{Bytes, digest_of_attributes};
use fractal_jail::layer::{Entry, Reader, View};
use fractal_model::{EntryKind, Result, SandboxPath};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Files up to this size are kept whole.
const KEPT_BYTES_MAX: u64 = 1 << 20;
/// Of files up to this size the digest is noted.
const DIGEST_BYTES_MAX: u64 = 64 << 20;

/// What stood at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    kind: EntryKind,
    mode: u32,
    size: u64,
    ctime_ns: i64,
    inode: (u64, u64),
    /// Of a file's content, or of a link's target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    /// User and group; not noted by older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<(u32, u32)>,
    /// Digest of what programs noted there; empty if nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    attributes: String,
    /// Whether the sandbox started from this, or may have seen another one.
    sure: bool,
    /// Whether it stood there after a promotion, an undo or an update.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    landed: bool,
}

impl State {
    fn counts(&self, count: Count) -> bool {
        self.sure && (self.landed || count == Count::All)
    }

    /// Whether a path of a view has this value; a digest of its content that
    /// was computed before serves again.
    fn is_value_of(
        &self,
        now: &Entry,
        view: &View,
        path: &SandboxPath,
        known: &mut Option<Option<String>>,
    ) -> bool {
        self.same_shape(now)
            && attributes(&mut view.reader(), path, now).as_ref() == Some(&self.attributes)
            && match self.sha256 {
                None => self.kind == EntryKind::Directory,
                Some(_) => *known.get_or_insert_with(|| digest(view, path, now)) == self.sha256,
            }
    }

    fn same_inode(&self, now: &Entry) -> bool {
        self.inode == now.inode() && self.ctime_ns == now.ctime_ns
    }

    fn same_shape(&self, now: &Entry) -> bool {
        let size = self.kind == EntryKind::Directory || self.size == now.size;
        self.kind == now.kind && self.mode == now.mode && size
    }
}

/// The digest of what programs noted at a path; `None` if it cannot be read.
fn attributes(reader: &mut Reader<'_>, path: &SandboxPath, entry: &Entry) -> Option<String> {
    match entry.kind {
        EntryKind::File | EntryKind::Directory => {
            reader.attributes(path).ok().map(|noted| digest_of_attributes(&noted))
        }
        EntryKind::Symlink | EntryKind::Special => Some(String::new()),
    }
}

/// The digest of a file's content or a link's target.
pub fn digest(view: &View, path: &SandboxPath, entry: &Entry) -> Option<String> {
    if entry.kind != EntryKind::File {
        return content(view, path, entry).map(|content| hex(&content));
    }
    let mut hasher = Sha256::new();
    std::io::copy(&mut view.open_file(path).ok()?, &mut hasher).ok()?;
    Some(text(&hasher.finalize()))
}

fn content(host: &View, path: &SandboxPath, entry: &Entry) -> Option<Vec<u8>> {
    match entry.kind {
        EntryKind::Symlink => entry.target.clone(),
        EntryKind::File if entry.size <= KEPT_BYTES_MAX => {
            let mut content = Vec::new();
            host.open_file(path).ok()?.take(KEPT_BYTES_MAX + 1).read_to_end(&mut content).ok()?;
            Some(content)
        }
        _ => None,
    }
}

fn hex(content: &[u8]) -> String {
    text(&Sha256::digest(content))
}

fn text(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file(dir: &Path) -> PathBuf {
    dir.join("notes")
}

fn failed(path: &Path, error: &std::io::Error) -> fractal_model::Error {
    fractal_model::Error::internal(format!("cannot write {}: {error}", path.display()))
}

/// A path as text, whatever its bytes are.
pub fn encode(path: &SandboxPath) -> String {
    Bytes(path.relative().to_vec()).into()
}

pub fn decode(text: &str) -> Result<SandboxPath> {
    let bytes = Bytes::try_from(text.to_owned()).map_err(fractal_model::Error::invalid)?;
    SandboxPath::parse(bytes.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_comes_back_from_its_text() {
        for name in [&b"plain/name"[..], b"100%", b"a\nb", b"\xff\xfe", b"%41", "ä".as_bytes()] {
            let path = SandboxPath::parse(name).expect("a path");
            let text = encode(&path);
            assert!(text.is_ascii() && !text.contains('\n'), "{text}");
            assert_eq!(decode(&text).expect("it was encoded"), path);
        }
    }
}
