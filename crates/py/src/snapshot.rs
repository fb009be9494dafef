//! Sealed trees.

use crate::errors::of_fault;
use crate::path::{Place, work};
use fractal_fs::{Fault, Kind, LoadBounds, Tree};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;

/// What a view showed at one moment. It costs nothing to make and to keep but
/// what was changed since.
#[pyclass(frozen, module = "fractal")]
pub struct Snapshot(pub Tree);

/// The snapshots in a file that ``Vfs.save`` wrote, by their names.
#[pyfunction]
pub fn load_snapshots(py: Python<'_>, file: Place) -> PyResult<BTreeMap<String, Py<Snapshot>>> {
    let trees = load(py, &file)?;
    let named = trees.into_iter().map(|(name, tree)| Ok((name, Py::new(py, Snapshot(tree))?)));
    named.collect()
}

pub fn load(py: Python<'_>, file: &Place) -> PyResult<Vec<(String, Tree)>> {
    let opened = File::open(file.host()).map_err(|error| of_io(&error, file))?;
    work(py, || fractal_fs::load(BufReader::new(opened), LoadBounds::default()))
}

/// A file of the host that cannot be opened or made.
pub fn of_io(error: &std::io::Error, file: &Place) -> PyErr {
    match error.raw_os_error() {
        Some(number) => pyo3::exceptions::PyOSError::new_err((
            number,
            error.to_string(),
            file.host().as_os_str().to_owned(),
        )),
        None => of_fault(Fault::because(Kind::Source, error.to_string()), file.bytes()),
    }
}
