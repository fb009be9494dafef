//! What can stop a verb, and how it is shown.

use fractal::{Code, Error};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// Why a verb ended early.
pub enum Failure {
    /// The engine, or we, refused.
    Error(Error),
    /// Nobody reads our output any more.
    BrokenPipe,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

/// I/O errors without a path can only be those of standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Error::new(Code::Internal, format!("cannot write to standard output: {error}"))
                .into(),
        }
    }
}

/// Shows an error to people and, if asked, to programs.
pub fn report(error: &Error, json: bool) -> ExitCode {
    if json {
        let object = serde_json::to_string(error).unwrap_or_default();
        // Standard error still has it when standard output is gone.
        let _ = writeln!(io::stdout(), "{{\"error\":{object}}}");
    }
    let (start, end) = if colours() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    let mut err = io::stderr().lock();
    let _ = writeln!(err, "{start}error:{end} {}", error.message);
    if let Some(hint) = &error.hint {
        let _ = writeln!(err, "hint: {hint}");
    }
    ExitCode::from(error.code.exit_status())
}

/// Colour is for terminals whose owner did not decline it.
pub fn colours() -> bool {
    let declined = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !declined && io::stderr().is_terminal()
}
