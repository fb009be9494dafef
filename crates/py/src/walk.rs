//! Going through a tree, directory by directory.

use crate::path::{self, Place, below, text, work};
use fractal::model::EntryKind;
use fractal_fs::Vfs;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One directory: where it is, its directories, and everything else in it.
type Step<'py> = (Bound<'py, PyString>, Bound<'py, PyList>, Bound<'py, PyList>);

/// Goes through a tree from the top down, as ``os.walk`` does: whoever takes a
/// name out of the list of directories is not led there.
#[pyclass(frozen, module = "fractal")]
pub struct Walk {
    view: Vfs,
    state: Mutex<State>,
}

struct State {
    waiting: Vec<Vec<u8>>,
    /// The directory that was shown last, and the list that its caller may
    /// have changed.
    last: Option<(Vec<u8>, Py<PyList>)>,
}

impl Walk {
    pub fn new(view: Vfs, top: Vec<u8>) -> Walk {
        Walk { view, state: Mutex::new(State { waiting: vec![top], last: None }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Walk {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Step<'py>>> {
        // Python decides what the names are; no lock is held meanwhile.
        let mut below = Vec::new();
        let last = self.state().last.take();
        if let Some((dir, names)) = last {
            for name in names.bind(py) {
                let name: Place = name.extract()?;
                below.push(path::below(&dir, name.bytes()));
            }
        }
        let next = {
            let mut state = self.state();
            state.waiting.extend(below.into_iter().rev());
            state.waiting.pop()
        };
        let Some(dir) = next else { return Ok(None) };
        let listed = work(py, || self.view.list(&dir))?;
        let (dirs, others) = (PyList::empty(py), PyList::empty(py));
        for entry in &listed {
            let into = if entry.kind == EntryKind::Directory { &dirs } else { &others };
            into.append(text(py, entry.name.bytes()))?;
        }
        let shown = text(py, &dir);
        self.state().last = Some((dir, dirs.clone().unbind()));
        Ok(Some((shown, dirs, others)))
    }
}

/// All paths that a pattern matches, sorted: ``*``, ``?`` and ``[a-z]`` within
/// a name, ``**`` for any number of directories.
pub fn glob(view: &Vfs, pattern: &[u8]) -> Result<Vec<Vec<u8>>, fractal_fs::FsError> {
    let parts: Vec<&[u8]> = pattern.split(|byte| *byte == b'/').filter(|p| !p.is_empty()).collect();
    let mut found = Vec::new();
    step(view, b"/".to_vec(), &parts, &mut found)?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn step(
    view: &Vfs,
    dir: Vec<u8>,
    parts: &[&[u8]],
    found: &mut Vec<Vec<u8>>,
) -> Result<(), fractal_fs::FsError> {
    let Some((part, rest)) = parts.split_first() else {
        found.push(dir);
        return Ok(());
    };
    if *part == b"**" {
        step(view, dir.clone(), rest, found)?;
    } else if !part.iter().any(|byte| b"*?[\\".contains(byte)) {
        let path = below(&dir, part);
        if view.lstat(&path).is_ok() {
            return step(view, path, rest, found);
        }
        return Ok(());
    }
    for entry in view.list(&dir)? {
        let (name, path) = (entry.name.bytes(), below(&dir, entry.name.bytes()));
        if *part == b"**" {
            // Links are not followed: they may lead in circles.
            if entry.kind == EntryKind::Directory {
                step(view, path, parts, found)?;
            } else if rest.is_empty() {
                found.push(path);
            }
        } else if fractal_fs::glob_matches(part, name) && !hides(part, name) {
            let leads = entry.kind == EntryKind::Directory
                || (!rest.is_empty() && view.stat(&path).is_ok_and(is_dir));
            if leads || rest.is_empty() {
                step(view, path, rest, found)?;
            }
        }
    }
    Ok(())
}

fn is_dir(stat: fractal_fs::Stat) -> bool {
    stat.kind == EntryKind::Directory
}

/// As in a shell, names with a dot in front want one in the pattern.
fn hides(pattern: &[u8], name: &[u8]) -> bool {
    name.first() == Some(&b'.') && pattern.first() != Some(&b'.')
}
