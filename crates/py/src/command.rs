//! Commands of scripts that are callables of Python.

use crate::data::Data;
use crate::path::text;
use crate::shell::CommandResult;
use crate::vfs::Vfs;
use fractal_shell::{Command, Output};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// What scripts of a view can call, by name.
#[derive(Default)]
pub struct Commands(Mutex<BTreeMap<String, Arc<Py<PyAny>>>>);

impl Commands {
    pub fn add(&self, name: &str, command: Py<PyAny>) -> PyResult<()> {
        check(name, &command)?;
        let old = self.all().insert(name.to_owned(), Arc::new(command));
        // What ends with the old one may want the commands as well.
        drop(old);
        Ok(())
    }

    /// The same commands for another view.
    pub fn copy(&self) -> Commands {
        Commands(Mutex::new(self.all().clone()))
    }

    /// Makes them known to a shell.
    pub fn give(&self, shell: &fractal_shell::Shell) {
        for (name, command) in self.all().iter() {
            shell.register(name, Callable(command.clone()));
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Py<PyAny>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name that a script can write, and something that can be called.
pub fn check(name: &str, command: &Py<PyAny>) -> PyResult<()> {
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || "/'\"$`\\".contains(c)) {
        return Err(PyValueError::new_err(format!("{name:?} is no name of a command")));
    }
    match Python::attach(|py| command.bind(py).is_callable()) {
        true => Ok(()),
        false => Err(PyTypeError::new_err(format!("the command {name:?} cannot be called"))),
    }
}

/// One callable as a command of the shell.
pub struct Callable(pub Arc<Py<PyAny>>);

impl Command for Callable {
    fn call(&self, call: &fractal_shell::Call) -> Output {
        let answer = Python::try_attach(|py| {
            let done = Call::new(py, call).and_then(|told| {
                let answer = self.0.bind(py).call1((told,))?;
                output(&answer)
            });
            done.unwrap_or_else(|error| failed(py, call.name, &error))
        });
        answer.unwrap_or_else(|| Output::fail(125, format!("{}: Python is ending\n", call.name)))
    }
}

fn failed(py: Python<'_>, name: &str, error: &PyErr) -> Output {
    Output::fail(1, format!("{name}: {}\n", crate::provider::words(py, error)))
}

/// What a callable answered.
fn output(answer: &Bound<'_, PyAny>) -> PyResult<Output> {
    if answer.is_none() {
        return Ok(Output::default());
    }
    if let Ok(result) = answer.cast::<CommandResult>() {
        return Ok(result.get().output());
    }
    if let Ok(exit) = answer.extract::<i32>() {
        return Ok(Output { exit, ..Output::default() });
    }
    Ok(Output::ok(answer.extract::<Data>()?.0))
}

/// One command as a script called it.
#[pyclass(frozen, module = "fractal", get_all)]
pub struct Call {
    /// The name it was called by.
    name: String,
    /// Its arguments without the name.
    args: Vec<String>,
    /// All of its standard input.
    stdin: Py<PyBytes>,
    /// Exported variables.
    env: HashMap<String, String>,
    /// The directory that relative paths start from.
    cwd: Py<PyString>,
    /// The files that it may work on.
    view: Py<Vfs>,
}

impl Call {
    fn new(py: Python<'_>, call: &fractal_shell::Call) -> PyResult<Call> {
        Ok(Call {
            name: call.name.to_owned(),
            args: call.args.to_vec(),
            stdin: PyBytes::new(py, call.stdin).unbind(),
            env: call.env.clone(),
            cwd: text(py, &fractal_shell::name::bytes(call.cwd)).unbind(),
            view: Py::new(py, Vfs::of(call.view.clone()))?,
        })
    }
}

#[pymethods]
impl Call {
    /// The path in the tree that an argument names.
    fn path<'py>(&self, py: Python<'py>, arg: &str) -> PyResult<Bound<'py, PyString>> {
        let arg = fractal_shell::name::bytes(arg);
        if arg.first() == Some(&b'/') {
            return Ok(text(py, &arg));
        }
        let cwd: crate::path::Place = self.cwd.bind(py).extract()?;
        Ok(text(py, &crate::path::below(cwd.bytes(), &arg)))
    }
}
