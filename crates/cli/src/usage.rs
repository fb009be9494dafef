//! Arguments that make no sense: clap's words in our shape.
//!
//! Clap decides what is wrong; here its report becomes `error:` and `hint:`
//! lines like every other error, so that people and scripts see one form.

use crate::args::Cli;
use crate::failure::{self, Failure};
use clap::CommandFactory;
use clap::error::{ContextKind, ErrorKind};
use fractal::{Code, Error};
use std::error::Error as _;
use std::io::Write;
use std::process::ExitCode;

/// Prints help or a usage error.
pub fn report(error: &clap::Error) -> ExitCode {
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if asked || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        return match printed.map_err(Failure::from) {
            Err(Failure::Error(error)) => failure::report(&error, false),
            // A broken pipe here is somebody's `--help | head`.
            _ if asked => ExitCode::SUCCESS,
            _ => ExitCode::from(2),
        };
    }
    // Clap shows the help by itself only while no variable sets a flag.
    if error.kind() == ErrorKind::MissingSubcommand && std::env::args_os().len() == 1 {
        let _ = write!(std::io::stderr(), "{}", Cli::command().render_help());
        return ExitCode::from(2);
    }
    failure::report(&explain(error), wants_json())
}

/// The arguments did not parse, so look for the flag itself.
fn wants_json() -> bool {
    let asked = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    let variable = std::env::var("FRACTAL_JSON").unwrap_or_default();
    asked || !matches!(variable.as_str(), "" | "0" | "n" | "no" | "f" | "false" | "off")
}

fn explain(error: &clap::Error) -> Error {
    let bad_value = error.source().and_then(|source| source.downcast_ref::<Error>());
    if let (Some(inner), Some(flag)) = (bad_value, error.get(ContextKind::InvalidArg)) {
        // `--memory <SIZE>`, of which the name is enough.
        let flag = flag.to_string();
        let name = flag.split(' ').next().unwrap_or(&flag);
        let message = format!("{name}: {}", inner.message);
        return Error { message, ..inner.clone() };
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let first = paragraphs.next().unwrap_or_default();
    let message = first.strip_prefix("error: ").unwrap_or(first);
    // The lines below name what is missing, or all there is to choose from.
    let lines_max = if error.kind() == ErrorKind::MissingSubcommand { 1 } else { usize::MAX };
    let message: Vec<&str> = message.lines().take(lines_max).map(str::trim).collect();
    let message = message.join(" ");
    Error::new(Code::Invalid, message).hint(next_command(&text))
}

/// Clap's tip where it has one, the verb's help otherwise.
fn next_command(text: &str) -> String {
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    if let Some(tip) = tip {
        return tip.to_owned();
    }
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or("fractal");
    let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let verb: Vec<&str> = usage.split(' ').take_while(is_word).collect();
    format!("`{} --help` shows what it takes", verb.join(" "))
}
