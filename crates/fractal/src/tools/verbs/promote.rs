//! `promote` as a tool.

use super::{fields, input, said, selector, unexpected, verb};
use crate::tools::Tool;
use crate::tools::call::{Said, Work};
use fractal_model::{Action, Error, Promote, Reply, Result, TypedPath};
use serde::Deserialize;
use serde_json::json;

/// Its gate runs the project's checks.
const TIME_MS: u64 = 3_600_000;

const DESCRIPTION: &str = "Bring a sandbox's changes into where it came from: the real project, or \
its parent sandbox. This is the only way in which anything you did becomes real, so `diff` first. \
The project's checks run on the result before, and a person may have to approve. Returns a \
`verdict`: `applied` (done; `undo` has the id to take it back), `planned` (with `dry_run`), \
`nothing` (no changes), `conflict` (the files changed outside meanwhile: see `conflicts`), `gate` (a \
check did not pass: see `checks`) or `denied`. Unless it is `applied`, nothing has changed.";

#[derive(Deserialize)]
struct Input {
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    only: Vec<String>,
    to: Option<String>,
}

pub fn tool() -> Tool {
    let input = fields(
        json!({
            "dry_run": { "type": "boolean", "description": "Say what would happen and do nothing. False by default." },
            "only": { "type": "array", "maxItems": 1000, "items": { "type": "string", "minLength": 1, "maxLength": 4096 }, "description": "Bring only what lies at or below these paths; everything by default." },
            "to": { "type": "string", "minLength": 1, "maxLength": 64, "description": "The stage to go to, where the project has several." },
        }),
        &[],
    );
    let output = json!({
        "type": "object",
        "properties": {
            "verdict": { "enum": ["applied", "made", "nothing", "planned", "conflict", "gate", "denied"] },
            "stage": { "type": "string" },
            "applied": { "type": "array", "items": { "type": "object" } },
            "conflicts": { "type": "array", "items": { "type": "object" } },
            "undo": { "type": ["string", "null"] },
            "checks": { "type": "array", "items": { "type": "object" } },
        },
        "required": ["verdict", "stage", "applied", "conflicts"],
    });
    Tool {
        output: Some(output),
        destructive: true,
        time_ms: TIME_MS,
        ..verb("promote", DESCRIPTION, input, act)
    }
}

fn act(work: &Work<'_>) -> Result<Said> {
    let asked: Input = input(work)?;
    let promote = Promote {
        sandbox: selector(work),
        to: asked.to,
        only: asked.only.iter().map(|path| TypedPath::from(path.as_bytes())).collect(),
        dry_run: asked.dry_run,
        ..Promote::default()
    };
    let reply = match work.engine.apply(work.caller, Action::Promote(Box::new(promote)))? {
        Reply::Promote(reply) => reply,
        other => return Err(unexpected(&other)),
    };
    let name = reply.sandbox.clone();
    let value = serde_json::to_value(&reply)
        .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
    said(value, name)
}
