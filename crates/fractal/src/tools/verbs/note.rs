//! `note` as a tool.

use super::{input, object, place_free, said, unexpected};
use crate::tools::Tool;
use crate::tools::call::{Said, Work};
use fractal_model::{Action, Note, NoteRelation, Reply, Result};
use serde::Deserialize;
use serde_json::json;

const DESCRIPTION: &str = "Write down what was learned, so that nobody has to find it out again: you \
in a later session, another agent, the user. Use it when you understood why something failed, found \
what fixed it, decided between ways, or found a way of working that others can use; not for progress \
reports. One note says one thing. The title is a whole statement (`PyYAML 6 needs Cython below 3`), \
the body says how it was found out and where it does not hold. Never write secrets. `recall` finds it \
again by words and meaning. Returns the note's `id`, which other notes can name in `relations`.";

#[derive(Deserialize)]
struct Input {
    title: String,
    #[serde(default)]
    body: String,
    kind: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    outcome: Option<String>,
    experiment: Option<String>,
    #[serde(default)]
    relations: Vec<NoteRelation>,
    #[serde(default)]
    verified: bool,
}

pub fn tool() -> Tool {
    let word = |description: &str| json!({ "type": "string", "minLength": 1, "maxLength": 64, "description": description });
    let relation = object(
        json!({
            "type": word("How: `fixes`, `fixed-by`, `cites`, `supersedes`, `refutes`, `depends-on`, `touches`."),
            "to": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "A note by its id, or `file:PATH`, `package:NAME`, `sandbox:NAME`." },
        }),
        &["type", "to"],
    );
    let input = object(
        json!({
            "title": { "type": "string", "minLength": 1, "maxLength": 300, "description": "What was learned, in one line." },
            "body": { "type": "string", "maxLength": 1_000_000, "description": "Everything else, in Markdown: evidence, commands, limits." },
            "kind": { "enum": ["insight", "failure", "decision", "pattern", "problem"], "description": "`insight` by default; `failure`: what did not work; `decision`: what was chosen and why; `pattern`: a way of working to use again; `problem`: what is unsolved." },
            "tags": { "type": "array", "maxItems": 32, "items": { "type": "string", "minLength": 1, "maxLength": 64 }, "description": "Words to find it by, as in `[\"python\", \"build\"]`." },
            "outcome": word("What came of it, in a word: `failed`, `passed`."),
            "experiment": { "type": "string", "minLength": 1, "maxLength": 1024, "description": "The experiment of the project that it belongs to, where it belongs to one." },
            "relations": { "type": "array", "maxItems": 200, "items": relation, "description": "How it stands to other notes and things." },
            "verified": { "type": "boolean", "description": "True only if you saw yourself that it holds. False by default." },
        }),
        &["title"],
    );
    let output = object(
        json!({
            "id": { "type": "string" },
            "kind": { "type": "string" },
            "title": { "type": "string" },
            "root": { "type": "string" },
            "path": { "type": "string" },
        }),
        &["id", "kind", "title", "root", "path"],
    );
    Tool { output: Some(output), ..place_free("note", DESCRIPTION, input, act) }
}

fn act(work: &Work<'_>) -> Result<Said> {
    let asked: Input = input(work)?;
    let note = Note {
        title: asked.title,
        body: asked.body,
        kind: asked.kind,
        tags: asked.tags,
        outcome: asked.outcome,
        experiment: asked.experiment,
        sandbox: work.row.map(|row| row.name.clone()),
        relations: asked.relations,
        verified: asked.verified,
    };
    let reply = match work.engine.apply(work.caller, Action::Note(Box::new(note)))? {
        Reply::Note(reply) => reply,
        other => return Err(unexpected(&other)),
    };
    let value = json!({
        "id": reply.noted, "kind": reply.kind.to_lowercase(), "title": reply.title,
        "root": reply.root, "path": reply.path,
    });
    said(value, None)
}
