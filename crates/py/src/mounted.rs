//! A view that is mounted as a directory of the host.

use crate::errors::of_engine;
use crate::path::{Place, text};
use fractal_fs::fuse::{self, MountError, Options};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A view as a directory of the host, until it is unmounted.
#[pyclass(frozen, module = "fractal")]
pub struct Mounted {
    dir: PathBuf,
    mount: Mutex<Option<fuse::Mounted>>,
}

impl Mounted {
    pub fn new(
        py: Python<'_>,
        view: &fractal_fs::Vfs,
        dir: &Place,
        read_only: bool,
    ) -> PyResult<Py<Mounted>> {
        let options = Options { read_only, ..Options::default() };
        let mount = py.detach(|| {
            // What a process that was killed left there is in nobody's use.
            fuse::clean(dir.host())?;
            fuse::mount(view, dir.host(), options)
        });
        let mount = mount.map_err(|error| raise(py, error))?;
        let dir = mount.dir().to_owned();
        let mounted = Py::new(py, Mounted { dir, mount: Mutex::new(Some(mount)) })?;
        // A mount whose process is gone says so to everyone who looks there.
        let end = mounted.bind(py).getattr("unmount")?;
        py.import("atexit")?.call_method1("register", (end,))?;
        Ok(mounted)
    }

    fn end(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let taken = slf.get().mount.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mount) = taken else { return Ok(()) };
        py.import("atexit")?.call_method1("unregister", (slf.getattr("unmount")?,))?;
        py.detach(|| mount.unmount()).map_err(|error| raise(py, error))
    }
}

#[pymethods]
impl Mounted {
    /// Where it is mounted.
    #[getter]
    fn dir<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, self.dir.as_os_str().as_bytes())
    }

    /// Waits until programs see everything that was written into the view by
    /// other ways until now.
    fn sync(&self, py: Python<'_>) {
        py.detach(|| {
            if let Some(mount) = &*self.mount.lock().unwrap_or_else(PoisonError::into_inner) {
                mount.sync();
            }
        });
    }

    /// Unmounts it, whoever uses it. Doing it again does nothing.
    fn unmount(slf: &Bound<'_, Self>) -> PyResult<()> {
        Mounted::end(slf)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        slf: &Bound<'_, Self>,
        _kind: Py<PyAny>,
        _error: Py<PyAny>,
        _trace: Py<PyAny>,
    ) -> PyResult<()> {
        Mounted::end(slf)
    }
}

fn raise(py: Python<'_>, error: MountError) -> PyErr {
    of_engine(py, error.into())
}
