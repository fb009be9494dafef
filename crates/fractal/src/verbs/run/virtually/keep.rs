//! From the tree in memory into the sandbox's top layer.

use super::super::place::Place;
use super::mounts::Mounts;
use crate::{Engine, living};
use fractal_fs::{Tree, Vfs};
use fractal_jail::layer::{Marks, View, Writer};
use fractal_model::{Change, ChangeKind, EntryKind, Result, SandboxPath};
use fractal_store::Reads;
use std::io::Read;

/// What the sandbox gets of the tree in memory.
pub(super) struct Work<'a> {
    pub(super) engine: &'a Engine,
    pub(super) place: &'a Place,
    pub(super) vfs: &'a Vfs,
    /// What it has already.
    pub(super) put: Tree,
    /// What is not the sandbox's own.
    pub(super) mounts: Mounts,
}

impl Work<'_> {
    /// Keeps, and writes what changed in volumes and host directories back to
    /// them. What is shown of them afterwards is what they hold then; nobody
    /// may be writing into the view meanwhile.
    pub(super) fn land(&mut self) -> Result<()> {
        let list = self.vfs.changes_since(&self.put)?;
        let touched = |at: &&SandboxPath| list.iter().any(|change| change.path.is_within(at));
        let back: Vec<SandboxPath> = self.mounts.back.iter().filter(touched).cloned().collect();
        self.keep()?;
        for at in &back {
            self.vfs.write_back(at)?;
            self.put = self.vfs.tree();
        }
        Ok(())
    }

    /// Writes what changed since the last time into the sandbox's top layer:
    /// what goes before what comes, so that a file can take a directory's
    /// place.
    pub(super) fn keep(&mut self) -> Result<()> {
        if self.place.in_memory.is_some() {
            return Ok(());
        }
        // Others may go on writing meanwhile: this is one moment of it.
        let now = self.vfs.tree();
        let vfs = self.vfs.at(&now);
        let mut list = vfs.changes_since(&self.put)?;
        list.retain(|change| !self.mounts.holds(&change.path));
        if list.is_empty() {
            return Ok(());
        }
        let (engine, row) = (self.engine, &self.place.row);
        // Whoever copies the layer finds it between two moments.
        let _hold = living::hold(engine, row, false)?.ok_or_else(|| {
            living::busy(row, "somebody copies what it holds, and does not come to an end")
        })?;
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
            put(&vfs, &writer, change)?;
        }
        self.put = now;
        Ok(())
    }
}

fn put(vfs: &Vfs, writer: &Writer<'_>, change: &Change) -> Result<()> {
    let path = shown(change);
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
