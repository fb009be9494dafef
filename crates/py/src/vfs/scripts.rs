//! Scripts over the view.

use super::Vfs;
use crate::data::{Data, Variables};
use crate::shell::{CommandResult, Shell, Start};
use pyo3::prelude::*;

#[pymethods]
impl Vfs {
    /// Runs a script in a shell of its own. A script that fails, is stopped or
    /// takes too long is no exception: look at ``exit_code``.
    ///
    /// :param timeout: seconds, after which it is ended with status 124
    /// :param stdin: what it finds on its standard input
    /// :param env: exported variables
    /// :param cwd: where it starts
    #[pyo3(signature = (script, *, timeout = 120.0, stdin = None, env = None, cwd = "/"))]
    fn exec(
        &self,
        py: Python<'_>,
        script: &str,
        timeout: f64,
        stdin: Option<Data>,
        env: Option<Variables>,
        cwd: &str,
    ) -> PyResult<CommandResult> {
        let start =
            Start { timeout, env: env.map(|env| env.0).unwrap_or_default(), cwd: cwd.to_owned() };
        Shell::start(self, start)?.run(py, script, stdin)
    }

    /// Makes a callable known to scripts as a command. It gets a ``Call`` and
    /// returns text or bytes for standard output, a ``CommandResult``, an exit
    /// status or ``None``; an exception is a message on standard error and
    /// status 1. Forks and shells that are made later know it too.
    fn register(&self, name: &str, command: Py<PyAny>) -> PyResult<()> {
        self.commands.add(name, command)
    }
}
