//! The native half of the Python package `fractal`.
//!
//! It hands the views of `fractal-fs`, the shell of `fractal-shell` and the
//! verbs of the engine to Python, one file per subject, and holds no rule of
//! its own. Every call that works lets go of the interpreter meanwhile, so
//! that other threads go on and a provider written in Python can answer.
//! Python's half is `python/fractal`: files, sandboxes, async, fsspec.

mod command;
mod context;
mod data;
mod engine;
mod entry;
mod errors;
mod interrupt;
mod mounted;
mod path;
mod provider;
mod running;
mod shell;
mod snapshot;
mod source;
mod tools;
mod vfs;
mod walk;

/// What Python imports as `fractal._fractal`.
#[pyo3::pymodule]
mod _fractal {
    #[pymodule_export]
    use crate::command::Call;
    #[pymodule_export]
    use crate::context::Context;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::entry::{Change, Entry, Stat};
    #[pymodule_export]
    use crate::mounted::Mounted;
    #[pymodule_export]
    use crate::provider::Item;
    #[pymodule_export]
    use crate::running::Running;
    #[pymodule_export]
    use crate::shell::{CommandResult, Shell};
    #[pymodule_export]
    use crate::snapshot::{Snapshot, load_snapshots};
    #[pymodule_export]
    use crate::source::{Archive, GitCommit, HostDir, Text};
    #[pymodule_export]
    use crate::tools::Tools;
    #[pymodule_export]
    use crate::vfs::Vfs;
    #[pymodule_export]
    use crate::walk::Walk;
}
