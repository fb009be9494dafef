use super::run::{Style, carry_out, read_stdin};
use crate::failure::Failure;
use crate::inside::InMemory;
use crate::session::Session;
use fractal::{Code, Error};
use std::io::{self, IsTerminal};

/// Run a Python program in memory, with nothing of this machine in reach
///
/// CPython with its standard library, in WebAssembly inside fractal itself,
/// over a tree in memory that shows the project at its own path. There are no
/// processes, no network, no packages and no other file of this machine. What
/// the program changes lands in the sandbox, as with `fractal sh`.
///
/// FILE is one of the sandbox, which shows the project, so that it finds the
/// modules beside it; a program from elsewhere comes by standard input, as in
/// `fractal py - ARG < FILE`. At a terminal, type a whole program and end it
/// with Ctrl-D: there is no session line by line.
#[derive(clap::Args)]
#[command(override_usage = "fractal py [OPTIONS] [-c CODE | FILE | -] [ARG]...")]
pub struct Py {
    /// The program
    #[arg(short, value_name = "CODE")]
    command: Option<String>,
    #[command(flatten)]
    with: InMemory,
    /// A file of the sandbox with the program, or `-` for standard input, and the
    /// program's arguments; after `-c` arguments only
    #[arg(trailing_var_arg = true, value_name = "FILE")]
    words: Vec<String>,
}

impl Py {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        if !cfg!(feature = "python") {
            return Err(Error::new(Code::Unsupported, "this fractal was built without Python")
                .hint("use the machine's own: `fractal run -- python3 FILE`")
                .into());
        }
        let style = Style { verbose: self.with.verbose, ..Style::default() };
        let run = self.with.run(command(self.command, self.words)?, session)?;
        carry_out(session, &std::sync::Arc::new(session.engine()?), &session.caller()?, run, style)
    }
}

/// What is run in the sandbox. What a person types is read here: a run in
/// memory asks nobody at a terminal.
fn command(code: Option<String>, words: Vec<String>) -> Result<Vec<String>, Error> {
    let from_stdin = words.first().is_none_or(|word| word == "-");
    let (mut command, rest) = match code {
        Some(code) => (vec!["-c".to_owned(), code], words),
        None if !from_stdin => (Vec::new(), words),
        None => {
            let rest = words.into_iter().skip(1).collect();
            match io::stdin().is_terminal() {
                true => (vec!["-c".to_owned(), read_stdin("program")?], rest),
                false => (vec!["-".to_owned()], rest),
            }
        }
    };
    command.insert(0, "python3".to_owned());
    command.extend(rest);
    Ok(command)
}
