//! What a sandbox sees, assembled from its rows for reading.

use crate::Engine;
use fractal_jail::layer::{Layer, Marks, View, adopt_whole};
use fractal_model::{Id, Result, SandboxPath};
use fractal_store::{LayerRow, Reads, SandboxRow};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A sandbox's own layers (top first) and what they stand on.
pub struct Views {
    /// Layers above the base, top first.
    pub own: Vec<Layer>,
    /// Everything below.
    pub base: View,
}

impl Views {
    /// The whole: what a program inside sees.
    pub fn top(&self) -> View {
        self.base.with_layers_on_top(&self.own)
    }
}

impl Engine {
    /// Views of a sandbox against its base, or against another layer of its
    /// stack (a snapshot).
    pub(crate) fn views(&self, row: &SandboxRow, base: Option<Id>) -> Result<Views> {
        let stack = self.store.stack(row.top)?;
        self.adopt_copies(row, &stack)?;
        let cut = match base {
            None => stack.len(),
            Some(base) => stack.iter().position(|layer| layer.id == base).unwrap_or(stack.len()),
        };
        let open = |ids: &[LayerRow]| -> Result<Vec<Layer>> {
            ids.iter()
                .map(|layer| {
                    Ok(Layer::open(&self.store.layer_tree(layer.id))?.marked_by(self.marks()))
                })
                .collect()
        };
        Ok(Views { own: open(&stack[..cut])?, base: self.host_view(row, open(&stack[cut..])?)? })
    }

    /// Root's overlays read marks that only privileges can write; copies made
    /// without them get theirs before the first look.
    pub(crate) fn adopt_copies(&self, row: &SandboxRow, stack: &[LayerRow]) -> Result<()> {
        if self.marks() != Marks::Trusted {
            return Ok(());
        }
        let project = path_of(&row.directory)?;
        for layer in stack {
            adopt_whole(&self.store.layer_dir(layer.id), &project)?;
        }
        Ok(())
    }

    /// Whether nothing was written since the last seal.
    pub(crate) fn top_is_empty(&self, row: &SandboxRow) -> Result<bool> {
        Ok(Layer::open(&self.store.layer_tree(row.top))?.is_empty())
    }

    /// The host under some layers, without what a run never takes from it.
    pub(crate) fn host_view(&self, row: &SandboxRow, layers: Vec<Layer>) -> Result<View> {
        let mut hidden: Vec<SandboxPath> = fractal_jail::host::PRIVATE_TOPS
            .iter()
            .map(SandboxPath::parse)
            .collect::<Result<_>>()?;
        hidden.push(path_of(self.home())?);
        for path in &row.policy.hidden {
            hidden.push(SandboxPath::parse(path)?);
        }
        for mount in &row.mounts {
            // Scratch shows nothing of the host; what is mounted from
            // elsewhere is not part of the layers at all.
            hidden.push(SandboxPath::parse(&mount.at)?);
        }
        Ok(View { layers, host: Some(Layer::open(Path::new("/"))?), host_hidden: hidden })
    }
}

/// A host path as a path inside.
pub fn path_of(path: &Path) -> Result<SandboxPath> {
    SandboxPath::parse(path.as_os_str().as_bytes())
}
