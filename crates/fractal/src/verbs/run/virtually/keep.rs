//! From the tree in memory into the sandbox's top layer.

use super::super::place::Place;
use crate::Engine;
use fractal_fs::{Tree, Vfs};
use fractal_jail::layer::{Marks, View, Writer};
use fractal_model::{Change, ChangeKind, EntryKind, Result};
use fractal_store::Reads;
use std::io::Read;

/// What the sandbox gets of the tree in memory.
pub(super) struct Work<'a> {
    pub(super) engine: &'a Engine,
    pub(super) place: &'a Place,
    pub(super) vfs: &'a Vfs,
    /// What it has already.
    pub(super) put: Tree,
}

impl Work<'_> {
    /// Writes what changed since the last time into the sandbox's top layer:
    /// what goes before what comes, so that a file can take a directory's
    /// place.
    pub(super) fn keep(&mut self) -> Result<()> {
        if self.place.in_memory.is_some() {
            return Ok(());
        }
        let now = self.vfs.tree();
        let list = self.vfs.changes_since(&self.put)?;
        if list.is_empty() {
            return Ok(());
        }
        let (engine, row) = (self.engine, &self.place.row);
        let below = engine.store.layer(row.top)?.and_then(|top| top.below);
        let below: View = engine.views(row, below)?.common;
        let tree = engine.store.layer_tree(row.top);
        let writer = Writer::open(&tree, &below, engine.marks() == Marks::Trusted)?;
        let old = self.vfs.at(&self.put);
        for change in list.iter().rev() {
            let turned = change.kind == ChangeKind::Modified
                && old.lstat(shown(change)).is_ok_and(|stat| stat.kind != change.entry);
            if change.kind == ChangeKind::Deleted || turned {
                writer.delete(&change.path)?;
            }
        }
        for change in list.iter().filter(|change| change.kind != ChangeKind::Deleted) {
            self.put(&writer, change)?;
        }
        self.put = now;
        Ok(())
    }

    fn put(&self, writer: &Writer<'_>, change: &Change) -> Result<()> {
        let path = shown(change);
        let stat = self.vfs.lstat(&path)?;
        let (mode, owner) = (stat.meta.mode, (stat.meta.uid, stat.meta.gid));
        match change.entry {
            EntryKind::Directory if change.kind == ChangeKind::Modified => {
                writer.directory(&change.path, mode, owner)?;
                writer.attributes(&change.path, mode, owner)?;
            }
            EntryKind::Directory => writer.directory(&change.path, mode, owner)?,
            EntryKind::Symlink => writer.symlink(&change.path, &self.vfs.read_link(&path)?)?,
            EntryKind::File | EntryKind::Special => {
                let mut content = Content { vfs: self.vfs, path: &path, at: 0, size: stat.size };
                writer.file(&change.path, mode, owner, &mut content)?;
            }
        }
        Ok(())
    }
}

fn shown(change: &Change) -> Vec<u8> {
    [b"/", change.path.relative()].concat()
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
