//! What a provider is told.

use crate::path::{shown, text};
use crate::vfs::Vfs;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Who asks a provider, and for what.
#[pyclass(frozen, module = "fractal", get_all)]
pub struct Context {
    /// Where the entry stands in the view.
    path: Py<PyString>,
    /// The same below the place that the provider serves, from ``/``.
    at: Py<PyString>,
    /// The name the view goes by.
    who: String,
    /// The view that is read; the provider may read it too.
    view: Py<Vfs>,
    /// ``"read"`` for the content of a file, ``"list"`` for the names of a
    /// directory, ``"find"`` for a name that was not listed.
    wants: &'static str,
    /// After how many seconds nobody waits any more.
    seconds_left: f64,
}

impl Context {
    pub fn new(
        py: Python<'_>,
        context: &fractal_fs::Context,
        wants: &'static str,
    ) -> PyResult<Context> {
        let left = context.deadline.saturating_duration_since(std::time::Instant::now());
        Ok(Context {
            path: text(py, &shown(&context.path)).unbind(),
            at: text(py, &shown(&context.at)).unbind(),
            who: context.who.to_string(),
            view: Py::new(py, Vfs::of(context.view.clone()))?,
            wants,
            seconds_left: left.as_secs_f64(),
        })
    }
}
