//! A tool that is a program inside a sandbox: JSON in, JSON out.

use super::call::{Said, Work};
use super::function::late;
use super::stoppable;
use crate::RunIo;
use fractal_jail::Input;
use fractal_model::{
    Code, Error, Limits, Network, Outcome, Policy, Result, Run, RunReply, Tier, World, format_bytes,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Bytes of a failed program's last words that are told.
const TAIL_BYTES_MAX: usize = 2048;

/// Room for what a program writes besides its answer.
const ERRORS_BYTES: u64 = 64 << 10;

/// The program's directory, for itself.
const DIRECTORY_VARIABLE: &str = "FRACTAL_TOOL_DIR";

/// What runs, and within which bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Where its description lies.
    pub directory: PathBuf,
    /// The program and its arguments; `./` means its own directory.
    pub command: Vec<String>,
    /// Variables set inside.
    pub env: BTreeMap<String, String>,
    /// Memory, where it needs a bound of its own.
    pub memory_bytes: Option<u64>,
    /// Network, where it is not the sandbox's.
    pub network: Option<Network>,
}

pub fn run(program: &Program, work: &Work<'_>) -> Result<Said> {
    let input = serde_json::to_vec(&work.call.input)
        .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
    let asked = asked(program, work)?;
    let io = RunIo::capturing(Input::Bytes(input));
    let reply = stoppable::run(work, asked, io)?;
    let value = answer(&reply, work)?;
    Ok(Said { value, sandbox: reply.kept.then_some(reply.sandbox) })
}

/// The run that carries it out. Its bounds never ask for more than there is:
/// those of a tool are a wish of who wrote it, not of who calls.
fn asked(program: &Program, work: &Work<'_>) -> Result<Run> {
    let place = work.row.map_or(&work.caller.directory, |row| &row.directory);
    let own = within(&program.directory, place);
    let mut command = program.command.clone();
    if let Some(name) = command[0].strip_prefix("./") {
        command[0] = format!("{own}/{name}");
    }
    let mut env = program.env.clone();
    env.insert(DIRECTORY_VARIABLE.to_owned(), own);
    let of_place = work.row.map(|row| row.policy.clone()).unwrap_or_default();
    let allowed = work.caller.policy.meet(&of_place).limits;
    let least = |wish: u64, bound: Option<u64>| Some(bound.map_or(wish, |bound| wish.min(bound)));
    let output = work.output_bytes_max as u64 + ERRORS_BYTES;
    let limits = Limits {
        time_ms: Some(work.time_ms),
        output_bytes: least(output, allowed.output_bytes),
        memory_bytes: program.memory_bytes.and_then(|wish| least(wish, allowed.memory_bytes)),
        ..Limits::default()
    };
    Ok(Run {
        command,
        sandbox: work.row.map(|row| row.id.to_string()),
        env,
        cwd: Some(place.display().to_string()),
        ask: Policy { limits, read_only: read_only(program, work)?, ..Policy::default() },
        network: program.network.clone(),
        world: Some(World::Native),
        ..Run::default()
    })
}

/// The tool's own files, which it may not rewrite. A copy of the project has
/// no such fence; there they are the sandbox's own like all others.
fn read_only(program: &Program, work: &Work<'_>) -> Result<BTreeSet<String>> {
    match work.engine.tier()? {
        Tier::Copied => Ok(BTreeSet::new()),
        _ => Ok(BTreeSet::from([program.directory.display().to_string()])),
    }
}

/// A directory as seen from where the program starts. In a copy of the project
/// only what is relative to it is found.
fn within(directory: &Path, place: &Path) -> String {
    match directory.strip_prefix(place) {
        Ok(inner) => Path::new(".").join(inner).display().to_string(),
        Err(_) => directory.display().to_string(),
    }
}

/// What a finished program said.
fn answer(reply: &RunReply, work: &Work<'_>) -> Result<Value> {
    let (tool, most) = (&work.call.tool, work.output_bytes_max);
    let limit = |what: &str| Error::new(Code::Limit, format!("`{tool}` {what}"));
    match reply.outcome {
        Outcome::Timeout => return Err(late(tool, work.time_ms)),
        Outcome::Output => {
            let most = format_bytes(most as u64);
            return Err(limit(&format!("wrote more than {most}, and was ended")));
        }
        Outcome::Memory => return Err(limit("needed more memory than it has")),
        Outcome::Disk => return Err(limit("wrote more to the disk than it may")),
        Outcome::Signalled => return Err(failed(reply, tool, "was ended by a signal")),
        Outcome::Exited if reply.exit != 0 => {
            return Err(failed(reply, tool, &format!("failed with exit status {}", reply.exit)));
        }
        Outcome::Exited => {}
    }
    if reply.truncated || reply.stdout.len() > most {
        let (size, most) = (format_bytes(reply.stdout.len() as u64), format_bytes(most as u64));
        return Err(limit(&format!("answered {size}, {most} are allowed")));
    }
    serde_json::from_str(&reply.stdout).map_err(|error| {
        let begins: String = reply.stdout.chars().take(60).collect();
        let why =
            format!("`{tool}` printed no JSON ({error}); it begins `{}`", begins.escape_debug());
        Error::new(Code::Failed, why)
            .hint("standard output is for its answer alone; everything else goes to standard error")
    })
}

fn failed(reply: &RunReply, tool: &str, how: &str) -> Error {
    let tail = tail(reply.stderr.trim_end());
    let said = if tail.is_empty() { String::new() } else { format!(": {tail}") };
    Error::new(Code::Failed, format!("`{tool}` {how}{said}"))
}

/// The end of a text, from the beginning of a character.
pub fn tail(text: &str) -> String {
    let from = text.len().saturating_sub(TAIL_BYTES_MAX);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let mark = if from > 0 { "…" } else { "" };
    format!("{mark}{}", &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_cut_at_a_character() {
        assert_eq!(tail("short"), "short");
        let long = "ü".repeat(TAIL_BYTES_MAX);
        let cut = tail(&format!("{long}x"));
        assert!(cut.starts_with('…') && cut.ends_with("üx") && cut.len() <= TAIL_BYTES_MAX + 3);
    }

    #[test]
    fn a_directory_in_the_project_is_relative() {
        assert_eq!(within(Path::new("/p/tools/t"), Path::new("/p")), "./tools/t");
        assert_eq!(within(Path::new("/u/tools/t"), Path::new("/p")), "/u/tools/t");
    }
}
