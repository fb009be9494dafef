//! Whole trees in and out.

use super::Vfs;
use crate::errors::of_fault;
use crate::path::{Place, work};
use crate::snapshot::{Snapshot, load, of_io};
use fractal::model::SandboxPath;
use fractal_fs::{Archive, ArchiveBounds, FsError};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping};
use std::fs::File;
use std::io::{BufWriter, Write};

#[pymethods]
impl Vfs {
    /// A new view with a copy of a directory of the host.
    #[staticmethod]
    fn from_dir(py: Python<'_>, dir: Place) -> PyResult<Vfs> {
        Vfs::filled(py, |view| view.import_dir(&SandboxPath::root(), dir.host()))
    }

    /// A new view with what an archive holds: tar, tar.gz, tar.zst or zip,
    /// given by its path or as bytes.
    #[staticmethod]
    fn from_archive(py: Python<'_>, archive: Bound<'_, PyAny>) -> PyResult<Vfs> {
        let archive = opened(py, &archive)?;
        Vfs::filled(py, |view| view.import_archive(&SandboxPath::root(), &archive))
    }

    /// A new view with what JSON tells.
    #[staticmethod]
    fn from_json(py: Python<'_>, json: &str) -> PyResult<Vfs> {
        Vfs::filled(py, |view| view.import_json(&SandboxPath::root(), json.as_bytes()))
    }

    /// Copies a directory of the host to a path where nothing is yet, or an
    /// empty directory. Returns how many entries there were.
    #[pyo3(signature = (dir, path = Place::root()), text_signature = "($self, dir, path='/')")]
    fn import_dir(&self, py: Python<'_>, dir: Place, path: Place) -> PyResult<u64> {
        let path = path.fixed()?;
        work(py, || self.view.import_dir(&path, dir.host()))
    }

    /// Unpacks an archive, given by its path or as bytes, at a path where
    /// nothing is yet. Returns how many entries there were.
    #[pyo3(signature = (archive, path = Place::root()))]
    #[pyo3(text_signature = "($self, archive, path='/')")]
    fn import_archive(
        &self,
        py: Python<'_>,
        archive: Bound<'_, PyAny>,
        path: Place,
    ) -> PyResult<u64> {
        let (archive, path) = (opened(py, &archive)?, path.fixed()?);
        work(py, || self.view.import_archive(&path, &archive))
    }

    /// Makes what JSON tells at a path where nothing is yet. Returns how many
    /// entries there were.
    #[pyo3(signature = (json, path = Place::root()), text_signature = "($self, json, path='/')")]
    fn import_json(&self, py: Python<'_>, json: &str, path: Place) -> PyResult<u64> {
        let path = path.fixed()?;
        work(py, || self.view.import_json(&path, json.as_bytes()))
    }

    /// Copies all below a path into a directory of the host, which is made for
    /// it and must not be there.
    #[pyo3(signature = (dir, path = Place::root()), text_signature = "($self, dir, path='/')")]
    fn export_dir(&self, py: Python<'_>, dir: Place, path: Place) -> PyResult<()> {
        let path = path.fixed()?;
        work(py, || self.view.export_dir(&path, dir.host()))
    }

    /// Writes all below a path as a tar into a file of the host.
    #[pyo3(signature = (file, path = Place::root()), text_signature = "($self, file, path='/')")]
    fn export_tar(&self, py: Python<'_>, file: Place, path: Place) -> PyResult<()> {
        let path = path.fixed()?;
        written(py, &file, |out| self.view.export_tar(&path, out))
    }

    /// Writes all below a path as a zip into a file of the host.
    #[pyo3(signature = (file, path = Place::root()), text_signature = "($self, file, path='/')")]
    fn export_zip(&self, py: Python<'_>, file: Place, path: Place) -> PyResult<()> {
        let path = path.fixed()?;
        written(py, &file, |out| self.view.export_zip(&path, out))
    }

    /// All below a path as JSON.
    #[pyo3(signature = (path = Place::root()), text_signature = "($self, path='/')")]
    fn export_json(&self, py: Python<'_>, path: Place) -> PyResult<String> {
        let path = path.fixed()?;
        work(py, || self.view.export_json(&path))
    }

    /// Writes snapshots with their names into a file of the host, and what
    /// they share once. Without any, what the view shows now, as ``"now"``.
    #[pyo3(signature = (file, snapshots = None))]
    fn save(
        &self,
        py: Python<'_>,
        file: Place,
        snapshots: Option<Bound<'_, PyMapping>>,
    ) -> PyResult<()> {
        let named = match snapshots {
            Some(named) => {
                let rows = named.items()?;
                let rows = rows.iter().map(|row| {
                    let (name, snapshot) = row.extract::<(String, Bound<'_, Snapshot>)>()?;
                    Ok((name, snapshot.get().0.clone()))
                });
                rows.collect::<PyResult<Vec<_>>>()?
            }
            None => vec![("now".to_owned(), py.detach(|| self.view.tree()))],
        };
        let trees: Vec<(&str, &fractal_fs::Tree)> =
            named.iter().map(|(name, tree)| (name.as_str(), tree)).collect();
        written(py, &file, |out| fractal_fs::save(&self.view, &trees, out))
    }

    /// A new view of a snapshot in a file that ``save`` wrote.
    #[staticmethod]
    #[pyo3(signature = (file, name = "now"))]
    fn load(py: Python<'_>, file: Place, name: &str) -> PyResult<Vfs> {
        let trees = load(py, &file)?;
        let tree = trees.into_iter().find(|(known, _)| known == name).map(|(_, tree)| tree);
        let tree = tree.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(Vfs::of(fractal_fs::Vfs::default().at(&tree)))
    }
}

impl Vfs {
    /// A new view that calls what was put into it its base.
    fn filled(
        py: Python<'_>,
        fill: impl FnOnce(&fractal_fs::Vfs) -> Result<u64, FsError> + Send,
    ) -> PyResult<Vfs> {
        let view = fractal_fs::Vfs::default();
        work(py, || fill(&view))?;
        view.rebase();
        Ok(Vfs::of(view))
    }
}

/// Bytes are an archive; anything else is the path of one.
pub fn opened(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<Archive> {
    let bounds = ArchiveBounds::default();
    if let Ok(bytes) = given.cast::<PyBytes>() {
        let bytes = bytes::Bytes::copy_from_slice(bytes.as_bytes());
        let opened = py.detach(|| Archive::of_bytes(bytes, bounds));
        return opened.map_err(|fault| of_fault(fault, b"archive"));
    }
    let file: Place = given.extract()?;
    let opened = py.detach(|| Archive::open(file.host(), bounds));
    opened.map_err(|fault| of_fault(fault, file.bytes()))
}

/// A file of the host, written to its end. One that could not be written as a
/// whole is taken away again.
fn written(
    py: Python<'_>,
    file: &Place,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), FsError> + Send,
) -> PyResult<()> {
    let made = File::create(file.host()).map_err(|error| of_io(&error, file))?;
    let mut out = BufWriter::new(made);
    let done = work(py, || write(&mut out));
    let done = done.and_then(|()| out.flush().map_err(|error| of_io(&error, file)));
    if done.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(file.host());
    }
    done
}
