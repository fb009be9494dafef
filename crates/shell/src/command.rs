//! Commands that are not the shell's: Rust closures, tools, Python callables.

use crate::name;
use crate::own::Own;
use fractal_fs::Vfs;
use std::collections::HashMap;

/// One command as a script called it.
pub struct Call<'a> {
    /// The name it was called by.
    pub name: &'a str,
    /// Its arguments without the name.
    pub args: &'a [String],
    /// All of its standard input.
    pub stdin: &'a [u8],
    /// The files it may work on.
    pub view: &'a Vfs,
    /// Exported variables.
    pub env: &'a HashMap<String, String>,
    /// The directory that relative paths start from.
    pub cwd: &'a str,
    pub(crate) own: &'a Own,
    pub(crate) stop: &'a dyn Fn() -> bool,
}

impl Call<'_> {
    /// The path in the tree that an argument names.
    pub fn path(&self, arg: &str) -> Vec<u8> {
        let arg = name::bytes(arg);
        match arg.first() {
            Some(b'/') => arg.into_owned(),
            _ => [&name::bytes(self.cwd), &b"/"[..], &arg].concat(),
        }
    }

    /// Whether the script was cancelled or is out of time. A command that may
    /// take long asks now and then, and returns with what it has.
    pub fn stopped(&self) -> bool {
        (self.stop)()
    }
}

/// What a command answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Its exit status.
    pub exit: i32,
}

impl Output {
    /// Success with some text.
    pub fn ok(stdout: impl Into<Vec<u8>>) -> Output {
        Output { stdout: stdout.into(), ..Output::default() }
    }

    /// A failure that says why.
    pub fn fail(exit: i32, message: impl Into<Vec<u8>>) -> Output {
        Output { stderr: message.into(), exit, ..Output::default() }
    }

    /// Notes something that went wrong and goes on.
    pub(crate) fn complain(&mut self, exit: i32, message: &str) {
        self.stderr.extend_from_slice(message.as_bytes());
        self.stderr.push(b'\n');
        self.exit = exit;
    }
}

/// A command that scripts can call by its name. Closures are commands.
pub trait Command: Send + Sync {
    /// Carries it out. It blocks the script, as a program would.
    fn call(&self, call: &Call) -> Output;
}

impl<F: Fn(&Call) -> Output + Send + Sync> Command for F {
    fn call(&self, call: &Call) -> Output {
        self(call)
    }
}
