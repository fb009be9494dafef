//! `find`: files by their names and contents.

use super::{fields, input, object, said, sandbox, verb};
use crate::files::Files;
use crate::tools::Tool;
use crate::tools::call::{Said, Work};
use fractal_jail::layer::{Bounds, Step};
use fractal_model::{EntryKind, Error, Result, SandboxPath, Verb};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Read;
use std::time::{Duration, Instant};

const MATCHES: usize = 200;
const MATCHES_MAX: usize = 1000;
/// Bytes of a line in the answer.
const LINE_BYTES_MAX: usize = 300;
/// Larger files are not searched: they are seldom written by hand.
const FILE_BYTES_MAX: u64 = 4 << 20;
const SEARCH_BYTES_MAX: u64 = 512 << 20;
const BOUNDS: Bounds = Bounds { entries_max: 200_000, depth_max: 64, bytes_max: SEARCH_BYTES_MAX };
/// A compiled pattern takes no more than this.
const PATTERN_BYTES_MAX: usize = 1 << 20;

const DESCRIPTION: &str = "Search a sandbox's files by name, by content, or both. Use it to find \
where something is defined or used, or which files there are, instead of `run` with grep or find. \
`pattern` is a regular expression that is searched line by line in text files; `glob` restricts \
which files count. Without `pattern` the files themselves are listed. `.git` is left out. Returns \
`matches` with path, line number and the text of the line (path alone without `pattern`), sorted by \
path; `truncated` is true when there is more than was looked at or returned: narrow it with `glob` \
or `path`.";

#[derive(Deserialize)]
struct Input {
    pattern: Option<String>,
    glob: Option<String>,
    path: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    limit: Option<usize>,
}

pub fn tool() -> Tool {
    let input = fields(
        json!({
            "pattern": { "type": "string", "minLength": 1, "maxLength": 1000, "description": "Regular expression for the content, as in `fn \\w+_test`. No look-around, no back references." },
            "glob": { "type": "string", "minLength": 1, "maxLength": 1000, "description": "Which files: `*.rs` by name anywhere, `src/**/*.rs` by path below `path`. `*`, `**` and `?` are known." },
            "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "Directory to search; the project by default." },
            "ignore_case": { "type": "boolean", "description": "Take `A` for `a` in `pattern`. False by default." },
            "limit": { "type": "integer", "minimum": 1, "maximum": MATCHES_MAX, "description": "Matches to return at most; 200 by default." },
        }),
        &[],
    );
    let output = object(
        json!({
            "matches": { "type": "array", "items": object(json!({
                "path": { "type": "string" },
                "line": { "type": "integer" },
                "text": { "type": "string" },
            }), &["path"]) },
            "files_searched": { "type": "integer" },
            "truncated": { "type": "boolean" },
        }),
        &["matches", "files_searched", "truncated"],
    );
    Tool {
        output: Some(output),
        idempotent: true,
        read_only: true,
        ..verb("find", DESCRIPTION, input, act)
    }
}

/// What is looked for, and what was found so far.
struct Search {
    pattern: Option<Regex>,
    limit: usize,
    end: Instant,
    bytes_left: u64,
    matches: Vec<Value>,
    searched: u64,
    truncated: bool,
}

fn act(work: &Work<'_>) -> Result<Said> {
    let asked: Input = input(work)?;
    let row = sandbox(work)?;
    let files = Files::open(work.engine, work.caller, Verb::Copy, row)?;
    let (start, entry) = files.existing(asked.path.as_deref().unwrap_or("."))?;
    if entry.kind != EntryKind::Directory {
        return Err(
            Error::invalid(format!("{start} is no directory")).hint("use `read` for a file")
        );
    }
    let glob = asked.glob.as_deref().map(glob).transpose()?;
    let mut search = Search {
        pattern: asked
            .pattern
            .as_deref()
            .map(|text| pattern(text, asked.ignore_case))
            .transpose()?,
        limit: asked.limit.unwrap_or(MATCHES),
        end: Instant::now() + Duration::from_millis(work.time_ms),
        bytes_left: SEARCH_BYTES_MAX,
        matches: Vec::new(),
        searched: 0,
        truncated: false,
    };
    let found = list(&files, &start, glob.as_ref(), &mut search)?;
    let mut reader = files.view.reader();
    for path in found {
        if !search.goes_on() {
            break;
        }
        match search.pattern.clone() {
            None => search.add(json!({ "path": path.to_string() })),
            Some(pattern) => {
                // One that cannot be read, or has gone meanwhile, has no match.
                let Ok(file) = reader.open_file(&path) else { continue };
                search.lines(&path, file, &pattern);
            }
        }
    }
    let value = json!({
        "matches": search.matches, "files_searched": search.searched, "truncated": search.truncated,
    });
    said(value, Some(row.name.clone()))
}

