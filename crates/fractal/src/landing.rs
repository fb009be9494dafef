//! From a tree in memory into a layer, entry by entry, as an overlay would have
//! written it.

use fractal_fs::Vfs;
use fractal_jail::layer::Writer;
use fractal_model::{Change, ChangeKind, EntryKind, Result, SandboxPath};
use std::io::Read;

/// Writes one changed entry as it is in the view.
pub fn put(vfs: &Vfs, writer: &Writer<'_>, change: &Change) -> Result<()> {
    let path = shown(&change.path);
    let stat = vfs.lstat(&path)?;
    let (mode, owner) = (stat.meta.mode, (stat.meta.uid, stat.meta.gid));
    match change.entry {
        EntryKind::Directory if change.kind == ChangeKind::Modified => {
            writer.directory(&change.path, mode, owner)?;
            writer.attributes(&change.path, mode, owner)?;
        }
        EntryKind::Directory => writer.directory(&change.path, mode, owner)?,
        EntryKind::Symlink => writer.symlink(&change.path, &vfs.read_link(&path)?)?,
        EntryKind::File | EntryKind::Special => {
            let mut content = Content { vfs, path: &path, at: 0, size: stat.size };
            writer.file(&change.path, mode, owner, &mut content)?;
        }
    }
    Ok(())
}

/// A path as a view takes it.
pub fn shown(path: &SandboxPath) -> Vec<u8> {
    [b"/", path.relative()].concat()
}

/// A file of the view, read piece by piece: a large one with holes is never
/// in memory as a whole.
struct Content<'a> {
    vfs: &'a Vfs,
    path: &'a [u8],
    at: u64,
    size: u64,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let end = self.size.min(self.at + buffer.len() as u64);
        let bytes = self.vfs.read_range(self.path, self.at..end).map_err(std::io::Error::other)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}
