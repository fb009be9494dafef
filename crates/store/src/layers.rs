//! Layer directories: made before their row, discarded after it.
//!
//! What is inside `tree` is the runner's business. The store makes it,
//! flushes it, measures it and throws it away.

use crate::{Result, Store, StoreError, new_id, tree};
use fractal_model::Id;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Start of the names of files that say "written since the last flush".
const DIRTY: &str = "dirty-";

/// Put into layers that a lossy repair could not place; `gc` spares them.
pub(crate) const SALVAGED: &str = "salvaged";

/// A lock on a layer's directory.
#[derive(Debug)]
pub struct LayerHold {
    _dir: Option<OwnedFd>,
}

impl Store {
    /// A layer's directory.
    pub fn layer_dir(&self, id: Id) -> PathBuf {
        directory(self.home(), id)
    }

    /// Where a layer's changes are.
    pub fn layer_tree(&self, id: Id) -> PathBuf {
        tree(self.home(), id)
    }

    /// Scratch space for whoever writes the layer.
    pub fn layer_work(&self, id: Id) -> PathBuf {
        self.layer_dir(id).join("work")
    }

    /// Makes the directory of a new layer. Insert its row within ten minutes:
    /// `gc` takes older directories without a row for leftovers.
    pub fn new_layer_dir(&self, id: Id) -> Result<()> {
        let (tree, work) = (self.layer_tree(id), self.layer_work(id));
        for path in [&self.layer_dir(id), &tree, &work] {
            fs::create_dir(path).map_err(|error| StoreError::io("create", path, error))?;
        }
        // The mode of the tree is what programs inside see on their root
        // directory, so the caller's umask must not reach it.
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o755))
            .map_err(|error| StoreError::io("set the mode of", &tree, error))
    }

    /// Makes a layer's content survive a power cut. Costs nothing when every
    /// run that wrote it has been flushed since.
    pub fn sync_layer(&self, id: Id) -> Result<()> {
        let path = self.layer_dir(id);
        let markers = dirty_markers(&path)?;
        if markers.is_empty() {
            return Ok(());
        }
        // One call for the filesystem: flushing file by file would open
        // whatever a program left there.
        rustix::fs::open(
            &path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .and_then(rustix::fs::syncfs)
        .map_err(|error| StoreError::io("sync", &path, error))?;
        markers.iter().try_for_each(|marker| match fs::remove_file(marker) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(StoreError::io("remove", marker, error))
            }
            _ => Ok(()),
        })
    }

    /// Says that a run (by its label) is about to write a layer. One marker
    /// per run, so that flushing after one run never clears another's.
    pub fn dirty_layer(&self, id: Id, label: &str) -> Result<()> {
        let marker = self.layer_dir(id).join(format!("{DIRTY}{label}"));
        fs::write(&marker, "").map_err(|error| StoreError::io("write", &marker, error))
    }

    /// Keeps others from writing a layer anew (`alone`), or says that we are
    /// about to. `None` when that clashes with what somebody else does. It
    /// ends with the value, or with this process.
    pub fn hold_layer(&self, id: Id, alone: bool) -> Result<Option<LayerHold>> {
        let path = self.layer_dir(id);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(&path, flags, Mode::empty()) {
            // A power cut may take a fresh directory and leave its row.
            Err(Errno::NOENT) => return Ok(Some(LayerHold { _dir: None })),
            other => other.map_err(|error| StoreError::io("open", &path, error))?,
        };
        let how = match alone {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        match rustix::fs::flock(&dir, how) {
            Ok(()) => Ok(Some(LayerHold { _dir: Some(dir) })),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            Err(error) => Err(StoreError::io("lock", &path, error)),
        }
    }

    /// Throws a layer's directory away; one that is gone already is fine. It
    /// leaves its place at once; what cannot be deleted stays in the trash,
    /// where `gc` tries again.
    pub fn discard_layer(&self, id: Id) -> Result<()> {
        self.discard(&self.layer_dir(id))
    }

    /// Throws away one entry of a layer's work directory.
    pub fn discard_work(&self, id: Id, name: &str) -> Result<()> {
        self.discard(&self.layer_work(id).join(name))
    }

    /// Throws away what was built beside a layer's tree.
    pub fn discard_beside(&self, id: Id, name: &str) -> Result<()> {
        self.discard(&self.layer_dir(id).join(name))
    }

    /// Throws away all of a layer's work directory, whatever rights a kernel or
    /// a program that was killed left there. What cannot be moved stays.
    pub fn clear_work(&self, id: Id) {
        for entry in fs::read_dir(self.layer_work(id)).into_iter().flatten().flatten() {
            let _ = self.discard(&entry.path());
        }
    }

    /// Disk space that a layer takes.
    pub fn layer_size(&self, id: Id) -> Result<u64> {
        let path = self.layer_tree(id);
        tree::measure(&path).map_err(|error| StoreError::io("measure", &path, error))
    }

    pub(crate) fn discard(&self, path: &Path) -> Result<()> {
        if let Some(name) = self.move_to_trash(path)? {
            let _ = tree::remove(&self.trash_dir(), name);
        }
        Ok(())
    }

    /// Returns the new name, or `None` when there was nothing to move.
    pub(crate) fn move_to_trash(&self, path: &Path) -> Result<Option<CString>> {
        let target = self.trash_dir().join(new_id().as_str());
        match fs::rename(path, &target) {
            Err(error) if error.kind() == ErrorKind::NotFound && !path.exists() => Ok(None),
            Err(error) => Err(StoreError::io("move to the trash", path, error)),
            Ok(()) => Ok(target.file_name().and_then(|name| CString::new(name.as_bytes()).ok())),
        }
    }
}

fn dirty_markers(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).map_err(|error| StoreError::io("read", dir, error))?;
    let is_marker =
        |entry: &fs::DirEntry| entry.file_name().as_bytes().starts_with(DIRTY.as_bytes());
    Ok(entries.flatten().filter(is_marker).map(|entry| entry.path()).collect())
}

/// A layer's directory below a home.
pub(crate) fn directory(home: &Path, id: Id) -> PathBuf {
    home.join("layers").join(id.as_str())
}

/// Its tree.
pub(crate) fn tree(home: &Path, id: Id) -> PathBuf {
    directory(home, id).join("tree")
}
