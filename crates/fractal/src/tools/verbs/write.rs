//! `write`: a whole file of a sandbox.

use super::{fields, input, object, said, sandbox, verb};
use crate::files::{Edit, writing};
use crate::tools::Tool;
use crate::tools::call::{Said, Work};
use fractal_model::{EntryKind, Error, Result};
use serde::Deserialize;
use serde_json::json;

const DESCRIPTION: &str = "Write a whole text file in a sandbox: make a new one, or replace what is \
there. Use it for new files; to change part of an existing file use `edit`, which is shorter and \
safer. Missing directories are made, mode and owner of an existing file stay. The real file is \
untouched until `promote`. Returns the path, its size and whether it was `created`.";

#[derive(Deserialize)]
struct Input {
    path: String,
    content: String,
    #[serde(default)]
    executable: bool,
}

pub fn tool() -> Tool {
    let input = fields(
        json!({
            "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "The file, absolute or from the project's directory." },
            "content": { "type": "string", "description": "Everything the file is to hold." },
            "executable": { "type": "boolean", "description": "Make it a program. False by default." },
        }),
        &["path", "content"],
    );
    let output = object(
        json!({
            "path": { "type": "string" },
            "size_bytes": { "type": "integer" },
            "created": { "type": "boolean" },
        }),
        &["path", "size_bytes", "created"],
    );
    Tool {
        output: Some(output),
        idempotent: true,
        destructive: true,
        ..verb("write", DESCRIPTION, input, act)
    }
}

fn act(work: &Work<'_>) -> Result<Said> {
    let asked: Input = input(work)?;
    let row = sandbox(work)?;
    let value = writing(work.engine, work.caller, row, |files| {
        let (path, there) = files.find(&asked.path)?;
        if there.as_ref().is_some_and(|entry| entry.kind != EntryKind::File) {
            return Err(Error::invalid(format!("{path} is there and no regular file")));
        }
        let value = json!({
            "path": path.to_string(), "size_bytes": asked.content.len(), "created": there.is_none(),
        });
        Ok((Edit::put(path, asked.content.into_bytes(), asked.executable), value))
    })?;
    said(value, Some(row.name.clone()))
}
