//! The class `Vfs`: one file per subject.

mod about;
mod history;
mod mounts;
mod read;
mod scripts;
mod transfer;
mod write;

pub use transfer::opened;

use crate::command::Commands;
use fractal_fs::Limits;
use pyo3::prelude::*;

/// A filesystem in memory.
///
/// Paths are those of the view; nothing in it leads to the host. All methods
/// may be called from many threads, and let go of the interpreter while they
/// work.
///
/// :param bytes_max: the most bytes of content in memory
/// :param entries_max: the most files, directories and links
/// :param who: the name that providers are told
#[pyclass(frozen, module = "fractal")]
pub struct Vfs {
    pub view: fractal_fs::Vfs,
    pub commands: Commands,
}

impl Vfs {
    /// Another handle of a view.
    pub fn of(view: fractal_fs::Vfs) -> Vfs {
        Vfs { view, commands: Commands::default() }
    }
}

#[pymethods]
impl Vfs {
    #[new]
    #[pyo3(signature = (*, bytes_max = None, entries_max = None, who = None))]
    fn new(bytes_max: Option<u64>, entries_max: Option<u64>, who: Option<&str>) -> Vfs {
        let usual = Limits::default();
        let view = fractal_fs::Vfs::new(Limits {
            bytes_max: bytes_max.unwrap_or(usual.bytes_max),
            entries_max: entries_max.unwrap_or(usual.entries_max),
        });
        if let Some(who) = who {
            view.set_who(who);
        }
        Vfs::of(view)
    }

    /// The name that providers are told from now on.
    fn set_who(&self, py: Python<'_>, who: &str) {
        py.detach(|| self.view.set_who(who));
    }

    /// Who owns what is made from now on.
    fn set_owner(&self, py: Python<'_>, uid: u32, gid: u32) {
        py.detach(|| self.view.set_owner(uid, gid));
    }

    /// How much it may hold, as ``(bytes, entries)``.
    #[getter]
    fn limits(&self, py: Python<'_>) -> (u64, u64) {
        let limits = py.detach(|| self.view.limits());
        (limits.bytes_max, limits.entries_max)
    }

    /// Sets how much it may hold; what is there already stays.
    #[pyo3(signature = (*, bytes_max = None, entries_max = None))]
    fn set_limits(&self, py: Python<'_>, bytes_max: Option<u64>, entries_max: Option<u64>) {
        py.detach(|| {
            let now = self.view.limits();
            self.view.set_limits(Limits {
                bytes_max: bytes_max.unwrap_or(now.bytes_max),
                entries_max: entries_max.unwrap_or(now.entries_max),
            });
        });
    }

    /// What it holds, as ``(bytes, entries)``.
    #[getter]
    fn usage(&self, py: Python<'_>) -> (u64, u64) {
        let usage = py.detach(|| self.view.usage());
        (usage.bytes, usage.entries)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (bytes, entries) = self.usage(py);
        format!("<fractal.Vfs: {entries} entries, {bytes} bytes>")
    }
}
