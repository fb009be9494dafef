//! `run` as a tool.

use super::{Place, changes, changes_schema, fields, input, object, said, selector, verb};
use crate::RunIo;
use crate::tools::call::{Said, Work};
use crate::tools::stoppable;
use crate::tools::verbs::Builtin;
use crate::tools::{Kind, Tool};
use fractal_jail::Input as Stdin;
use fractal_model::{Limits, Policy, Result, Run};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

/// Ten minutes: builds and tests are what it is for.
const TIME_MS: u64 = 600_000;

/// Bytes of each stream that stand in the answer: the beginning and the end,
/// because errors stand at either.
const HEAD_BYTES: usize = 16 << 10;
const TAIL_BYTES: usize = 48 << 10;

const DESCRIPTION: &str = "Run a shell command in an isolated copy-on-write clone of the machine. \
Use it to build, test, install, inspect or try anything: what the command changes stays inside the \
sandbox, the real files are untouched until `promote`. It sees the project and the installed \
programs; it has no network and no secrets unless the sandbox allows them. Changes are kept, so the \
next `run`, `read` or `edit` in the same sandbox sees them. A command that fails is a normal \
answer: look at `exit`, `stdout` and `stderr`. Returns the sandbox's name, the exit status, how it \
ended (`exited`, `signalled`, `timeout`, `memory`, `disk`, `output`), both streams (the middle of \
very long ones is left out) and which paths differ from the start of the sandbox. With `known` true, \
`known` has up to five lines on what was learned before about commands like this one: failures, how \
often and what fixed them, insights. Read them first, and ask `recall` for more.";

#[derive(Deserialize)]
struct Input {
    command: String,
    stdin: Option<String>,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    time_seconds: Option<u64>,
    #[serde(default)]
    discard: bool,
    name: Option<String>,
    #[serde(default)]
    known: bool,
}

pub fn tool() -> Tool {
    let input = fields(
        json!({
            "command": { "type": "string", "minLength": 1, "description": "The command line, for `sh -c`. Example: `cargo test 2>&1 | tail -50`." },
            "stdin": { "type": "string", "description": "Text for its standard input. Nothing by default." },
            "cwd": { "type": "string", "description": "Directory to start in, absolute or from the project's. The project by default." },
            "env": { "type": "object", "additionalProperties": { "type": "string" }, "description": "Environment variables to add." },
            "time_seconds": { "type": "integer", "minimum": 1, "maximum": 86400, "description": "Ends the command after so many seconds; 600 by default." },
            "discard": { "type": "boolean", "description": "Throw away what it changes: for looking and for checks. False by default." },
            "known": { "type": "boolean", "description": "Also tell what is known about this command. False by default." },
            "name": { "type": "string", "description": "Name of the new sandbox, where there is none to work in yet." },
        }),
        &["command"],
    );
    let output = object(
        json!({
            "sandbox": { "type": "string" },
            "kept": { "type": "boolean" },
            "exit": { "type": "integer" },
            "outcome": { "enum": ["exited", "signalled", "timeout", "memory", "disk", "output"] },
            "stdout": { "type": "string" },
            "stderr": { "type": "string" },
            "truncated": { "type": "boolean" },
            "wall_ms": { "type": "integer" },
            "changes": changes_schema(),
            "changes_total": { "type": "integer" },
            "known": { "type": "array", "maxItems": 5, "items": { "type": "string" } },
        }),
        &[
            "sandbox",
            "kept",
            "exit",
            "outcome",
            "stdout",
            "stderr",
            "truncated",
            "wall_ms",
            "changes",
            "changes_total",
        ],
    );
    let kind = Kind::Verb(Builtin { act, works: Place::Any });
    Tool { output: Some(output), time_ms: TIME_MS, kind, ..verb("run", DESCRIPTION, input, act) }
}

fn act(work: &Work<'_>) -> Result<Said> {
    let asked: Input = input(work)?;
    let time_ms = asked.time_seconds.map_or(work.time_ms, |time| (time * 1000).min(work.time_ms));
    let limits = Limits { time_ms: Some(time_ms), ..Limits::default() };
    // Before the run, which may be written down itself.
    let known = asked.known.then(|| known(work, &asked.command));
    let run = Run {
        command: vec!["sh".to_owned(), "-c".to_owned(), asked.command],
        sandbox: selector(work),
        name: asked.name.filter(|_| work.row.is_none()),
        discard: asked.discard,
        env: asked.env,
        cwd: asked.cwd.or_else(|| work.row.map(|row| row.directory.display().to_string())),
        ask: Policy { limits, ..Policy::default() },
        ..Run::default()
    };
    let stdin = asked.stdin.map_or(Stdin::Null, |text| Stdin::Bytes(text.into_bytes()));
    let reply = stoppable::run(work, run, RunIo::capturing(stdin))?;
    let ((stdout, cut), (stderr, cut_too)) = (middle_out(&reply.stdout), middle_out(&reply.stderr));
    let mut value = json!({
        "sandbox": reply.sandbox, "kept": reply.kept, "exit": reply.exit, "outcome": reply.outcome,
        "stdout": stdout, "stderr": stderr, "truncated": reply.truncated || cut || cut_too,
        "wall_ms": reply.usage.wall_ms, "changes": changes(&reply.changes),
        "changes_total": reply.changes.len(),
    });
    if let Some(known) = known {
        value["known"] = json!(known);
    }
    said(value, reply.kept.then_some(reply.sandbox))
}

/// What is known about a command. That nothing can be told stops no run.
#[cfg(feature = "knowledge")]
fn known(work: &Work<'_>, command: &str) -> Vec<String> {
    work.engine.known(work.caller, command).unwrap_or_default()
}

#[cfg(not(feature = "knowledge"))]
fn known(_: &Work<'_>, _: &str) -> Vec<String> {
    Vec::new()
}

/// A long text without its middle, and whether something is missing.
fn middle_out(text: &str) -> (String, bool) {
    if text.len() <= HEAD_BYTES + TAIL_BYTES {
        return (text.to_owned(), false);
    }
    let head = (0..=HEAD_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let from = text.len() - TAIL_BYTES;
    let tail = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let mark = format!("\n[{} bytes left out]\n", tail - head);
    (format!("{}{mark}{}", &text[..head], &text[tail..]), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_long_text_goes() {
        assert_eq!(middle_out("short"), ("short".to_owned(), false));
        let long = format!("first{}last", "ü".repeat(100_000));
        let (cut, is_cut) = middle_out(&long);
        assert!(is_cut && cut.starts_with("first") && cut.ends_with("last"));
        assert!(cut.len() < HEAD_BYTES + TAIL_BYTES + 40 && cut.contains(" bytes left out]"));
    }
}
