//! Directories with what is remembered about a sandbox's base. What they hold
//! is the engine's business; they go with the sandbox.

use crate::{Result, Store};
use fractal_model::Id;
use std::path::PathBuf;

impl Store {
    /// Where they lie, by the id of their sandbox.
    pub fn bases_dir(&self) -> PathBuf {
        self.home().join("bases")
    }

    /// The directory of one sandbox; made by whoever writes to it first.
    pub fn base_dir(&self, sandbox: Id) -> PathBuf {
        self.bases_dir().join(sandbox.as_str())
    }

    /// Throws it away; one that is not there is fine.
    pub fn discard_base(&self, sandbox: Id) -> Result<()> {
        self.discard(&self.base_dir(sandbox))
    }
}
