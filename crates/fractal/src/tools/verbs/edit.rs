//! `edit`: an exact text of a file, replaced.

use super::{fields, input, object, said, sandbox, verb};
use crate::files::{Edit, FILE_BYTES_MAX, writing};
use crate::tools::Tool;
use crate::tools::call::{Said, Work};
use fractal_model::{Code, Error, Result};
use serde::Deserialize;
use serde_json::json;

const DESCRIPTION: &str = "Change part of a text file in a sandbox by replacing an exact piece of \
text. Use it for every change to an existing file. `old` must be exactly what `read` shows, with its \
spaces and line breaks, and must occur exactly once; add lines around it until it does, or set `all` \
to replace every occurrence. The real file is untouched until `promote`. Returns the path, how many \
`replacements` were made, the `line` of the first, and the new size. When `old` occurs never or more \
than once nothing is changed, and the error says how often it occurs.";

#[derive(Deserialize)]
struct Input {
    path: String,
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
}

pub fn tool() -> Tool {
    let input = fields(
        json!({
            "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "The file, absolute or from the project's directory." },
            "old": { "type": "string", "minLength": 1, "description": "The exact text to replace." },
            "new": { "type": "string", "description": "What takes its place; may be empty." },
            "all": { "type": "boolean", "description": "Replace every occurrence. False by default." },
        }),
        &["path", "old", "new"],
    );
    let output = object(
        json!({
            "path": { "type": "string" },
            "replacements": { "type": "integer" },
            "line": { "type": "integer" },
            "size_bytes": { "type": "integer" },
        }),
        &["path", "replacements", "line", "size_bytes"],
    );
    Tool { output: Some(output), ..verb("edit", DESCRIPTION, input, act) }
}

fn act(work: &Work<'_>) -> Result<Said> {
    let asked: Input = input(work)?;
    let row = sandbox(work)?;
    let value = writing(work.engine, work.caller, row, |files| {
        let (path, entry) = files.existing(&asked.path)?;
        let text = files.text(&path, &entry)?;
        let (edited, count) = replaced(&text, &asked)
            .map_err(|error| Error { message: format!("{path}: {error}"), ..error })?;
        let before = text.split(&asked.old).next().unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        let value = json!({
            "path": path.to_string(), "replacements": count, "line": line,
            "size_bytes": edited.len(),
        });
        Ok((Edit::put(path, edited.into_bytes(), false), value))
    })?;
    said(value, Some(row.name.clone()))
}

/// The text with the replacement, and how many were made.
fn replaced(text: &str, asked: &Input) -> Result<(String, usize)> {
    let count = text.matches(&asked.old).count();
    if asked.old == asked.new {
        return Err(Error::invalid("`old` and `new` are the same"));
    }
    match count {
        0 => Err(Error::invalid("`old` does not occur in it (0 matches)")
            .hint("`read` the file and copy the text exactly, with its spaces and line breaks")),
        2.. if !asked.all => Err(Error::invalid(format!("`old` occurs {count} times in it"))
            .hint("add lines around it until it is the only one, or set `all` to true")),
        _ => {
            let grown = count.saturating_mul(asked.new.len()) as u64;
            if grown > FILE_BYTES_MAX {
                return Err(Error::new(Code::Limit, "the file would become too large"));
            }
            Ok((text.replace(&asked.old, &asked.new), count))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_is_exact_and_unique() {
        let check = |text: &str, old: &str, all: bool, expect: std::result::Result<&str, &str>| {
            let asked = Input { path: String::new(), old: old.into(), new: "X".into(), all };
            match (replaced(text, &asked), expect) {
                (Ok((edited, _)), Ok(expect)) => assert_eq!(edited, expect),
                (Err(error), Err(words)) => assert!(error.message.contains(words), "{error}"),
                (other, _) => panic!("{text} {old}: {other:?}"),
            }
        };
        check("a b c", "b", false, Ok("a X c"));
        check("a b b", "b", false, Err("occurs 2 times"));
        check("a b b", "b", true, Ok("a X X"));
        check("a b c", "d", true, Err("0 matches"));
        check("X", "X", false, Err("the same"));
    }
}
