//! What can be mounted.

use crate::data::Data;
use crate::errors::of_fault;
use crate::path::Place;
use crate::provider::{Maker, table};
use crate::vfs::Vfs;
use bytes::Bytes;
use fractal::model::SandboxPath;
use fractal_fs::{Git, Host, Other, Provider, ProviderBounds, Source, WriteBack};
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use std::sync::Arc;
use std::time::Duration;

/// A directory of the host. It is read when somebody looks, and never written
/// but by ``Vfs.write_back``. Links never lead out of the view.
///
/// :param live: show it as it is at each moment; otherwise as it is when it is
///     mounted, where a file that the host changes afterwards is refused
/// :param write_back: allow ``Vfs.write_back``
#[pyclass(frozen, module = "fractal")]
pub struct HostDir {
    source: Arc<Host>,
    live: bool,
}

#[pymethods]
impl HostDir {
    #[new]
    #[pyo3(signature = (path, live = false, *, write_back = false))]
    fn new(py: Python<'_>, path: Place, live: bool, write_back: bool) -> PyResult<HostDir> {
        let opened = py.detach(|| match write_back {
            true => Host::open_for_writing(path.host(), &WriteBack::to(path.host())),
            false => Host::open(path.host()),
        });
        let source = opened.map_err(|fault| of_fault(fault, path.bytes()))?;
        Ok(HostDir { source: Arc::new(source), live })
    }
}

/// A tar, tar.gz, tar.zst or zip archive, given by its path or as bytes.
#[pyclass(frozen, module = "fractal")]
pub struct Archive(Arc<fractal_fs::Archive>);

#[pymethods]
impl Archive {
    #[new]
    fn new(py: Python<'_>, archive: Bound<'_, PyAny>) -> PyResult<Archive> {
        crate::vfs::opened(py, &archive).map(|opened| Archive(Arc::new(opened)))
    }
}

/// The tree of a revision of a git repository, without a checkout.
#[pyclass(frozen, module = "fractal")]
pub struct GitCommit(Arc<Git>);

#[pymethods]
impl GitCommit {
    #[new]
    #[pyo3(signature = (repository, revision = "HEAD"))]
    fn new(py: Python<'_>, repository: Place, revision: &str) -> PyResult<GitCommit> {
        let opened = py.detach(|| Git::open(repository.host(), revision));
        let source = opened.map_err(|fault| of_fault(fault, repository.bytes()))?;
        Ok(GitCommit(Arc::new(source)))
    }
}

/// A file that is always the same, for a table of what makes entries.
#[pyclass(frozen, module = "fractal")]
pub struct Text(pub Bytes);

#[pymethods]
impl Text {
    #[new]
    fn new(text: Data) -> Text {
        Text(text.0)
    }
}

/// A source, and how long its answers hold unless the caller says otherwise.
pub struct Made {
    pub source: Arc<dyn Source>,
    pub max_age: Option<Duration>,
}

/// Whatever Python calls a source.
pub fn made(given: &Bound<'_, PyAny>, time_max: Option<Duration>) -> PyResult<Made> {
    if let Ok(dir) = given.cast::<HostDir>() {
        let max_age = dir.get().live.then_some(Duration::ZERO);
        return Ok(Made { source: dir.get().source.clone(), max_age });
    }
    let source: Arc<dyn Source> = if let Ok(archive) = given.cast::<Archive>() {
        archive.get().0.clone()
    } else if let Ok(commit) = given.cast::<GitCommit>() {
        commit.get().0.clone()
    } else if let Ok(other) = given.cast::<Vfs>() {
        Arc::new(Other::sealed(&other.get().view, &SandboxPath::root()))
    } else {
        Arc::new(provider(given, time_max)?)
    };
    Ok(Made { source, max_age: None })
}

fn provider(given: &Bound<'_, PyAny>, time_max: Option<Duration>) -> PyResult<Provider> {
    let usual = ProviderBounds::default();
    let bounds = ProviderBounds { time_max: time_max.unwrap_or(usual.time_max), ..usual };
    let empty = Provider::new(bounds);
    match given.cast::<PyMapping>() {
        Ok(rows) => table(rows, empty),
        Err(_) => {
            let maker = Maker::new(given)?;
            empty.dir("/", maker).map_err(|fault| of_fault(fault, b"/"))
        }
    }
}
