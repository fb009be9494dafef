//! Changing what the view shows.

use super::Vfs;
use crate::data::Data;
use crate::path::{Place, work};
use fractal_fs::Kind;
use pyo3::prelude::*;

#[pymethods]
impl Vfs {
    /// Makes a file or replaces its content; returns its new version.
    ///
    /// :param parents: make the directories above it as well
    #[pyo3(signature = (path, data, *, parents = false))]
    fn write(&self, py: Python<'_>, path: Place, data: Data, parents: bool) -> PyResult<u64> {
        work(py, || match parents {
            true => self.view.write_all(&path, data.0),
            false => self.view.write(&path, data.0),
        })
    }

    /// Writes a file if its version is still the one given, where 0 stands for
    /// "it is not there"; ``OSError`` with ``errno.ESTALE`` if it is not.
    /// Returns the new version.
    fn write_if(&self, py: Python<'_>, path: Place, data: Data, version: u64) -> PyResult<u64> {
        work(py, || self.view.write_if(&path, data.0, version))
    }

    /// Writes at the end of a file, which is made if it is not there.
    fn append(&self, py: Python<'_>, path: Place, data: Data) -> PyResult<()> {
        work(py, || self.view.append(&path, &data.0))
    }

    /// Writes into a file at a place, stretching it if need be.
    fn write_at(&self, py: Python<'_>, path: Place, offset: u64, data: Data) -> PyResult<()> {
        work(py, || self.view.write_at(&path, offset, &data.0))
    }

    /// Cuts a file, or stretches it with zeros that take no memory.
    fn truncate(&self, py: Python<'_>, path: Place, size: u64) -> PyResult<()> {
        work(py, || self.view.truncate(&path, size))
    }

    /// Makes an empty file that must not be there yet.
    #[pyo3(signature = (path, mode = 0o644), text_signature = "($self, path, mode=0o644)")]
    fn create(&self, py: Python<'_>, path: Place, mode: u32) -> PyResult<()> {
        work(py, || self.view.create(&path, mode))
    }

    /// Makes a directory.
    ///
    /// :param parents: make those above it as well
    /// :param exist_ok: one that is there already is no error
    #[pyo3(signature = (path, mode = 0o755, *, parents = false, exist_ok = false))]
    #[pyo3(text_signature = "($self, path, mode=0o755, *, parents=False, exist_ok=False)")]
    fn mkdir(
        &self,
        py: Python<'_>,
        path: Place,
        mode: u32,
        parents: bool,
        exist_ok: bool,
    ) -> PyResult<()> {
        work(py, || {
            if parents && let Some(above) = above(path.bytes()) {
                self.view.make_dir_all(above)?;
            }
            match self.view.make_dir(&path, mode) {
                Err(error) if exist_ok && error.kind == Kind::Exists => {
                    self.view.make_dir_all(&path)
                }
                done => done,
            }
        })
    }

    /// Removes a file or symlink.
    fn remove(&self, py: Python<'_>, path: Place) -> PyResult<()> {
        work(py, || self.view.remove_file(&path))
    }

    /// Removes a directory that is empty.
    fn rmdir(&self, py: Python<'_>, path: Place) -> PyResult<()> {
        work(py, || self.view.remove_dir(&path))
    }

    /// Removes whatever is there, with all below it.
    fn remove_all(&self, py: Python<'_>, path: Place) -> PyResult<()> {
        work(py, || self.view.remove_all(&path))
    }

    /// Moves an entry, over a file or an empty directory that is there.
    fn rename(&self, py: Python<'_>, src: Place, dst: Place) -> PyResult<()> {
        work(py, || self.view.rename(&src, &dst))
    }

    /// Copies a file, sharing its content until one of them is written.
    fn copy(&self, py: Python<'_>, src: Place, dst: Place) -> PyResult<()> {
        work(py, || self.view.copy_file(&src, &dst))
    }

    /// Makes a symlink at ``dst`` that leads to ``src``, as ``os.symlink``.
    fn symlink(&self, py: Python<'_>, src: Place, dst: Place) -> PyResult<()> {
        work(py, || self.view.symlink(&dst, src.bytes()))
    }

    /// Gives the file ``src`` another name, ``dst``.
    fn link(&self, py: Python<'_>, src: Place, dst: Place) -> PyResult<()> {
        work(py, || self.view.link(&src, &dst))
    }
}

/// The directory that a path names an entry of.
fn above(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|byte| *byte != b'/')?;
    let cut = path[..=end].iter().rposition(|byte| *byte == b'/')?;
    Some(&path[..cut]).filter(|above| !above.is_empty())
}