/// Regular files below a directory whose names fit, sorted.
fn list(
    files: &Files<'_>,
    start: &SandboxPath,
    glob: Option<&Regex>,
    search: &mut Search,
) -> Result<Vec<SandboxPath>> {
    let mut found = Vec::new();
    let skip = start.relative().len();
    let mut late = false;
    let walked = files.view.walk(start, &BOUNDS, |path, entry| {
        late = Instant::now() > search.end;
        if late {
            return Step::Stop;
        }
        let is_git = path.components().last() == Some(b".git");
        if is_git || files.is_hidden(path) || !files.is_ours(path, entry) {
            return Step::Skip;
        }
        let inner = String::from_utf8_lossy(&path.relative()[skip..]);
        let inner = inner.trim_start_matches('/');
        if entry.kind == EntryKind::File && glob.is_none_or(|glob| glob.is_match(inner)) {
            found.push(path.clone());
        }
        Step::Continue
    })?;
    search.truncated |= walked.truncated || late;
    found.sort();
    Ok(found)
}

impl Search {
    /// Whether there is room for more; notes where there is not.
    fn goes_on(&mut self) -> bool {
        let full = self.matches.len() >= self.limit;
        let spent = self.bytes_left == 0 || Instant::now() > self.end;
        self.truncated |= full || spent;
        !self.truncated
    }

    fn add(&mut self, found: Value) {
        self.searched += u64::from(self.pattern.is_none());
        self.matches.push(found);
    }

    fn lines(&mut self, path: &SandboxPath, file: std::fs::File, pattern: &Regex) {
        let mut content = Vec::new();
        if file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).is_err() {
            return;
        }
        self.searched += 1;
        self.bytes_left = self.bytes_left.saturating_sub(content.len() as u64);
        if content.len() as u64 > FILE_BYTES_MAX {
            self.truncated = true;
            return;
        }
        let Ok(text) = std::str::from_utf8(&content) else { return };
        for (index, line) in text.lines().enumerate() {
            if !pattern.is_match(line) {
                continue;
            }
            if self.matches.len() >= self.limit {
                self.truncated = true;
                return;
            }
            self.add(json!({ "path": path.to_string(), "line": index + 1, "text": cut(line) }));
        }
    }
}

fn cut(line: &str) -> &str {
    match line.char_indices().map(|(at, _)| at).find(|at| *at >= LINE_BYTES_MAX) {
        Some(at) => &line[..at],
        None => line,
    }
}

fn pattern(text: &str, ignore_case: bool) -> Result<Regex> {
    RegexBuilder::new(text)
        .case_insensitive(ignore_case)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim();
            Error::invalid(format!("/pattern is no regular expression: {why}"))
                .hint("escape brackets and dots that are meant as they are, as in `main\\(\\)`")
        })
}

/// `*` and `?` within a name, `**` across directories. Without a slash it is
/// about the name alone.
fn glob(text: &str) -> Result<Regex> {
    let mut rule = String::from(if text.contains('/') { "^" } else { "^(?:.*/)?" });
    let mut rest = text.trim_start_matches("./").trim_start_matches('/');
    while let Some(first) = rest.chars().next() {
        let (taken, part) = if rest.starts_with("**/") {
            (3, "(?:.*/)?".to_owned())
        } else if rest.starts_with("**") {
            (2, ".*".to_owned())
        } else {
            let part = match first {
                '*' => "[^/]*".to_owned(),
                '?' => "[^/]".to_owned(),
                other => regex::escape(other.encode_utf8(&mut [0; 4])),
            };
            (first.len_utf8(), part)
        };
        rule.push_str(&part);
        rest = &rest[taken..];
    }
    rule.push('$');
    RegexBuilder::new(&rule)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|_| Error::invalid("/glob is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_are_about_names_and_paths() {
        let check = |rule: &str, path: &str, fits: bool| {
            assert_eq!(glob(rule).expect(rule).is_match(path), fits, "{rule} {path}");
        };
        check("*.rs", "a.rs", true);
        check("*.rs", "src/b/a.rs", true);
        check("*.rs", "a.rsx", false);
        check("src/*.rs", "src/a.rs", true);
        check("src/*.rs", "src/b/a.rs", false);
        check("src/**/*.rs", "src/a.rs", true);
        check("src/**/*.rs", "src/b/c/a.rs", true);
        check("src/**", "src/b/c", true);
        check("a?.(x)", "ab.(x)", true);
        check("a?", "a/", false);
    }

    #[test]
    fn a_bad_pattern_is_explained() {
        let error = pattern("main(", false).expect_err("it is open");
        assert!(
            error.message.contains("/pattern") && error.message.contains("unclosed"),
            "{error}"
        );
        assert!(pattern(r"(?:\w{1000}){1000}", false).is_err());
    }
}
