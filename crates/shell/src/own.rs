//! What our own commands know besides their call.

use crate::command::{Command, Output};
use fractal_fs::Tree;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub(crate) struct Own {
    /// The name of the user with number 1000.
    pub(crate) user: String,
    /// What `snap` sealed in this session.
    pub(crate) snapshots: Mutex<BTreeMap<String, Tree>>,
    #[cfg(feature = "python")]
    pub(crate) python: crate::python::Bounds,
    /// What a command had said when the script was stopped; bashkit forgets
    /// it then, and where it would have gone.
    pub(crate) last_words: Mutex<Option<Output>>,
    pub(crate) fork: Option<Arc<dyn Command>>,
    pub(crate) run_native: Option<Arc<dyn Command>>,
}

impl Own {
    /// A user's or group's number as people read it.
    pub(crate) fn owner(&self, id: u32) -> String {
        match id {
            0 => "root".into(),
            1000 => self.user.clone(),
            id => id.to_string(),
        }
    }

    /// The other way round; numbers stand for themselves.
    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        match name {
            "root" => Some(0),
            name if name == self.user => Some(1000),
            name => name.parse().ok(),
        }
    }
}
