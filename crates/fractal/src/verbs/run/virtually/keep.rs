//! From the tree in memory into the sandbox's top layer.

use super::super::place::Place;
use super::mounts::Mounts;
use crate::landing::{put, shown};
use crate::{Engine, living};
use fractal_fs::{Tree, Vfs};
use fractal_jail::layer::{Marks, View, Writer};
use fractal_model::{ChangeKind, Result, SandboxPath};
use fractal_store::Reads;

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
                && old.lstat(shown(&change.path)).is_ok_and(|stat| stat.kind != change.entry);
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
