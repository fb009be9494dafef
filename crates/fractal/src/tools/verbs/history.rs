//! `diff`, `snapshot`, `rollback` and `fork` as tools.

use super::{
    changes, changes_schema, fields, input, object, said, sandbox, selector, unexpected, verb,
};
use crate::DiffFormat;
use crate::tools::Tool;
use crate::tools::call::{Said, Work};
use fractal_model::{Action, Policy, Reply, Result, SandboxInfo};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;

/// Bytes of a patch in an answer.
const PATCH_BYTES_MAX: usize = 256 << 10;

const DIFF: &str = "Show what a sandbox changed, compared with the real files it started from or \
with one of its snapshots. Use it to review work before `promote`, or to see what a command really \
did. Returns the changed paths (at most 200, `total` counts all) and, with `patch` true, a patch in \
git's format, cut after 256 KiB. It changes nothing.";

const SNAPSHOT: &str = "Save the present state of a sandbox under a name, in milliseconds and \
whatever its size. Use it before something risky, so that `rollback` can bring it back. Returns the \
snapshot's name.";

const ROLLBACK: &str = "Bring a sandbox back to one of its snapshots. Everything in it that changed \
since is lost, and what runs in it is ended; the real files are not touched. Use it after a wrong \
turn. Returns the sandbox.";

const FORK: &str = "Make a child of a sandbox that starts from its present state, in milliseconds. \
Use it to try something on top of unfinished work without risking it: work in the child by giving \
its name as `sandbox`, then `promote` the child into its parent or forget it. Returns the child's \
name and its parent's.";

fn sandbox_schema() -> Value {
    object(
        json!({
            "sandbox": { "type": "string" },
            "id": { "type": "string" },
            "parent": { "type": ["string", "null"] },
            "created": { "type": "string" },
        }),
        &["sandbox", "id", "parent", "created"],
    )
}

fn name(description: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 64, "description": description })
}

pub fn diff() -> Tool {
    let input = fields(
        json!({
            "since": name("A snapshot of the sandbox to compare with; its start by default."),
            "patch": { "type": "boolean", "description": "Also return the changed lines. False by default." },
        }),
        &[],
    );
    let output = object(
        json!({
            "sandbox": { "type": "string" },
            "changes": changes_schema(),
            "total": { "type": "integer" },
            "patch": { "type": "string" },
            "truncated": { "type": "boolean" },
        }),
        &["sandbox", "changes", "total", "truncated"],
    );
    Tool {
        output: Some(output),
        idempotent: true,
        read_only: true,
        ..verb("diff", DIFF, input, act_diff)
    }
}

#[derive(Deserialize)]
struct Diff {
    since: Option<String>,
    #[serde(default)]
    patch: bool,
}

fn act_diff(work: &Work<'_>) -> Result<Said> {
    let asked: Diff = input(work)?;
    let action = Action::Diff { sandbox: selector(work), since: asked.since.clone() };
    let reply = match work.engine.apply(work.caller, action)? {
        Reply::Diff(reply) => reply,
        other => return Err(unexpected(&other)),
    };
    let mut value = json!({
        "sandbox": reply.sandbox, "changes": changes(&reply.changes), "total": reply.changes.len(),
        "truncated": reply.truncated || reply.changes.len() > super::CHANGES_MAX,
    });
    if asked.patch {
        let mut out = Head { bytes: Vec::new(), full: false };
        let (name, since) = (selector(work), asked.since.as_deref());
        let format = DiffFormat::Patch;
        work.engine.write_diff(work.caller, name.as_deref(), since, format, &mut out)?;
        value["patch"] = json!(String::from_utf8_lossy(&out.bytes));
        if out.full {
            value["truncated"] = json!(true);
        }
    }
    said(value, Some(reply.sandbox))
}

/// Keeps the beginning of what is written.
struct Head {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for Head {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PATCH_BYTES_MAX - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.full |= bytes.len() > room;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn snapshot() -> Tool {
    let input = fields(json!({ "name": name("Its name; one is chosen by default.") }), &[]);
    let output = object(
        json!({ "sandbox": { "type": "string" }, "snapshot": { "type": "string" }, "created": { "type": "string" } }),
        &["sandbox", "snapshot", "created"],
    );
    Tool { output: Some(output), ..verb("snapshot", SNAPSHOT, input, act_snapshot) }
}

#[derive(Deserialize)]
struct Named {
    name: Option<String>,
}

fn act_snapshot(work: &Work<'_>) -> Result<Said> {
    let asked: Named = input(work)?;
    let row = sandbox(work)?;
    let action = Action::Snapshot { sandbox: selector(work), name: asked.name };
    match work.engine.apply(work.caller, action)? {
        Reply::Snapshot(info) => {
            let value =
                json!({ "sandbox": row.name, "snapshot": info.name, "created": info.created });
            said(value, Some(row.name.clone()))
        }
        other => Err(unexpected(&other)),
    }
}

pub fn rollback() -> Tool {
    let input = fields(json!({ "to": name("The snapshot's name.") }), &["to"]);
    Tool {
        output: Some(sandbox_schema()),
        idempotent: true,
        destructive: true,
        ..verb("rollback", ROLLBACK, input, act_rollback)
    }
}

#[derive(Deserialize)]
struct Rollback {
    to: String,
}

fn act_rollback(work: &Work<'_>) -> Result<Said> {
    let asked: Rollback = input(work)?;
    let action = Action::Rollback { sandbox: selector(work), to: asked.to };
    shown(work.engine.apply(work.caller, action)?)
}

pub fn fork() -> Tool {
    let input = fields(json!({ "name": name("The child's name; one is chosen by default.") }), &[]);
    Tool { output: Some(sandbox_schema()), ..verb("fork", FORK, input, act_fork) }
}

fn act_fork(work: &Work<'_>) -> Result<Said> {
    let asked: Named = input(work)?;
    let action = Action::Fork {
        sandbox: selector(work),
        name: asked.name,
        ask: Policy::default(),
        network: None,
        ttl_ms: None,
        world: None,
    };
    shown(work.engine.apply(work.caller, action)?)
}

fn shown(reply: Reply) -> Result<Said> {
    match reply {
        Reply::Sandbox(SandboxInfo { name, id, parent, created, .. }) => {
            let value = json!({ "sandbox": name, "id": id, "parent": parent, "created": created });
            said(value, Some(name))
        }
        other => Err(unexpected(&other)),
    }
}
