//! Looking: nothing here changes anything.

use super::Vfs;
use crate::entry::{Entry, Stat};
use crate::path::{Place, text, work};
use crate::walk::{Walk, glob};
use fractal::model::EntryKind;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

#[pymethods]
impl Vfs {
    /// The whole content of a file.
    fn read<'py>(&self, py: Python<'py>, path: Place) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &work(py, || self.view.read(&path))?))
    }

    /// The whole content of a file, which is UTF-8.
    fn read_text<'py>(&self, py: Python<'py>, path: Place) -> PyResult<Bound<'py, PyAny>> {
        let bytes = work(py, || self.view.read(&path))?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(PyString::new(py, text).into_any()),
            // Python says what is wrong with it in its own words.
            Err(_) => PyBytes::new(py, &bytes).call_method1("decode", ("utf-8",)),
        }
    }

    /// The bytes from ``start`` up to ``end``; fewer at the end of the file.
    fn read_range<'py>(
        &self,
        py: Python<'py>,
        path: Place,
        start: u64,
        end: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        if start > end {
            return Err(PyValueError::new_err(format!("the range {start}..{end} runs backwards")));
        }
        Ok(PyBytes::new(py, &work(py, || self.view.read_range(&path, start..end))?))
    }

    /// The whole content of a file, and the version for ``write_if``.
    fn read_version<'py>(
        &self,
        py: Python<'py>,
        path: Place,
    ) -> PyResult<(Bound<'py, PyBytes>, u64)> {
        let (bytes, version) = work(py, || self.view.read_version(&path))?;
        Ok((PyBytes::new(py, &bytes), version))
    }

    /// What is known about an entry, through a symlink at its end.
    fn stat(&self, py: Python<'_>, path: Place) -> PyResult<Stat> {
        work(py, || self.view.stat(&path)).map(Stat::new)
    }

    /// The same for a symlink itself.
    fn lstat(&self, py: Python<'_>, path: Place) -> PyResult<Stat> {
        work(py, || self.view.lstat(&path)).map(Stat::new)
    }

    /// Whether a path leads to anything.
    fn exists(&self, py: Python<'_>, path: Place) -> bool {
        py.detach(|| self.view.exists(&path))
    }

    /// Whether a path leads to a directory.
    fn is_dir(&self, py: Python<'_>, path: Place) -> bool {
        self.is(py, &path, EntryKind::Directory)
    }

    /// Whether a path leads to a file.
    fn is_file(&self, py: Python<'_>, path: Place) -> bool {
        self.is(py, &path, EntryKind::File)
    }

    /// The names in a directory, in order.
    #[pyo3(signature = (path = Place::root()), text_signature = "($self, path='/')")]
    fn list<'py>(&self, py: Python<'py>, path: Place) -> PyResult<Bound<'py, PyList>> {
        let listed = work(py, || self.view.list(&path))?;
        PyList::new(py, listed.iter().map(|entry| text(py, entry.name.bytes())))
    }

    /// The entries of a directory with what is known about each, in order.
    #[pyo3(signature = (path = Place::root()), text_signature = "($self, path='/')")]
    fn scandir(&self, py: Python<'_>, path: Place) -> PyResult<Vec<Entry>> {
        let listed = work(py, || self.view.list_stat(&path))?;
        let entry =
            |(name, stat): (fractal_fs::Name, _)| Entry::new(py, path.bytes(), name.bytes(), stat);
        listed.into_iter().map(entry).collect()
    }

    /// Goes through a tree from the top down: ``(path, directories, others)``
    /// for each directory, as ``os.walk`` does.
    #[pyo3(signature = (top = Place::root()), text_signature = "($self, top='/')")]
    fn walk(&self, top: Place) -> Walk {
        Walk::new(self.view.clone(), top.bytes().to_vec())
    }

    /// All paths that a pattern matches, sorted: ``*``, ``?`` and ``[a-z]``
    /// within a name, ``**`` for any number of directories.
    fn glob<'py>(&self, py: Python<'py>, pattern: Place) -> PyResult<Bound<'py, PyList>> {
        let found = work(py, || glob(&self.view, pattern.bytes()))?;
        PyList::new(py, found.iter().map(|path| text(py, path)))
    }

    /// Where a symlink leads, as it was written.
    fn readlink<'py>(&self, py: Python<'py>, path: Place) -> PyResult<Bound<'py, PyString>> {
        Ok(text(py, &work(py, || self.view.read_link(&path))?))
    }

    /// The path without links and dots; the last name need not be there.
    fn resolve<'py>(&self, py: Python<'py>, path: Place) -> PyResult<Bound<'py, PyString>> {
        Ok(text(py, &work(py, || self.view.resolve(&path))?))
    }

    /// A file object, as ``io.open`` gives one: text or binary, buffered, with
    /// any of Python's modes.
    #[pyo3(signature = (path, mode = "r", *args, **kwargs))]
    #[pyo3(
        text_signature = "($self, path, mode='r', buffering=-1, encoding=None, errors=None, newline=None)"
    )]
    fn open<'py>(
        slf: &Bound<'py, Self>,
        path: Bound<'py, PyAny>,
        mode: &str,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, pyo3::types::PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let all =
            PyTuple::new(py, [slf.as_any().clone(), path, PyString::new(py, mode).into_any()])?;
        let all = all.as_sequence().concat(args.as_sequence())?.to_tuple()?;
        py.import("fractal._files")?.getattr("open_file")?.call(all, kwargs)
    }
}

impl Vfs {
    fn is(&self, py: Python<'_>, path: &Place, kind: EntryKind) -> bool {
        py.detach(|| self.view.stat(path).is_ok_and(|stat| stat.kind == kind))
    }
}
