//! The engine's verbs as tools.
//!
//! One function per tool; descriptions and schemas are written for a language
//! model that has never heard of fractal: what it does, when to use it, what
//! comes back. Every answer is an object, typed and bounded.

mod attempt;
mod edit;
mod find;
mod history;
#[cfg(feature = "knowledge")]
mod note;
mod promote;
mod read;
#[cfg(feature = "knowledge")]
mod recall;
mod run;
mod write;

use super::call::{Said, Work};
use super::{Kind, TIME_MS, Tool};
use fractal_model::{Change, Error, Reply, Result};
use fractal_store::SandboxRow;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Paths that stand in an answer.
const CHANGES_MAX: usize = 200;

/// A verb as a tool.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    act: fn(&Work<'_>) -> Result<Said>,
    works: Place,
}

/// Where a verb works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a sandbox that exists already.
    Existing,
    /// In one that exists, or in one that it makes.
    Any,
    /// In none: a sandbox only says where whoever calls it is.
    #[cfg_attr(not(feature = "knowledge"), allow(dead_code))]
    Nowhere,
}

impl Builtin {
    /// Whether the latest sandbox is meant where none is named.
    pub(super) fn needs_sandbox(&self) -> bool {
        self.works == Place::Existing
    }

    /// Whether it can do without a sandbox, and makes none.
    pub(super) fn is_place_free(&self) -> bool {
        self.works == Place::Nowhere
    }

    pub(super) fn run(&self, work: &Work<'_>) -> Result<Said> {
        (self.act)(work)
    }
}

/// All of them.
pub fn all() -> Vec<Tool> {
    vec![
        run::tool(),
        attempt::tool(),
        read::tool(),
        write::tool(),
        edit::tool(),
        find::tool(),
        history::diff(),
        history::snapshot(),
        history::rollback(),
        history::fork(),
        promote::tool(),
        #[cfg(feature = "knowledge")]
        note::tool(),
        #[cfg(feature = "knowledge")]
        recall::tool(),
    ]
}

/// A tool that works in an existing sandbox and changes it.
fn verb(name: &str, description: &str, input: Value, act: fn(&Work<'_>) -> Result<Said>) -> Tool {
    Tool {
        name: name.to_owned(),
        description: description.to_owned(),
        input,
        output: None,
        idempotent: false,
        read_only: false,
        destructive: false,
        time_ms: TIME_MS,
        kind: Kind::Verb(Builtin { act, works: Place::Existing }),
    }
}

/// A tool that needs no sandbox.
#[cfg(feature = "knowledge")]
fn place_free(
    name: &str,
    description: &str,
    input: Value,
    act: fn(&Work<'_>) -> Result<Said>,
) -> Tool {
    let kind = Kind::Verb(Builtin { act, works: Place::Nowhere });
    Tool { kind, ..verb(name, description, input, act) }
}

/// An input schema with these fields, `sandbox` among them.
fn fields(mut properties: Value, required: &[&str]) -> Value {
    properties["sandbox"] = json!({
        "type": "string",
        "description": "Name or id of the sandbox to work in. Leave it out to stay in the current one.",
        "minLength": 1, "maxLength": 64,
    });
    object(properties, required)
}

/// A schema of an object with these fields and no others.
fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// The output schema of a list of changed paths.
fn changes_schema() -> Value {
    let change = json!({
        "path": { "type": "string" },
        "kind": { "enum": ["added", "modified", "deleted"] },
        "entry": { "enum": ["file", "directory", "symlink", "special"] },
        "size_bytes": { "type": "integer" },
    });
    json!({ "type": "array", "items": object(change, &["path", "kind", "entry", "size_bytes"]) })
}

/// The first changed paths, as the schema above says.
fn changes(list: &[Change]) -> Value {
    let one = |change: &Change| {
        json!({
            "path": change.path.to_string(), "kind": change.kind, "entry": change.entry,
            "size_bytes": change.size_bytes,
        })
    };
    list.iter().take(CHANGES_MAX).map(one).collect()
}

/// The input, which its schema has let pass.
fn input<T: DeserializeOwned>(work: &Work<'_>) -> Result<T> {
    serde_json::from_value(work.call.input.clone())
        .map_err(|error| Error::internal(format!("a checked input cannot be read: {error}")))
}

/// The sandbox, for tools that work in an existing one.
fn sandbox<'a>(work: &Work<'a>) -> Result<&'a SandboxRow> {
    work.row.ok_or_else(|| Error::internal("a tool was called without its sandbox"))
}

fn selector(work: &Work<'_>) -> Option<String> {
    work.row.map(|row| row.id.to_string())
}

fn unexpected(reply: &Reply) -> Error {
    let said = format!("{reply:?}");
    let shape = said.split(['(', ' ', '{']).next().unwrap_or_default();
    Error::internal(format!("the engine gave an answer of another verb: {shape}"))
}

fn said(value: Value, sandbox: Option<String>) -> Result<Said> {
    Ok(Said { value, sandbox })
}
