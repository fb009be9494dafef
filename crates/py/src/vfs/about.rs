//! Mode, owner, time and extended attributes.

use super::Vfs;
use crate::data::Data;
use crate::path::{Place, text, work};
use fractal_fs::NewMeta;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

#[pymethods]
impl Vfs {
    /// Sets permission bits.
    fn chmod(&self, py: Python<'_>, path: Place, mode: u32) -> PyResult<()> {
        self.set(py, &path, NewMeta { mode: Some(mode), ..NewMeta::default() })
    }

    /// Sets owner and group.
    fn chown(&self, py: Python<'_>, path: Place, uid: u32, gid: u32) -> PyResult<()> {
        self.set(py, &path, NewMeta { uid: Some(uid), gid: Some(gid), ..NewMeta::default() })
    }

    /// Sets when the content was written, in nanoseconds since 1970.
    #[pyo3(signature = (path, *, mtime_ns))]
    fn utime(&self, py: Python<'_>, path: Place, mtime_ns: i64) -> PyResult<()> {
        self.set(py, &path, NewMeta { modified_ns: Some(mtime_ns), ..NewMeta::default() })
    }

    /// One extended attribute.
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: Place,
        name: Place,
    ) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &work(py, || self.view.xattr(&path, name.bytes()))?))
    }

    /// The names of all extended attributes.
    fn listxattr<'py>(&self, py: Python<'py>, path: Place) -> PyResult<Bound<'py, PyList>> {
        let names = work(py, || self.view.xattrs(&path))?;
        PyList::new(py, names.iter().map(|name| text(py, name)))
    }

    /// Sets an extended attribute.
    fn setxattr(&self, py: Python<'_>, path: Place, name: Place, value: Data) -> PyResult<()> {
        work(py, || self.view.set_xattr(&path, name.bytes(), &value.0))
    }

    /// Removes an extended attribute.
    fn removexattr(&self, py: Python<'_>, path: Place, name: Place) -> PyResult<()> {
        work(py, || self.view.remove_xattr(&path, name.bytes()))
    }
}

impl Vfs {
    fn set(&self, py: Python<'_>, path: &Place, new: NewMeta) -> PyResult<()> {
        work(py, || self.view.set_meta(path, new))
    }
}
