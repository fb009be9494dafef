//! The pages of the user guide, typed in as they stand.
//!
//! A `console` block holds `$ command` lines, each followed by the exact
//! output (both streams, in order). `…` stands for anything within a line; a
//! line of `…` alone for any number of lines. One shell per page runs all its
//! blocks in order, in a fresh home. After a wanted change,
//! `FRACTAL_BLESS=1 cargo test -p fractal-cli transcripts` writes what
//! differs into the pages, to be read before it is committed.

use crate::world::{Answer, World, able, is_root};
use std::path::{Path, PathBuf};

/// A command and what it should print, with its place in the page.
struct Exchange {
    command: String,
    expected: Vec<String>,
    /// Lines of the page that hold the expected output.
    lines: std::ops::Range<usize>,
}

fn pages() -> Vec<PathBuf> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let entries = std::fs::read_dir(guide).expect("the guide is there").flatten();
    let mut pages: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "md"))
        .collect();
    pages.sort();
    pages
}

fn exchanges(page: &str) -> Vec<Exchange> {
    let mut list: Vec<Exchange> = Vec::new();
    let mut inside = false;
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
            continue;
        }
        if !inside {
            continue;
        }
        if let Some(command) = line.strip_prefix("$ ") {
            let lines = number + 1..number + 1;
            list.push(Exchange { command: command.to_owned(), expected: Vec::new(), lines });
            continue;
        }
        let last = list.last_mut().expect("a block begins with a command");
        if let Some(more) = line.strip_prefix("> ").filter(|_| last.expected.is_empty()) {
            last.command.push('\n');
            last.command.push_str(more);
            last.lines = number + 1..number + 1;
        } else {
            last.expected.push(line.to_owned());
            last.lines.end = number + 1;
        }
    }
    list
}

const MARK: &str = "\u{1}next\u{1}";

/// All commands in one shell, which keeps variables and `$?` between them.
fn script(exchanges: &[Exchange]) -> String {
    let step = |exchange: &Exchange| {
        format!("{}\n__status=$?; printf '\\n{MARK}\\n'; (exit $__status)\n", exchange.command)
    };
    exchanges.iter().map(step).collect()
}

fn outputs(world: &World, exchanges: &[Exchange]) -> Vec<Vec<String>> {
    let path = world.root().join("script");
    std::fs::write(&path, script(exchanges)).expect("a script");
    let line = format!("exec 2>&1; . {}", path.display());
    let answer = Answer::of(
        world.command("bash").args(["-c", &line]).env_remove("FRACTAL_HOME").env("USER", "you"),
    );
    let root = world.root().canonicalize().expect("it exists").display().to_string();
    // A patch names paths without the first slash.
    let text = answer.out.replace(&root, "/home/you").replace(&root[1..], "home/you");
    let mark = format!("\n{MARK}\n");
    let parts = text.split(mark.as_str()).map(|part| part.trim_end_matches('\n'));
    // Weaker machines say so after each run; the guide is about the rest.
    let lines = |part: &str| {
        part.lines().filter(|line| !line.starts_with("isolation: ")).map(str::to_owned).collect()
    };
    parts.take(exchanges.len()).map(lines).collect()
}

fn line_matches(expected: &str, actual: &str) -> bool {
    let mut rest = actual;
    let parts: Vec<&str> = expected.split('…').collect();
    for (index, part) in parts.iter().enumerate() {
        let (first, last) = (index == 0, index + 1 == parts.len());
        rest = match (first, last) {
            (true, true) => return rest == *part,
            (true, false) => match rest.strip_prefix(part) {
                Some(rest) => rest,
                None => return false,
            },
            (false, true) => return rest.ends_with(part),
            (false, false) => match rest.find(part) {
                Some(at) => &rest[at + part.len()..],
                None => return false,
            },
        };
    }
    true
}

fn matches(expected: &[String], actual: &[String]) -> bool {
    match (expected.split_first(), actual.split_first()) {
        (None, None) => true,
        (Some((first, more)), _) if first == "…" => {
            (0..=actual.len()).any(|skip| matches(more, &actual[skip..]))
        }
        (Some((first, more)), Some((line, rest))) => {
            line_matches(first, line) && matches(more, rest)
        }
        _ => false,
    }
}

fn bless(path: &Path, page: &str, changes: Vec<(std::ops::Range<usize>, Vec<String>)>) {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    for (range, actual) in changes.into_iter().rev() {
        lines.splice(range, actual);
    }
    std::fs::write(path, lines.join("\n") + "\n").expect("the page can be written");
}

#[test]
fn the_guide_tells_the_truth() {
    if !able() {
        return;
    }
    if !is_root() {
        eprintln!("skipped: no root, for whom the guide's sessions are written");
        return;
    }
    let mut failures = String::new();
    for path in pages() {
        let page = std::fs::read_to_string(&path).expect("it is text");
        let world = World::new();
        let list = exchanges(&page);
        let mut changes = Vec::new();
        let actual = outputs(&world, &list);
        assert_eq!(actual.len(), list.len(), "{}: the shell ended early", path.display());
        for (exchange, actual) in list.iter().zip(actual) {
            if matches(&exchange.expected, &actual) {
                continue;
            }
            let (wanted, got) = (exchange.expected.join("\n"), actual.join("\n"));
            failures += &format!(
                "{}\n$ {}\n--- expected\n{wanted}\n--- got\n{got}\n\n",
                path.display(),
                exchange.command
            );
            changes.push((exchange.lines.clone(), actual));
        }
        if std::env::var_os("FRACTAL_BLESS").is_some() {
            bless(&path, &page, changes);
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

#[test]
fn dots_stand_for_anything() {
    let check = |expected: &str, actual: &str, is_match: bool| {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(matches(&lines(expected), &lines(actual)), is_match, "{expected:?} {actual:?}");
    };
    check("a…c", "abbc", true);
    check("a…c", "abbd", false);
    check("…", "", true);
    check("a\n…\nz", "a\nb\nc\nz", true);
    check("a\n…\nz", "a\nb", false);
    check("kept …: 2 changes (…)", "kept x: 2 changes (fractal diff x)", true);
}
