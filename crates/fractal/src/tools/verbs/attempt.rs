//! `try` as a tool.

use super::{Builtin, Place, input, object, said, verb};
use crate::tools::call::{Said, Work};
use crate::tools::{Kind, Tool};
use fractal_model::{Attempt, Check, Error, Result, Try};
use serde::Deserialize;
use serde_json::json;

/// An hour for all of it.
const TIME_MS: u64 = 3_600_000;

const DESCRIPTION: &str = "Try several ways of doing something at once, each in a fresh sandbox of \
its own, check them and rank them. Use it when you are unsure which fix, version, flag or approach \
is best: write one command per attempt that carries the approach out, and checks that say whether \
it worked. Returns all attempts, best first, with exit status, what each check said, the size of the \
change, the reason for its rank, and the name of the sandbox that holds its work; `winner` is the \
best one that passes. Nothing reaches the real files: look at a winner with `diff`, then `promote` \
its sandbox.";

#[derive(Deserialize)]
struct Input {
    attempts: Vec<Way>,
    #[serde(default)]
    checks: Vec<Proof>,
    score: Option<String>,
    #[serde(default)]
    stop_first: bool,
    time_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct Way {
    name: String,
    command: String,
}

#[derive(Deserialize)]
struct Proof {
    name: String,
    command: String,
}

pub fn tool() -> Tool {
    let named = |what: &str, command: &str| {
        object(
            json!({
                "name": { "type": "string", "minLength": 1, "maxLength": 40, "description": what },
                "command": { "type": "string", "minLength": 1, "description": command },
            }),
            &["name", "command"],
        )
    };
    let input = object(
        json!({
            "attempts": { "type": "array", "minItems": 1, "maxItems": 32, "description": "The ways to try.",
                "items": named("A short name for it, as in `bump-serde`.", "Command line that carries it out, for `sh -c`.") },
            "checks": { "type": "array", "maxItems": 32, "description": "What every attempt must pass: exit status 0.",
                "items": named("Its name, as in `test`.", "Command line, as in `cargo test`.") },
            "score": { "type": "string", "description": "A command that prints a number for an attempt; higher is better." },
            "stop_first": { "type": "boolean", "description": "Stop the others as soon as one passes. False by default." },
            "time_seconds": { "type": "integer", "minimum": 1, "maximum": 86400, "description": "Time for everything together." },
        }),
        &["attempts"],
    );
    let output = json!({
        "type": "object",
        "properties": {
            "winner": { "type": ["string", "null"] },
            "attempts": { "type": "array", "items": { "type": "object", "required": ["name", "rank", "why", "sandbox"] } },
            "notes": { "type": "array", "items": { "type": "string" } },
        },
        "required": ["winner", "attempts"],
    });
    let kind = Kind::Verb(Builtin { act, works: Place::Any });
    Tool { output: Some(output), time_ms: TIME_MS, kind, ..verb("try", DESCRIPTION, input, act) }
}

fn act(work: &Work<'_>) -> Result<Said> {
    let asked: Input = input(work)?;
    let shell = |command: String| vec!["sh".to_owned(), "-c".to_owned(), command];
    let attempts = asked.attempts.into_iter();
    let checks = asked.checks.into_iter();
    let time_ms = asked.time_seconds.map_or(work.time_ms, |time| (time * 1000).min(work.time_ms));
    let all = Try {
        attempts: attempts
            .map(|way| Attempt { name: way.name, command: shell(way.command) })
            .collect(),
        checks: checks
            .map(|it| Check {
                name: it.name,
                command: it.command,
                required: true,
                ..Check::default()
            })
            .collect(),
        score: asked.score,
        stop_first: asked.stop_first,
        budget_ms: Some(time_ms),
        ..Try::default()
    };
    let reply = work.engine.try_with(work.caller, all, &|_| (), &|| work.cancel.is_cancelled())?;
    let value = serde_json::to_value(&reply)
        .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
    said(value, None)
}
