//! The command line of fractal: arguments become an `Action`, a `Reply`
//! becomes text or JSON.
//!
//! One file per verb in `verbs`, whose doc comment is its help text. This is
//! the only crate that prints and the only one that reads the process's
//! environment; it holds no rule about sandboxes. Standard output carries
//! data, standard error carries notes, and the exit status follows the table
//! of `fractal::Code`.

mod args;
mod board;
mod bounds;
mod describe;
mod failure;
mod inside;
mod promotion;
mod remote;
mod session;
mod side_by_side;
mod table;
mod terminal;
mod time;
mod usage;
mod verbs;
mod within;
mod worker;

use args::Cli;
use failure::Failure;
use session::Session;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(status) = within::serve() {
        return status;
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    let json = cli.global.json;
    match run(cli) {
        Ok(status) => ExitCode::from(status),
        // The reader had enough, as in `fractal log | head`.
        Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Error(error)) => failure::report(&error, json),
    }
}

fn run(cli: Cli) -> Result<u8, Failure> {
    let session = Session::new(cli.global)?;
    cli.verb.call(&session)
}
