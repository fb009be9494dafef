//! From a tree in memory into a layer, entry by entry, as an overlay would have
//! written it.

use fractal_fs::Vfs;
use fractal_jail::layer::Writer;
use fractal_model::{Change, ChangeKind, EntryKind, Result, SandboxPath};
use std::io::Read;

/// Writes what changed into a layer that holds none of it yet: what goes before
/// what comes, so that a file can take a directory's place, and the modes of
/// directories last, since one may keep us from writing what lies in it.
/// `turned` says which entries are of another kind than before.
pub fn land(
    vfs: &Vfs,
    writer: &Writer<'_>,
    list: &[Change],
    turned: impl Fn(&Change) -> Result<bool>,
) -> Result<()> {
    for change in list.iter().rev() {
        if change.kind == ChangeKind::Deleted || turned(change)? {
            writer.delete(&change.path)?;
        }
    }
    let there = || list.iter().filter(|change| change.kind != ChangeKind::Deleted);
    for change in there() {
        put(vfs, writer, change)?;
    }
    for change in there().filter(|change| change.entry == EntryKind::Directory) {
        let meta = vfs.lstat(shown(&change.path))?.meta;
        writer.attributes(&change.path, meta.mode, (meta.uid, meta.gid))?;
    }
    Ok(())
}

fn put(vfs: &Vfs, writer: &Writer<'_>, change: &Change) -> Result<()> {
    let path = shown(&change.path);
    let stat = vfs.lstat(&path)?;
    let (mode, owner) = (stat.meta.mode, (stat.meta.uid, stat.meta.gid));
    match change.entry {
        EntryKind::Directory => writer.directory(&change.path, mode | 0o700, owner)?,
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
