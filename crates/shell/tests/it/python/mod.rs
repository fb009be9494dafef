//! `python3` against real CPython, and against whoever wants out of it.

mod escape;
mod limits;
mod oracle;
mod sessions;

use fractal_fs::Vfs;
use fractal_shell::{Outcome, Settings, Shell};
use std::time::Duration;

/// A shell with time enough for a busy machine.
fn patient(view: Vfs) -> Shell {
    Shell::new(view, Settings { time_max: Duration::from_secs(600), ..Settings::default() })
}

/// Runs a program as its own file.
fn program(shell: &mut Shell, text: &str) -> Outcome {
    shell.view().write("/program.py", text.to_owned()).unwrap();
    shell.run("python3 /program.py", b"")
}
