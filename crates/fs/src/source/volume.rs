//! A host directory that is meant to be written and outlives sandboxes.

use super::host::{Host, WriteBack};
use super::{Ask, Edit, Item, Source};
use crate::error::{Fault, Kind};
use bytes::Bytes;
use fractal_model::SandboxPath;
use std::ops::Range;
use std::path::Path;

/// A volume as a source: what a view changes there reaches the host with
/// [`Vfs::write_back`](crate::Vfs::write_back).
pub struct Volume(Host);

impl Volume {
    /// Opens a volume's directory, which is made if it is not there.
    pub fn open(dir: impl AsRef<Path>) -> Result<Volume, Fault> {
        let dir = dir.as_ref();
        let made = std::fs::create_dir_all(dir);
        made.map_err(|error| Fault::because(Kind::Source, format!("{}: {error}", dir.display())))?;
        Ok(Volume(Host::open_for_writing(dir, &WriteBack::to(dir))?))
    }
}

impl Source for Volume {
    fn kind(&self) -> &str {
        "volume"
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn list(&self, at: &SandboxPath, ask: &Ask) -> Result<Vec<Item>, Fault> {
        self.0.list(at, ask)
    }

    fn read(&self, at: &SandboxPath, ask: &Ask) -> Result<Bytes, Fault> {
        self.0.read(at, ask)
    }

    fn read_range(
        &self,
        at: &SandboxPath,
        range: Range<u64>,
        ask: &Ask,
    ) -> Result<Option<Bytes>, Fault> {
        self.0.read_range(at, range, ask)
    }

    fn rereads(&self) -> bool {
        self.0.rereads()
    }

    fn write(&self, at: &SandboxPath, edit: &Edit, ask: &Ask) -> Result<(), Fault> {
        self.0.write(at, edit, ask)
    }
}
