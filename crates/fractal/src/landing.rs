//! From a tree in memory into a layer, entry by entry, as an overlay would have
//! written it.

use fractal_fs::Vfs;
use fractal_jail::layer::{Attributes, View, Writer};
use fractal_model::{Change, ChangeKind, Code, EntryKind, Error, Result, SandboxPath};
use std::io::Read;

/// Writes what changed into a layer that holds none of it yet: what goes before
/// what comes, so that a file can take a directory's place, and the modes of
/// directories last, since one may keep us from writing what lies in it.
/// `turned` says which entries are of another kind than before, `below` what
/// the layer stands on.
pub fn land(
    vfs: &Vfs,
    writer: &Writer<'_>,
    below: &View,
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
        put(vfs, writer, below, change)?;
    }
    for change in there().filter(|change| change.entry == EntryKind::Directory) {
        let meta = vfs.lstat(shown(&change.path))?.meta;
        let noted = noted(vfs, below, change)?;
        writer.dress(&change.path, meta.mode, (meta.uid, meta.gid), &noted)?;
    }
    Ok(())
}

fn put(vfs: &Vfs, writer: &Writer<'_>, below: &View, change: &Change) -> Result<()> {
    let path = shown(&change.path);
    let stat = vfs.lstat(&path)?;
    let (mode, owner) = (stat.meta.mode, (stat.meta.uid, stat.meta.gid));
    match change.entry {
        EntryKind::Directory => writer.directory(&change.path, mode | 0o700, owner)?,
        EntryKind::Symlink => writer.symlink(&change.path, &vfs.read_link(&path)?)?,
        EntryKind::File | EntryKind::Special => {
            let mut content = Content { vfs, path: &path, at: 0, size: stat.size };
            let noted = noted(vfs, below, change)?;
            writer.file(&change.path, mode, owner, &noted, &mut content)?;
        }
    }
    Ok(())
}

/// What programs noted about an entry: what it had in the layers, which a tree
/// in memory does not show, and what it was given there.
fn noted(vfs: &Vfs, below: &View, change: &Change) -> Result<Attributes> {
    let path = shown(&change.path);
    let same = below.lookup(&change.path)?.is_some_and(|entry| entry.kind == change.entry);
    let had = if same { below.attributes(&change.path)? } else { Attributes::default() };
    let mut list: Vec<_> =
        had.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    for name in vfs.xattrs(&path)? {
        let value = vfs.xattr(&path, &name)?;
        list.push((name, value));
    }
    Attributes::new(list).map_err(|_| {
        Error::new(Code::Limit, format!("{} has too many extended attributes", change.path))
    })
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
