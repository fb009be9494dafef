//! Sources at places, what may be done where, and the view as a directory.

use super::Vfs;
use crate::entry::Change;
use crate::mounted::Mounted;
use crate::path::{Place, shown, text, work};
use crate::source;
use fractal_fs::{Access, Freshness, Mount};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::time::Duration;

#[pymethods]
impl Vfs {
    /// Shows a source at a path; what was there is out of sight until
    /// ``unmount``.
    ///
    /// A source is a ``HostDir``, an ``Archive``, a ``GitCommit``, another
    /// ``Vfs`` (as it is now), or something that makes entries on demand: a
    /// table of paths and what makes the file or directory there, an object
    /// with ``read(context)`` and ``list(context)``, or a callable that does
    /// both.
    ///
    /// :param read_only: it can only be looked at
    /// :param max_age: ask the source again after so many seconds; without it
    ///     the source is asked once, and what it showed can be written over
    /// :param timeout: how many seconds a provider may take for one answer
    #[pyo3(signature = (path, source, *, read_only = false, max_age = None, timeout = None))]
    fn mount(
        &self,
        py: Python<'_>,
        path: Place,
        source: Bound<'_, PyAny>,
        read_only: bool,
        max_age: Option<f64>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let made = source::made(&source, timeout.map(seconds).transpose()?)?;
        let max_age = max_age.map(seconds).transpose()?.or(made.max_age);
        let mount = Mount {
            path: path.fixed()?,
            source: made.source,
            access: if read_only { Access::ReadOnly } else { Access::Writable },
            freshness: max_age.map_or(Freshness::Frozen, Freshness::Live),
        };
        work(py, || self.view.mount(mount))
    }

    /// Takes a mount away; what stood there before is there again.
    fn unmount(&self, py: Python<'_>, path: Place) -> PyResult<()> {
        let path = path.fixed()?;
        work(py, || self.view.unmount(&path))
    }

    /// What is mounted: ``(path, kind of source, description)`` each.
    fn mounts<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyString>, String, String)> {
        let all = py.detach(|| self.view.mounts());
        let told = all.iter().map(|mount| {
            let (kind, what) = (mount.source.kind().to_owned(), mount.source.describe());
            (text(py, &shown(&mount.path)), kind, what)
        });
        told.collect()
    }

    /// Writes what was changed in a mount of a ``HostDir`` that was opened
    /// with ``write_back=True`` to the host. Returns what was written, with
    /// paths below the mount.
    fn write_back(&self, py: Python<'_>, path: Place) -> PyResult<Vec<Change>> {
        let path = path.fixed()?;
        let written = work(py, || self.view.write_back(&path))?;
        Ok(written.iter().map(Change::new).collect())
    }

    /// What may be done at a path and below: ``"hidden"``, ``"read_only"``,
    /// ``"append_only"`` or ``"writable"``; ``None`` takes the rule away.
    fn set_access(&self, py: Python<'_>, path: Place, access: Option<&str>) -> PyResult<()> {
        let path = path.fixed()?;
        let access = access.map(self::access).transpose()?;
        py.detach(|| self.view.set_access(&path, access));
        Ok(())
    }

    /// Shows the view at a directory of the host, for all programs, until it
    /// is unmounted or this process ends. Use it with ``with``. Needs FUSE.
    #[pyo3(signature = (dir, *, read_only = false))]
    fn mount_at(&self, py: Python<'_>, dir: Place, read_only: bool) -> PyResult<Py<Mounted>> {
        Mounted::new(py, &self.view, &dir, read_only)
    }
}

fn access(word: &str) -> PyResult<Access> {
    match word {
        "hidden" => Ok(Access::Hidden),
        "read_only" => Ok(Access::ReadOnly),
        "append_only" => Ok(Access::AppendOnly),
        "writable" => Ok(Access::Writable),
        _ => Err(PyValueError::new_err(format!(
            "{word:?} is no access: use 'hidden', 'read_only', 'append_only', 'writable' or None"
        ))),
    }
}

/// A number of seconds as Python has them.
pub fn seconds(number: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(number)
        .map_err(|_| PyValueError::new_err(format!("{number} is no number of seconds")))
}
