//! `read`: a file or a directory of a sandbox.

use super::{fields, input, object, said, sandbox, verb};
use crate::files::Files;
use crate::tools::Tool;
use crate::tools::call::{Said, Work};
use fractal_model::{EntryKind, Result, SandboxPath, Verb};
use serde::Deserialize;
use serde_json::{Value, json};

/// Lines of one answer.
const LINES: usize = 2000;

/// Bytes of one answer.
const BYTES_MAX: usize = 256 << 10;

/// Names of a directory in one answer.
const ENTRIES_MAX: usize = 1000;

const DESCRIPTION: &str = "Read a text file, or list a directory, as a sandbox sees it. Use it \
instead of `run` with cat or ls: it is quicker and starts nothing. For a file it returns `content`, \
the number of its `first_line`, how many `lines` came back and `total_lines`; when `truncated` is \
true, call again with `offset` set to `next_offset`. For a directory it returns `entries` with name, \
kind and size. It reads the project, and what programs made elsewhere in the sandbox.";

#[derive(Deserialize)]
struct Input {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

pub fn tool() -> Tool {
    let input = fields(
        json!({
            "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "File or directory, absolute or from the project's directory. `.` is the project." },
            "offset": { "type": "integer", "minimum": 1, "description": "First line to return, counted from 1." },
            "limit": { "type": "integer", "minimum": 1, "maximum": LINES, "description": "How many lines to return at most; 2000 by default." },
        }),
        &["path"],
    );
    let output = object(
        json!({
            "path": { "type": "string" },
            "kind": { "enum": ["file", "directory"] },
            "content": { "type": "string" },
            "first_line": { "type": "integer" },
            "lines": { "type": "integer" },
            "total_lines": { "type": "integer" },
            "size_bytes": { "type": "integer" },
            "entries": { "type": "array", "items": object(json!({
                "name": { "type": "string" },
                "kind": { "enum": ["file", "directory", "symlink", "special"] },
                "size_bytes": { "type": "integer" },
            }), &["name", "kind", "size_bytes"]) },
            "truncated": { "type": "boolean" },
            "next_offset": { "type": "integer" },
        }),
        &["path", "kind", "truncated"],
    );
    Tool {
        output: Some(output),
        idempotent: true,
        read_only: true,
        ..verb("read", DESCRIPTION, input, act)
    }
}

fn act(work: &Work<'_>) -> Result<Said> {
    let asked: Input = input(work)?;
    let row = sandbox(work)?;
    let files = Files::open(work.engine, work.caller, Verb::Copy, row)?;
    let (path, entry) = files.existing(&asked.path)?;
    let value = match entry.kind {
        EntryKind::Directory => list(&files, &path)?,
        _ => {
            let text = files.text(&path, &entry)?;
            let part = part(&text, asked.offset.unwrap_or(1), asked.limit.unwrap_or(LINES));
            shown(&path, &text, &part)
        }
    };
    said(value, Some(row.name.clone()))
}

fn list(files: &Files<'_>, path: &SandboxPath) -> Result<Value> {
    let mut entries = Vec::new();
    let mut truncated = false;
    for found in files.view.read_dir(path)? {
        let at = path.join(&found.name)?;
        if files.is_hidden(&at) || !files.is_ours(&at, &found.entry) {
            continue;
        }
        truncated = entries.len() >= ENTRIES_MAX;
        if truncated {
            break;
        }
        let name = String::from_utf8_lossy(&found.name).into_owned();
        entries.push(
            json!({ "name": name, "kind": found.entry.kind, "size_bytes": found.entry.size }),
        );
    }
    Ok(json!({
        "path": path.to_string(), "kind": "directory", "entries": entries, "truncated": truncated,
    }))
}

/// Some lines of a text.
struct Part<'a> {
    content: &'a str,
    first: usize,
    lines: usize,
    /// The line to go on with.
    next: Option<usize>,
}

fn part(text: &str, first: usize, limit: usize) -> Part<'_> {
    let start: usize = text.split_inclusive('\n').take(first - 1).map(str::len).sum();
    let rest = &text[start..];
    let (mut lines, mut length) = (0, 0);
    for line in rest.split_inclusive('\n').take(limit) {
        if length + line.len() > BYTES_MAX {
            break;
        }
        lines += 1;
        length += line.len();
    }
    // One line that is too long for an answer is cut, or nobody gets past it.
    if lines == 0 && !rest.is_empty() {
        length = (0..=BYTES_MAX.min(rest.len()))
            .rev()
            .find(|at| rest.is_char_boundary(*at))
            .unwrap_or(0);
        lines = 1;
    }
    let next = (start + length < text.len()).then_some(first + lines);
    Part { content: &rest[..length], first, lines, next }
}

fn shown(path: &SandboxPath, text: &str, part: &Part<'_>) -> Value {
    let mut value = json!({
        "path": path.to_string(), "kind": "file", "content": part.content,
        "first_line": part.first, "lines": part.lines, "total_lines": text.lines().count(),
        "size_bytes": text.len(), "truncated": part.next.is_some(),
    });
    if let Some(next) = part.next {
        value["next_offset"] = json!(next);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join_to_the_whole() {
        let check = |text: &str, first, limit, content: &str, next: Option<usize>| {
            let part = part(text, first, limit);
            assert_eq!((part.content, part.next), (content, next), "{text:?} {first} {limit}");
        };
        check("a\nb\nc", 1, 9, "a\nb\nc", None);
        check("a\nb\nc", 1, 2, "a\nb\n", Some(3));
        check("a\nb\nc", 3, 2, "c", None);
        check("a\nb\nc", 9, 2, "", None);
        check("", 1, 2, "", None);
        let long = "ü".repeat(BYTES_MAX);
        let cut = part(&long, 1, 1);
        assert!(cut.content.len() <= BYTES_MAX && cut.next == Some(2));
    }
}
