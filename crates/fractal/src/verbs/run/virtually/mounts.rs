//! What a sandbox mounts over itself, in the virtual world.
//!
//! What can only be read is asked for when it is read, as a real mount would
//! show it. What can be written is a tree of its own that goes back to its
//! volume or directory with what the script did there, entry by entry; an
//! entry that somebody else changed meanwhile stays as they left it.

use super::super::spec::placed;
use crate::Engine;
use crate::view::path_of;
use fractal_fs::{Access, Fault, Freshness, Host, Mount, Source, Vfs, Volume, WriteBack};
use fractal_model::{MountSource, Policy, Result, SandboxPath};
use fractal_store::SandboxRow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long what a host directory said is taken for true.
const AGE: Duration = Duration::from_secs(1);

/// Where something is mounted that is not in the sandbox's layers.
#[derive(Default)]
pub(super) struct Mounts {
    /// All of it.
    all: Vec<SandboxPath>,
    /// What goes back to where it came from.
    pub(super) back: Vec<SandboxPath>,
}

impl Mounts {
    pub(super) fn holds(&self, path: &SandboxPath) -> bool {
        self.all.iter().any(|at| path.is_within(at))
    }
}

/// Mounts what the sandbox's template asked for.
pub(super) fn mount_all(
    engine: &Engine,
    row: &SandboxRow,
    policy: &Policy,
    vfs: &Vfs,
) -> Result<Mounts> {
    let mut mounts = Mounts::default();
    for mount in &row.mounts {
        // Scratch space is part of the layers.
        let Some(dir) = placed(engine, &row.tenant, mount)?.source else { continue };
        let at = SandboxPath::parse(&mount.at)?;
        let writes = mount.access == fractal_model::MountAccess::Write;
        let opened = open(&mount.source, writes, &dir);
        let source = opened.map_err(|fault| fault.at(mount.at.as_bytes()))?;
        let (access, freshness) = match writes {
            true => (Access::Writable, Freshness::Frozen),
            false => (Access::ReadOnly, Freshness::Live(AGE)),
        };
        vfs.mount(Mount { path: at.clone(), source, access, freshness })?;
        hide(policy, vfs, &dir, &at)?;
        if writes {
            mounts.back.push(at.clone());
        }
        mounts.all.push(at);
    }
    Ok(mounts)
}

fn open(
    source: &MountSource,
    writes: bool,
    dir: &Path,
) -> std::result::Result<Arc<dyn Source>, Fault> {
    Ok(match (source, writes) {
        (MountSource::Volume(_), true) => Arc::new(Volume::open(dir)?),
        (_, true) => Arc::new(Host::open_for_writing(dir, &WriteBack::to(dir))?),
        (_, false) => Arc::new(Host::open(dir)?),
    })
}

/// What is hidden is hidden also where its directory is shown once more.
fn hide(policy: &Policy, vfs: &Vfs, dir: &Path, at: &SandboxPath) -> Result<()> {
    let dir = path_of(dir)?;
    for hidden in &policy.hidden {
        if let Some(path) = SandboxPath::parse(hidden)?.moved(&dir, at) {
            vfs.set_access(&path, Some(Access::Hidden));
        }
    }
    Ok(())
}
