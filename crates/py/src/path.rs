//! Paths and names: bytes with us, text with Python.
//!
//! A byte that is no UTF-8 is a lone surrogate in Python, as everywhere there.

use fractal::model::SandboxPath;
use fractal_fs::FsError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A path as Python writes one: `str`, `bytes` or anything with `__fspath__`.
pub struct Place(Vec<u8>);

impl Place {
    pub fn root() -> Place {
        Place(b"/".to_vec())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same for what stands at one place and takes neither links nor dots.
    pub fn fixed(&self) -> PyResult<SandboxPath> {
        SandboxPath::parse(&self.0).map_err(|error| PyValueError::new_err(error.message))
    }

    /// The same as a path of the host.
    pub fn host(&self) -> &std::path::Path {
        std::path::Path::new(OsStr::from_bytes(&self.0))
    }
}

impl AsRef<[u8]> for Place {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl FromPyObject<'_, '_> for Place {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Place> {
        let bytes = if let Ok(text) = given.cast::<PyString>() {
            match text.to_str() {
                Ok(text) => text.as_bytes().to_vec(),
                Err(_) => given.extract::<OsString>()?.into_vec(),
            }
        } else if let Ok(bytes) = given.cast::<PyBytes>() {
            bytes.as_bytes().to_vec()
        } else {
            let path = given.call_method0("__fspath__")?;
            return path.extract();
        };
        if bytes.contains(&0) {
            return Err(PyValueError::new_err("embedded null byte"));
        }
        Ok(Place(bytes))
    }
}

/// Bytes of a name or path as Python's text.
pub fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    match std::str::from_utf8(bytes) {
        Ok(text) => PyString::new(py, text),
        Err(_) => {
            let Ok(text) = OsStr::from_bytes(bytes).into_pyobject(py) as Result<_, Infallible>;
            text
        }
    }
}

/// Where an entry of a directory stands.
pub fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        [.., b'/'] => [dir, name].concat(),
        _ => [dir, b"/", name].concat(),
    }
}

/// The way a path of the tree is shown: from its root.
pub fn shown(path: &SandboxPath) -> Vec<u8> {
    [b"/", path.relative()].concat()
}

/// Lets go of the interpreter while a view works, and raises what it says.
pub fn work<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, FsError> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(crate::errors::of_fs)
}
