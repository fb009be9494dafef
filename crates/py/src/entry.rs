//! What is told about entries and changes.

use crate::path::{Place, shown, text};
use fractal::model::{self, ChangeKind, EntryKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// What is known about an entry. The fields that `os.stat` has too are called
/// the same.
#[pyclass(frozen, module = "fractal", eq)]
#[derive(PartialEq, Eq)]
pub struct Stat(fractal_fs::Stat);

impl Stat {
    pub fn new(stat: fractal_fs::Stat) -> Stat {
        Stat(stat)
    }
}

#[pymethods]
impl Stat {
    /// ``"file"``, ``"directory"`` or ``"symlink"``.
    #[getter]
    fn kind(&self) -> &'static str {
        kind(self.0.kind)
    }

    /// Type and permission bits, as in ``os.stat``.
    #[getter]
    fn st_mode(&self) -> u32 {
        let kind = match self.0.kind {
            EntryKind::Directory => 0o040_000,
            EntryKind::Symlink => 0o120_000,
            EntryKind::File | EntryKind::Special => 0o100_000,
        };
        kind | self.0.meta.mode
    }

    /// The same for all names of one file, and for nothing else.
    #[getter]
    fn st_ino(&self) -> u64 {
        self.0.inode
    }

    /// How many names it has.
    #[getter]
    fn st_nlink(&self) -> u32 {
        self.0.names
    }

    /// The owner's number.
    #[getter]
    fn st_uid(&self) -> u32 {
        self.0.meta.uid
    }

    /// The group's number.
    #[getter]
    fn st_gid(&self) -> u32 {
        self.0.meta.gid
    }

    /// Bytes of content; of a link, its target's length.
    #[getter]
    fn st_size(&self) -> u64 {
        self.0.size
    }

    /// When the content was written, in seconds since 1970.
    #[getter]
    fn st_mtime(&self) -> f64 {
        self.0.meta.modified_ns as f64 / 1e9
    }

    /// When the content was written, in nanoseconds since 1970.
    #[getter]
    fn st_mtime_ns(&self) -> i64 {
        self.0.meta.modified_ns
    }

    /// When anything about it changed, in nanoseconds since 1970.
    #[getter]
    fn st_ctime_ns(&self) -> i64 {
        self.0.meta.changed_ns
    }

    /// Bytes of content in memory: less than ``st_size`` where there are
    /// holes or nobody has asked the source yet.
    #[getter]
    fn held(&self) -> u64 {
        self.0.held
    }

    /// For ``Vfs.write_if``; 0 for anything but files.
    #[getter]
    fn version(&self) -> u64 {
        self.0.version
    }

    /// Whether it is a directory.
    fn is_dir(&self) -> bool {
        self.0.kind == EntryKind::Directory
    }

    /// Whether it is a file.
    fn is_file(&self) -> bool {
        self.0.kind == EntryKind::File
    }

    /// Whether it is a symlink.
    fn is_symlink(&self) -> bool {
        self.0.kind == EntryKind::Symlink
    }

    fn __repr__(&self) -> String {
        let (mode, size) = (self.st_mode(), self.0.size);
        format!("Stat(kind='{}', st_mode=0o{mode:o}, st_size={size})", self.kind())
    }
}

/// One entry of a directory.
#[pyclass(frozen, module = "fractal")]
pub struct Entry {
    /// Its name.
    #[pyo3(get)]
    name: Py<PyString>,
    /// Where it stands.
    #[pyo3(get)]
    path: Py<PyString>,
    /// What is known about it; of a symlink, about the link itself.
    #[pyo3(get)]
    stat: Py<Stat>,
}

impl Entry {
    pub fn new(py: Python<'_>, dir: &[u8], name: &[u8], stat: fractal_fs::Stat) -> PyResult<Entry> {
        Ok(Entry {
            name: text(py, name).unbind(),
            path: text(py, &crate::path::below(dir, name)).unbind(),
            stat: Py::new(py, Stat(stat))?,
        })
    }
}

#[pymethods]
impl Entry {
    /// Whether it is a directory.
    fn is_dir(&self) -> bool {
        self.stat.get().is_dir()
    }

    /// Whether it is a file.
    fn is_file(&self) -> bool {
        self.stat.get().is_file()
    }

    /// Whether it is a symlink.
    fn is_symlink(&self) -> bool {
        self.stat.get().is_symlink()
    }

    fn __fspath__(&self, py: Python<'_>) -> Py<PyString> {
        self.path.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Entry({})", self.path.bind(py).repr()?))
    }
}

/// How one path differs.
#[pyclass(frozen, module = "fractal", eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct Change {
    path: Vec<u8>,
    kind: ChangeKind,
    entry: EntryKind,
    mode: u32,
    size: u64,
    autorun: bool,
}

impl Change {
    pub fn new(change: &model::Change) -> Change {
        Change {
            path: shown(&change.path),
            kind: change.kind,
            entry: change.entry,
            mode: change.mode,
            size: change.size_bytes,
            autorun: change.autorun,
        }
    }
}

#[pymethods]
impl Change {
    #[new]
    #[pyo3(signature = (path, kind, entry = "file", mode = 0o644, size = 0, autorun = false))]
    #[pyo3(text_signature = "(path, kind, entry='file', mode=0o644, size=0, autorun=False)")]
    fn of_words(
        path: Place,
        kind: &str,
        entry: &str,
        mode: u32,
        size: u64,
        autorun: bool,
    ) -> PyResult<Change> {
        let (kind, entry) = (word(kind)?, word(entry)?);
        Ok(Change { path: path.bytes().to_vec(), kind, entry, mode, size, autorun })
    }

    /// Where, from the root.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, &self.path)
    }

    /// ``"added"``, ``"modified"`` or ``"deleted"``.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.kind {
            ChangeKind::Added => "added",
            ChangeKind::Modified => "modified",
            ChangeKind::Deleted => "deleted",
        }
    }

    /// ``"file"``, ``"directory"`` or ``"symlink"``: what stands there now, or
    /// stood there before it was deleted.
    #[getter]
    fn entry(&self) -> &'static str {
        kind(self.entry)
    }

    /// Permission bits.
    #[getter]
    fn mode(&self) -> u32 {
        self.mode
    }

    /// Bytes of content now.
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is a file of a sandbox that runs by itself, as git hooks do.
    #[getter]
    fn autorun(&self) -> bool {
        self.autorun
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Change({}, '{}')", self.path(py).repr()?, self.kind()))
    }
}

/// A word of the model's closed lists.
fn word<T: serde::de::DeserializeOwned>(word: &str) -> PyResult<T> {
    serde_json::from_value(word.into()).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink => "symlink",
        EntryKind::Special => "special",
    }
}
