//! From the tree in memory into the sandbox's top layer.
//!
//! The layer is built anew beside the old one and takes its place in one step:
//! whoever looks, and whoever comes after a kill or a full disk, finds one
//! moment of the tree and never a part of it.

use super::super::claim::prepare_scratch;
use super::super::place::Place;
use super::mounts::Mounts;
use crate::landing::{land, shown};
use crate::{Engine, living};
use fractal_fs::{Tree, Vfs};
use fractal_jail::layer::{Marks, View, Writer};
use fractal_model::{Change, ChangeKind, Error, Result, SandboxPath};
use fractal_store::Reads;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use std::path::Path;

/// Where the next tree of a layer is built, in the layer's directory.
const NEXT: &str = "next";

/// What the sandbox gets of the tree in memory.
pub(super) struct Work<'a> {
    pub(super) engine: &'a Engine,
    pub(super) place: &'a Place,
    pub(super) vfs: &'a Vfs,
    /// What the run began with, when the layer was empty.
    pub(super) start: Tree,
    /// What the sandbox has already.
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

    /// Gives the sandbox what it has not yet.
    pub(super) fn keep(&mut self) -> Result<()> {
        if self.place.in_memory.is_some() {
            return Ok(());
        }
        // Others may go on writing meanwhile: this is one moment of it.
        let now = self.vfs.tree();
        let vfs = self.vfs.at(&now);
        let own = |list: Vec<Change>| -> Vec<Change> {
            list.into_iter().filter(|change| !self.mounts.holds(&change.path)).collect()
        };
        if own(vfs.changes_since(&self.put)?).is_empty() {
            return Ok(());
        }
        let list = own(vfs.changes_since(&self.start)?);
        let (store, row) = (&self.engine.store, &self.place.row);
        // Whoever copies the layer finds it between two moments.
        let _hold = living::hold(self.engine, row, false)?.ok_or_else(|| {
            living::busy(row, "somebody copies what it holds, and does not come to an end")
        })?;
        let next = store.layer_dir(row.top).join(NEXT);
        let tree = store.layer_tree(row.top);
        let built = self.build(&vfs, &list, &tree, &next);
        let put =
            built.and_then(|()| exchange(&tree, &next).map_err(|error| failed(&next, &error)));
        // What is left of either belongs to nobody. Its directories may forbid
        // to be emptied, which the store knows how to do.
        let _ = store.discard_beside(row.top, NEXT);
        put?;
        self.put = now;
        Ok(())
    }

    fn build(&self, vfs: &Vfs, list: &[Change], tree: &Path, next: &Path) -> Result<()> {
        let (engine, row) = (self.engine, &self.place.row);
        engine.store.discard_beside(row.top, NEXT)?;
        let made = std::fs::create_dir(next)
            .and_then(|()| std::fs::metadata(tree))
            .and_then(|like| std::fs::set_permissions(next, like.permissions()));
        made.map_err(|error| failed(next, &error))?;
        if self.place.is_new && self.place.parent.is_none() {
            prepare_scratch(engine, &row.mounts, next)?;
        }
        let below = engine.store.layer(row.top)?.and_then(|top| top.below);
        let below: View = engine.views(row, below)?.common;
        let writer = Writer::open(next, &below, engine.marks() == Marks::Trusted)?;
        let old = self.vfs.at(&self.start);
        land(vfs, &writer, &below, list, |change| {
            let before = old.lstat(shown(&change.path));
            let turned = before.is_ok_and(|before| before.kind != change.entry);
            Ok(change.kind == ChangeKind::Modified && turned)
        })
    }
}

/// Puts one directory into the place of the other, at once where the
/// filesystem can.
fn exchange(tree: &Path, next: &Path) -> std::io::Result<()> {
    match rustix::fs::renameat_with(CWD, next, CWD, tree, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            let old = next.with_extension("old");
            std::fs::rename(tree, &old)?;
            std::fs::rename(next, tree).inspect_err(|_| drop(std::fs::rename(&old, tree)))?;
            // Where the other one would have left it.
            std::fs::rename(&old, next)
        }
        done => Ok(done?),
    }
}

fn failed(next: &Path, error: &std::io::Error) -> Error {
    Error::internal(format!("cannot write {}: {error}", next.display()))
        .hint("look at the state directory's disk with `fractal doctor`")
}
