use super::run::{Style, carry_out, own, read_stdin, remarks};
use crate::failure::Failure;
use crate::inside::InMemory;
use crate::session::Session;
use fractal::{Error, RunIo};
use std::io::{self, BufRead, IsTerminal, Write};

/// Run a shell script in memory, with nothing of this machine in reach
///
/// The virtual world: a shell with the usual commands (grep, sed, awk, find,
/// sort, jq, tar, diff, …) inside fractal itself, over a tree in memory that
/// shows the project at its own path. No process is started, and no other file
/// of this machine is there. What the script changes lands in the sandbox, as
/// with `fractal run`: diff it, fork it, promote it, or go on in it with real
/// programs (`fractal run --native --in S`).
///
/// Without `-c` the script comes from a file, from standard input, or line by
/// line from a terminal.
#[derive(clap::Args)]
#[command(override_usage = "fractal sh [OPTIONS] [-c SCRIPT | FILE] [ARG]...")]
pub struct Sh {
    /// The script
    #[arg(short, value_name = "SCRIPT")]
    command: Option<String>,
    #[command(flatten)]
    with: InMemory,
    /// A file of this machine with the script, and the script's arguments; after
    /// `-c` arguments only
    #[arg(trailing_var_arg = true, value_name = "FILE")]
    words: Vec<String>,
}

impl Sh {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let typed = self.command.is_none() && self.words.is_empty() && io::stdin().is_terminal();
        if typed && session.json {
            return Err(Error::invalid("a session has no JSON form")
                .hint("use `fractal sh --json -c SCRIPT`")
                .into());
        }
        let mut words = self.words;
        let script = match self.command {
            Some(script) => {
                words.insert(0, "sh".to_owned());
                script
            }
            None if typed => String::new(),
            None if words.is_empty() => read_stdin("script")?,
            None => from_file(&words[0])?,
        };
        let (is_new, verbose) = (self.with.is_new(), self.with.verbose);
        let command = ["sh", "-c", &script].map(str::to_owned).into_iter().chain(words).collect();
        let mut run = self.with.run(command, session)?;
        let (engine, caller) = (std::sync::Arc::new(session.engine()?), session.caller()?);
        let style = Style { verbose, ..Style::default() };
        if !typed {
            return carry_out(session, &engine, &caller, run, style);
        }
        run.command = vec!["sh".to_owned()];
        let io = RunIo::session(Box::new(ask), own(io::stdout())?, own(io::stderr())?);
        let reply = engine.run(&caller, run, io)?;
        remarks(session, &reply, is_new, verbose);
        Ok((reply.exit & 0xff) as u8)
    }
}

/// The next line of a session; several where one ends with a backslash.
fn ask(cwd: &str) -> Option<String> {
    let mut typed = String::new();
    let mut prompt = format!("{cwd} $ ");
    loop {
        let mut out = io::stderr();
        let _ = write!(out, "{prompt}").and_then(|()| out.flush());
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line).ok()? == 0 {
            let _ = writeln!(out);
            return None;
        }
        typed.push_str(&line);
        if !line.trim_end_matches('\n').ends_with('\\') {
            break;
        }
        prompt = "> ".to_owned();
    }
    match typed.trim() {
        "exit" | "logout" => None,
        _ => Some(typed),
    }
}

fn from_file(path: &str) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::not_found(format!("cannot read the script {path}: {error}"))
            .hint("give a script with `fractal sh -c SCRIPT`")
    })
}
