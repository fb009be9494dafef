//! What another view shows.

use super::{Ask, Item, ItemKind, Source, Stamp};
use crate::error::{Fault, FsError};
use crate::view::Vfs;
use bytes::Bytes;
use fractal_model::{EntryKind, SandboxPath};
use std::ops::Range;

/// A directory of another view as a source. Its own rules hold: what is
/// hidden there is hidden here.
pub struct Other {
    view: Vfs,
    below: SandboxPath,
}

impl Other {
    /// What the view shows now, whatever becomes of it.
    pub fn sealed(view: &Vfs, below: &SandboxPath) -> Other {
        Other { view: view.fork(), below: below.clone() }
    }

    /// What the view shows whenever somebody looks; mount it live.
    pub fn following(view: &Vfs, below: &SandboxPath) -> Other {
        Other { view: view.clone(), below: below.clone() }
    }

    fn path(&self, at: &SandboxPath) -> Vec<u8> {
        let path = at.moved(&SandboxPath::root(), &self.below);
        crate::error::shown(&path.unwrap_or_else(|| self.below.clone()))
    }
}

fn fault(error: FsError) -> Fault {
    Fault { kind: error.kind, reason: error.reason }
}

impl Source for Other {
    fn kind(&self) -> &str {
        "view"
    }

    fn describe(&self) -> String {
        self.below.to_string()
    }

    fn list(&self, at: &SandboxPath, _: &Ask) -> Result<Vec<Item>, Fault> {
        let dir = self.path(at);
        let mut items = Vec::new();
        for (name, stat) in self.view.list_stat(&dir).map_err(fault)? {
            let kind = match stat.kind {
                EntryKind::Directory => ItemKind::Dir,
                EntryKind::File => ItemKind::File(Some(stat.size)),
                EntryKind::Special => continue,
                EntryKind::Symlink => {
                    let path = [&dir[..], b"/", name.bytes()].concat();
                    ItemKind::Link(self.view.read_link(path).map_err(fault)?)
                }
            };
            items.push(Item {
                name: name.bytes().to_vec(),
                kind,
                mode: Some(stat.meta.mode),
                owner: Some((stat.meta.uid, stat.meta.gid)),
                modified_ns: Some(stat.meta.modified_ns),
                stamp: (stat.version != 0).then_some(Stamp(stat.version.into())),
            });
        }
        Ok(items)
    }

    fn read(&self, at: &SandboxPath, _: &Ask) -> Result<Bytes, Fault> {
        self.view.read(self.path(at)).map_err(fault)
    }

    fn read_range(
        &self,
        at: &SandboxPath,
        range: Range<u64>,
        _: &Ask,
    ) -> Result<Option<Bytes>, Fault> {
        self.view.read_range(self.path(at), range).map(Some).map_err(fault)
    }
}
