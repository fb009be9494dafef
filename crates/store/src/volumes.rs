//! Volume directories: what outlives sandboxes.

use crate::{Result, Store, StoreError, tree};
use fractal_model::Name;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

impl Store {
    /// Where a volume's content is.
    pub fn volume_data(&self, name: &Name) -> PathBuf {
        self.volumes_dir().join(name.as_str()).join("data")
    }

    /// Makes a volume's directory; call it before its row is inserted. A
    /// directory that exists is taken over with its content, which is how a
    /// volume comes back whose row a repair could not read.
    pub fn new_volume_dir(&self, name: &Name) -> Result<PathBuf> {
        let data = self.volume_data(name);
        let made = fs::create_dir_all(&data)
            .and_then(|()| fs::set_permissions(&data, fs::Permissions::from_mode(0o755)));
        made.map_err(|error| StoreError::io("create", &data, error))?;
        Ok(data)
    }

    /// Throws a volume's directory away; one that is gone already is fine.
    /// Call it inside the transaction that deletes the row: a crash between
    /// the two then leaves an empty volume to remove again, and never old
    /// content under a new name.
    pub fn discard_volume(&self, name: &Name) -> Result<()> {
        self.discard(&self.volumes_dir().join(name.as_str()))
    }

    /// Disk space that a volume takes.
    pub fn volume_size(&self, name: &Name) -> Result<u64> {
        let data = self.volume_data(name);
        tree::measure(&data).map_err(|error| StoreError::io("measure", &data, error))
    }
}
