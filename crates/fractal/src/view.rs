//! What a sandbox sees, assembled from its rows for reading.

use crate::verbs::run::without_mount_points;
use crate::{Cancel, Engine};
use fractal_jail::layer::{self, Bounds, Changes, Layer, Marks, View, adopt_whole};
use fractal_model::{Id, Result, SandboxPath};
use fractal_store::{LayerRow, Reads, SandboxRow};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A sandbox beside the layer that it is compared with.
pub struct Views {
    /// What both stand on.
    pub common: View,
    /// The sandbox's layers above that, top first.
    pub own: Vec<Layer>,
    /// The other one's layers above that: none where the sandbox stands on it,
    /// as it does on its base.
    pub beside: Vec<Layer>,
}

impl Views {
    /// The same, until nobody waits any more for what is read.
    #[must_use]
    pub fn wanted_until(mut self, cancel: &Cancel) -> Views {
        self.common.called_off = Some(cancel.flag());
        self
    }

    /// What a program inside sees.
    pub fn top(&self) -> View {
        self.common.with_layers_on_top(&self.own)
    }

    /// What it is compared with.
    pub fn base(&self) -> View {
        self.common.with_layers_on_top(&self.beside)
    }

    /// What differs.
    pub fn changes(&self, bounds: &Bounds) -> Result<Changes> {
        Ok(match self.beside.is_empty() {
            true => layer::changes(&self.own, &self.common, bounds)?,
            false => layer::changes_between(&self.own, &self.beside, &self.common, bounds)?,
        })
    }
}

impl Engine {
    /// A sandbox beside its base, or beside another layer (a snapshot).
    pub(crate) fn views(&self, row: &SandboxRow, base: Option<Id>) -> Result<Views> {
        let own = self.store.stack(row.top)?;
        let other = base.map_or(Ok(Vec::new()), |base| self.store.stack(base))?;
        self.adopt_copies(row, &own)?;
        self.adopt_copies(row, &other)?;
        let shared = own.iter().rev().zip(other.iter().rev());
        let shared = shared.take_while(|(one, two)| one.id == two.id).count();
        let open = |layers: &[LayerRow]| -> Result<Vec<Layer>> {
            let open = |layer: &LayerRow| Layer::open(&self.store.layer_tree(layer.id));
            layers.iter().map(|layer| Ok(open(layer)?.marked_by(self.marks()))).collect()
        };
        let (own, common) = own.split_at(own.len() - shared);
        Ok(Views {
            common: self.host_view(row, open(common)?)?,
            own: open(own)?,
            beside: open(&other[..other.len() - shared])?,
        })
    }

    /// Whether the top holds no change, so that giving it up loses nothing. A
    /// run leaves directories there that are as they are below. Looks at a
    /// few entries and little content: what it cannot tell is a change.
    pub(crate) fn top_is_unchanged(&self, row: &SandboxRow) -> Result<bool> {
        let few = Bounds { entries_max: 512, depth_max: 64, bytes_max: 1 << 20 };
        // Listing a large directory to the end would take longer than this may.
        let top = Layer::open(&self.store.layer_tree(row.top))?;
        let usage = layer::disk_usage(&top, &few)?;
        if usage.truncated || usage.unreadable > 0 {
            return Ok(false);
        }
        let below = self.store.layer(row.top)?.and_then(|top| top.below);
        let mut found = self.views(row, below)?.changes(&few)?;
        without_mount_points(&mut found.list, &row.mounts)?;
        Ok(found.list.is_empty() && !found.truncated && found.unreadable == 0)
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
        let host = Some(Layer::open(Path::new("/"))?);
        Ok(View { layers, host, host_hidden: hidden, ..View::default() })
    }
}

/// A host path as a path inside.
pub fn path_of(path: &Path) -> Result<SandboxPath> {
    SandboxPath::parse(path.as_os_str().as_bytes())
}
