//! Volume directories: what outlives sandboxes.
//!
//! A volume of the local user is `volumes/<name>/`, one of a tenant
//! `volumes/<tenant>@<name>/`; no name has an `@` in it.

use crate::{Result, Store, StoreError, VolumeRow, tree};
use fractal_model::Name;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

impl Store {
    /// Where a volume's content is.
    pub fn volume_data(&self, tenant: &str, name: &Name) -> PathBuf {
        self.volume_dir(tenant, name).join("data")
    }

    fn volume_dir(&self, tenant: &str, name: &Name) -> PathBuf {
        let name = if tenant.is_empty() { name.to_string() } else { format!("{tenant}@{name}") };
        self.volumes_dir().join(name)
    }

    /// Makes a volume's directory; call it before its row is inserted. A
    /// directory that exists is taken over with its content, which is how a
    /// volume comes back whose row a repair could not read.
    pub fn new_volume_dir(&self, tenant: &str, name: &Name) -> Result<PathBuf> {
        let data = self.volume_data(tenant, name);
        let made = fs::create_dir_all(&data)
            .and_then(|()| fs::set_permissions(&data, fs::Permissions::from_mode(0o755)));
        made.map_err(|error| StoreError::io("create", &data, error))?;
        Ok(data)
    }

    /// Throws a volume's directory away; one that is gone already is fine.
    /// Call it inside the transaction that deletes the row: a crash between
    /// the two then leaves an empty volume to remove again, and never old
    /// content under a new name.
    pub fn discard_volume(&self, row: &VolumeRow) -> Result<()> {
        self.discard(&self.volume_dir(&row.tenant, &row.name))
    }

    /// Disk space that a volume takes.
    pub fn volume_size(&self, row: &VolumeRow) -> Result<u64> {
        let data = self.volume_data(&row.tenant, &row.name);
        tree::measure(&data).map_err(|error| StoreError::io("measure", &data, error))
    }
}
