//! Contents: `str` is UTF-8, everything else is bytes.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping, PyMemoryView, PyString};
use std::collections::BTreeMap;

/// What is to be written.
pub struct Data(pub Bytes);

impl FromPyObject<'_, '_> for Data {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Data> {
        if let Ok(text) = given.cast::<PyString>() {
            return Ok(Data(Bytes::copy_from_slice(text.to_str()?.as_bytes())));
        }
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Data(Bytes::copy_from_slice(bytes.as_bytes())));
        }
        // Whatever else has bytes: bytearray, memoryview, array, mmap.
        let view = PyMemoryView::from(&given)?;
        let bytes = view.call_method0("tobytes")?;
        Ok(Data(Bytes::copy_from_slice(bytes.cast::<PyBytes>()?.as_bytes())))
    }
}

/// Exported variables, from any mapping: `os.environ` is no `dict`.
pub struct Variables(pub BTreeMap<String, String>);

impl FromPyObject<'_, '_> for Variables {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Variables> {
        let rows = given.cast::<PyMapping>()?.items()?;
        let rows = rows.iter().map(|row| row.extract());
        rows.collect::<PyResult<_>>().map(Variables)
    }
}
