//! Entries that Python makes when somebody looks.
//!
//! A provider works on a thread of its own that waits for the interpreter,
//! which whoever asks has let go of; so it may read the view that it serves.

use crate::context::Context;
use crate::data::Data;
use crate::path::{Place, text};
use fractal_fs::{ItemKind, Made, Names, Provide};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString, PyTuple};

/// One name that a provider lists.
#[pyclass(frozen, module = "fractal")]
pub struct Item(fractal_fs::Item);

#[pymethods]
impl Item {
    /// A file; its size, if it is known without making it.
    #[staticmethod]
    #[pyo3(signature = (name, size = None, *, mode = None, mtime_ns = None))]
    fn file(name: Place, size: Option<u64>, mode: Option<u32>, mtime_ns: Option<i64>) -> Item {
        let item = fractal_fs::Item::new(name.bytes(), ItemKind::File(size));
        Item(fractal_fs::Item { mode, modified_ns: mtime_ns, ..item })
    }

    /// A directory.
    #[staticmethod]
    #[pyo3(signature = (name, *, mode = None, mtime_ns = None))]
    fn dir(name: Place, mode: Option<u32>, mtime_ns: Option<i64>) -> Item {
        let item = fractal_fs::Item::dir(name.bytes());
        Item(fractal_fs::Item { mode, modified_ns: mtime_ns, ..item })
    }

    /// A symlink.
    #[staticmethod]
    fn link(name: Place, target: Place) -> Item {
        Item(fractal_fs::Item::link(name.bytes(), target.bytes()))
    }

    /// Its name.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, &self.0.name)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let kind = match self.0.kind {
            ItemKind::Dir => "dir",
            ItemKind::File(_) => "file",
            ItemKind::Link(_) => "link",
        };
        Ok(format!("Item.{kind}({})", self.name(py).repr()?))
    }
}

/// Something of Python that makes entries.
pub struct Maker {
    read: Option<Py<PyAny>>,
    list: Option<Py<PyAny>>,
    find: Option<Py<PyAny>>,
}

impl Maker {
    /// An object with `read`, `list` and `find`, as far as it has them, or a
    /// callable that does it all.
    pub fn new(given: &Bound<'_, PyAny>) -> PyResult<Maker> {
        let method = |name: &str| -> PyResult<Option<Py<PyAny>>> {
            let found = given.getattr_opt(name)?.filter(|found| found.is_callable());
            Ok(found.map(Bound::unbind))
        };
        let maker = Maker { read: method("read")?, list: method("list")?, find: method("find")? };
        if maker.read.is_some() || maker.list.is_some() {
            return Ok(maker);
        }
        if given.is_callable() {
            let call = given.clone().unbind();
            let list = Some(call.clone_ref(given.py()));
            return Ok(Maker { read: Some(call), list, find: None });
        }
        let kind = given.get_type().qualname()?;
        Err(PyTypeError::new_err(format!(
            "a {kind} makes no entries: give a callable, or an object with read(context) or list(context)"
        )))
    }

    /// Whether it makes a directory.
    pub fn lists(&self) -> bool {
        self.list.is_some()
    }

    fn ask<T>(
        &self,
        method: &Option<Py<PyAny>>,
        wants: &'static str,
        context: &fractal_fs::Context,
        take: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, String> {
        let method = method.as_ref().ok_or_else(|| format!("it has no method `{wants}`"))?;
        let answer = Python::try_attach(|py| {
            let asked = Context::new(py, context, wants)
                .and_then(|told| method.bind(py).call1((told,)))
                .and_then(|answer| take(&answer));
            asked.map_err(|error| words(py, &error))
        });
        answer.unwrap_or_else(|| Err("Python is ending".to_owned()))
    }
}

impl Provide for Maker {
    fn list(&self, context: &fractal_fs::Context) -> Result<Names, String> {
        let names = self.ask(&self.list, "list", context, items)?;
        Ok(Box::new(names.into_iter()))
    }

    fn read(&self, context: &fractal_fs::Context) -> Result<Made, String> {
        let take = |answer: &Bound<'_, PyAny>| Ok(answer.extract::<Data>()?.0);
        self.ask(&self.read, "read", context, take).map(Made::Bytes)
    }

    fn find(&self, context: &fractal_fs::Context) -> Result<Option<fractal_fs::Item>, String> {
        let take = |answer: &Bound<'_, PyAny>| match answer.is_none() {
            true => Ok(None),
            false => item(answer).map(Some),
        };
        self.ask(&self.find, "find", context, take)
    }

    fn has_unlisted(&self) -> bool {
        self.find.is_some()
    }
}

/// The most names that are taken from an iterator that may go on for ever;
/// the view has its own, lower bound and says so.
const NAMES_MAX: usize = 1_000_000;

fn items(answer: &Bound<'_, PyAny>) -> PyResult<Vec<fractal_fs::Item>> {
    answer.try_iter()?.take(NAMES_MAX).map(|name| item(&name?)).collect()
}

/// A name with a slash at its end is a directory, any other a file; an `Item`
/// says more.
fn item(name: &Bound<'_, PyAny>) -> PyResult<fractal_fs::Item> {
    if let Ok(item) = name.cast::<Item>() {
        return Ok(item.get().0.clone());
    }
    let name: Place = name.extract()?;
    Ok(match name.bytes().strip_suffix(b"/") {
        Some(dir) => fractal_fs::Item::dir(dir),
        None => fractal_fs::Item::file(name.bytes()),
    })
}

/// An exception in a line: its class and what it says.
pub fn words(py: Python<'_>, error: &PyErr) -> String {
    let kind = error.get_type(py);
    let kind = kind.qualname().map_or_else(|_| "exception".to_owned(), |kind| kind.to_string());
    match error.value(py).str() {
        Ok(text) if !text.to_string_lossy().is_empty() => {
            format!("{kind}: {}", text.to_string_lossy())
        }
        _ => kind,
    }
}

/// A table of paths and what makes the entry there.
pub fn table(
    given: &Bound<'_, PyMapping>,
    mut provider: fractal_fs::Provider,
) -> PyResult<fractal_fs::Provider> {
    for row in given.items()? {
        let row = row.cast::<PyTuple>()?;
        let (path, value) = (row.get_item(0)?.extract::<Place>()?, row.get_item(1)?);
        let done = if let Ok(fixed) = value.cast::<crate::source::Text>() {
            provider.file(path.bytes(), fractal_fs::Text::new(fixed.get().0.clone()))
        } else if let Ok(content) = value.extract::<Data>() {
            provider.file(path.bytes(), fractal_fs::Text::new(content.0))
        } else {
            let maker = Maker::new(&value)?;
            // In a table a plain callable makes one file.
            match maker.lists() && !value.is_callable() {
                true => provider.dir(path.bytes(), maker),
                false => provider.file(path.bytes(), maker),
            }
        };
        provider = done.map_err(|fault| crate::errors::of_fault(fault, path.bytes()))?;
    }
    Ok(provider)
}
