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

    /// Runs a Python program over the view: CPython in WebAssembly, with its
    /// standard library and nothing of the host. A program that fails, is
    /// stopped or takes too long is no exception: look at ``exit_code``.
    ///
    /// :param args: ``sys.argv[1:]``
    /// :param timeout: seconds, after which it is ended with status 124
    /// :param stdin: what it finds on its standard input
    /// :param env: its environment
    /// :param cwd: where it starts
    #[pyo3(signature = (code, *args, timeout = 120.0, stdin = None, env = None, cwd = "/"))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
    fn python(
        &self,
        py: Python<'_>,
        code: &str,
        args: Vec<String>,
        timeout: f64,
        stdin: Option<Data>,
        env: Option<Variables>,
        cwd: &str,
    ) -> PyResult<CommandResult> {
        let words = std::iter::once(code).chain(args.iter().map(String::as_str));
        let quoted = words.map(|word| format!(" '{}'", word.replace('\'', "'\\''")));
        let script = format!("python3 -c{}", quoted.collect::<String>());
        self.exec(py, &script, timeout, stdin, env, cwd)
    }

    /// Makes a callable known to scripts as a command. It gets a ``Call`` and
    /// returns text or bytes for standard output, a ``CommandResult``, an exit
    /// status or ``None``; an exception is a message on standard error and
    /// status 1. Forks and shells that are made later know it too.
    fn register(&self, name: &str, command: Py<PyAny>) -> PyResult<()> {
        self.commands.add(name, command)
    }
}
