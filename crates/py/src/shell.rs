//! Shell sessions, and what scripts leave.

use crate::command::{Callable, check};
use crate::data::{Data, Variables};
use crate::errors::of_fs;
use crate::interrupt::interruptible;
use crate::vfs::Vfs;
use fractal_shell::{Canceller, Ended, Outcome, Output, Settings};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// What a shell starts with.
pub struct Start {
    pub timeout: f64,
    pub env: BTreeMap<String, String>,
    pub cwd: String,
}

/// A session of the shell: it keeps directory, variables and functions from
/// one script to the next. Files are the view's.
///
/// :param timeout: seconds that one script may take
/// :param env: exported variables
/// :param cwd: where it starts
#[pyclass(frozen, module = "fractal")]
pub struct Shell {
    shell: Mutex<fractal_shell::Shell>,
    canceller: Canceller,
}

impl Shell {
    pub fn start(vfs: &Vfs, start: Start) -> PyResult<Shell> {
        let time_max = Duration::try_from_secs_f64(start.timeout).map_err(|_| {
            PyValueError::new_err(format!("{} is no number of seconds", start.timeout))
        })?;
        let settings = Settings {
            env: start.env.into_iter().collect(),
            cwd: start.cwd,
            time_max,
            ..Settings::default()
        };
        let shell = fractal_shell::Shell::new(vfs.view.clone(), settings);
        vfs.commands.give(&shell);
        Ok(Shell { canceller: shell.canceller(), shell: Mutex::new(shell) })
    }
}

#[pymethods]
impl Shell {
    #[new]
    #[pyo3(signature = (vfs, *, timeout = 120.0, env = None, cwd = "/"))]
    fn new(
        vfs: &Bound<'_, Vfs>,
        timeout: f64,
        env: Option<Variables>,
        cwd: &str,
    ) -> PyResult<Shell> {
        let start =
            Start { timeout, env: env.map(|env| env.0).unwrap_or_default(), cwd: cwd.to_owned() };
        Shell::start(vfs.get(), start)
    }

    /// Runs a script. One that fails, is stopped or takes too long is no
    /// exception: look at ``exit_code``.
    #[pyo3(signature = (script, *, stdin = None))]
    pub fn run(
        &self,
        py: Python<'_>,
        script: &str,
        stdin: Option<Data>,
    ) -> PyResult<CommandResult> {
        let input = stdin.map_or_else(bytes::Bytes::new, |data| data.0);
        let mut shell = self.hold()?;
        let shell = &mut *shell;
        let canceller = self.canceller.clone();
        interruptible(py, move || shell.run(script, &input), move || canceller.cancel())
            .map(CommandResult)
    }

    /// Stops the script that runs now, from another thread.
    fn cancel(&self) {
        self.canceller.cancel();
    }

    /// Makes a callable known as a command; see ``Vfs.register``.
    fn register(&self, py: Python<'_>, name: &str, command: Py<PyAny>) -> PyResult<()> {
        check(name, &command)?;
        self.with(py, |shell| shell.register(name, Callable(Arc::new(command))))
    }

    /// The directory that the next script starts in.
    #[getter]
    fn cwd(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |shell| shell.cwd())
    }

    /// Goes to a directory, which must be there.
    fn cd(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        self.with(py, |shell| shell.set_cwd(path))?.map_err(of_fs)
    }

    /// Sets and exports a variable.
    fn set_env(&self, py: Python<'_>, name: &str, value: &str) -> PyResult<()> {
        self.with(py, |shell| shell.set_env(name, value))
    }
}

impl Shell {
    /// The session, unless a script runs in it: a command of that script
    /// would wait for itself.
    fn hold(&self) -> PyResult<MutexGuard<'_, fractal_shell::Shell>> {
        match self.shell.try_lock() {
            Ok(shell) => Ok(shell),
            Err(TryLockError::Poisoned(shell)) => Ok(shell.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err(
                "this shell runs a script already; fork the view or make another Shell",
            )),
        }
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut fractal_shell::Shell) -> T + Send,
    ) -> PyResult<T> {
        let mut shell = self.hold()?;
        let shell = &mut *shell;
        Ok(py.detach(|| work(shell)))
    }
}

/// What a script left behind besides its changes.
#[pyclass(frozen, module = "fractal")]
pub struct CommandResult(Outcome);

#[pymethods]
impl CommandResult {
    #[new]
    #[pyo3(signature = (stdout = None, stderr = None, exit_code = 0))]
    #[pyo3(text_signature = "(stdout='', stderr='', exit_code=0)")]
    fn new(stdout: Option<Data>, stderr: Option<Data>, exit_code: i32) -> CommandResult {
        let bytes = |data: Option<Data>| data.map(|data| data.0.to_vec()).unwrap_or_default();
        CommandResult(Outcome {
            stdout: bytes(stdout),
            stderr: bytes(stderr),
            exit: exit_code,
            truncated: false,
            ended: Ended::Exited,
        })
    }

    /// What it wrote to its standard output; bytes that are no UTF-8 are
    /// replaced.
    #[getter]
    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    /// What it wrote to its standard error.
    #[getter]
    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Standard output as it is.
    #[getter]
    fn stdout_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.stdout)
    }

    /// Standard error as it is.
    #[getter]
    fn stderr_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.stderr)
    }

    /// Its exit status; 124 after a timeout, 130 when cancelled, 125 at a
    /// limit.
    #[getter]
    fn exit_code(&self) -> i32 {
        self.0.exit
    }

    /// Whether some output was left out.
    #[getter]
    fn truncated(&self) -> bool {
        self.0.truncated
    }

    /// How it ended: ``"exited"``, ``"timeout"``, ``"cancelled"``, or the
    /// limit it met.
    #[getter]
    fn ended(&self) -> String {
        match &self.0.ended {
            Ended::Exited => "exited".to_owned(),
            Ended::Timeout => "timeout".to_owned(),
            Ended::Cancelled => "cancelled".to_owned(),
            Ended::Limit(what) => what.clone(),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shown = |text: String| -> PyResult<String> {
            Ok(text.into_pyobject(py)?.repr()?.to_string_lossy().into_owned())
        };
        let (out, err) = (shown(self.stdout())?, shown(self.stderr())?);
        Ok(format!("CommandResult(stdout={out}, stderr={err}, exit_code={})", self.0.exit))
    }
}

impl CommandResult {
    /// The same as a command's answer.
    pub fn output(&self) -> Output {
        let outcome = self.0.clone();
        Output { stdout: outcome.stdout, stderr: outcome.stderr, exit: outcome.exit }
    }
}
