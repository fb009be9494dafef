//! Forks, snapshots and changes.

use super::Vfs;
use crate::entry::Change;
use crate::path::work;
use crate::snapshot::Snapshot;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

#[pymethods]
impl Vfs {
    /// A view of its own that starts with what this one shows now, under the
    /// same rules and with the same mounts and commands. Takes no time,
    /// however large the view is.
    fn fork(&self) -> Vfs {
        // Letting go of the interpreter would take longer than a fork does,
        // and nobody who holds the view's lock waits for the interpreter.
        Vfs { view: self.view.fork(), commands: self.commands.copy() }
    }

    /// What it shows now, sealed.
    fn snapshot(&self) -> Snapshot {
        Snapshot(self.view.tree())
    }

    /// Shows a snapshot from now on. One that was made under other mounts is
    /// refused.
    fn restore(&self, py: Python<'_>, snapshot: PyRef<'_, Snapshot>) -> PyResult<()> {
        let tree = snapshot.0.clone();
        work(py, || self.view.restore(&tree))
    }

    /// A view of its own that starts with a snapshot, under our rules.
    fn at(&self, snapshot: PyRef<'_, Snapshot>) -> Vfs {
        Vfs { view: self.view.at(&snapshot.0), commands: self.commands.copy() }
    }

    /// Counts changes from here on.
    fn rebase(&self, py: Python<'_>) {
        py.detach(|| self.view.rebase());
    }

    /// How it differs from what it started from, or from a snapshot or another
    /// view, sorted by path. Takes as long as there are changes.
    #[pyo3(signature = (since = None))]
    fn changes(&self, py: Python<'_>, since: Option<Bound<'_, PyAny>>) -> PyResult<Vec<Change>> {
        let old = since.map(tree_of).transpose()?;
        let changes = work(py, || match old {
            None => self.view.changes(),
            Some(old) => self.view.changes_since(&old),
        })?;
        Ok(changes.iter().map(Change::new).collect())
    }
}

fn tree_of(given: Bound<'_, PyAny>) -> PyResult<fractal_fs::Tree> {
    if let Ok(snapshot) = given.cast::<Snapshot>() {
        return Ok(snapshot.get().0.clone());
    }
    if let Ok(other) = given.cast::<Vfs>() {
        let view = other.get().view.clone();
        return Ok(given.py().detach(|| view.tree()));
    }
    Err(PyTypeError::new_err("changes since what? a Snapshot or a Vfs"))
}
