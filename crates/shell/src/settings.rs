//! What a shell starts with.

use crate::command::Command;
use std::sync::Arc;
use std::time::Duration;

/// How a [`crate::Shell`] is set up.
#[derive(Clone)]
pub struct Settings {
    /// Exported variables.
    pub env: Vec<(String, String)>,
    /// Where it starts; the shell does not make the directory.
    pub cwd: String,
    /// The name of the user with number 1000, as which everything runs.
    pub user: String,
    /// The most bytes that each of standard output and standard error keeps.
    pub output_bytes_max: usize,
    /// The longest that one run may take.
    pub time_max: Duration,
    /// The most bytes of intermediate values at one moment: variables,
    /// arrays, and what stands between two commands of a pipeline. Files
    /// have their own limit in the tree.
    pub memory_bytes_max: usize,
    /// The most bytes that a Python program may take; without the feature
    /// `python` there is none.
    pub python_memory_bytes_max: usize,
    /// What the command `fork` does; only the engine around the shell knows.
    pub fork: Option<Arc<dyn Command>>,
    /// What the command `run-native` does.
    pub run_native: Option<Arc<dyn Command>>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            env: Vec::new(),
            cwd: "/".into(),
            user: "user".into(),
            output_bytes_max: 16 << 20,
            time_max: Duration::from_secs(120),
            memory_bytes_max: 256 << 20,
            python_memory_bytes_max: 512 << 20,
            fork: None,
            run_native: None,
        }
    }
}
