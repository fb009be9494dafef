//! Rules about single lines: fences, words, sizes.

use crate::{assert_none, files};

const LINES_MAX: usize = 800;

/// Generated, and read by searching: it is as long as there are verbs.
const REFERENCE: &str = "docs/cli.md";

/// Where `unsafe` may stand.
const UNSAFE_HOME: &str = "crates/jail/src/sys/";

/// Where the crate that the shell is built on may be named.
const BASHKIT_HOME: &str = "crates/shell/src/adapter/";

/// Pages about other projects, which have words of their own.
const FRAMEWORKS: &str = "docs/guide/frameworks/";

/// The rules' own words stand in this folder.
const OWN: &str = "crates/model/tests/tidy/";

/// A line of code without its comment. A `//` inside a string cuts the rest
/// off, which makes the rules milder there and never wrong.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// Places in files of these endings where `is_breach` holds for a line.
fn breaches(endings: &[&str], is_breach: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files(endings) {
        if path.starts_with(OWN) {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            if is_breach(&path, line) {
                found.push(format!("{path}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    found
}

#[test]
fn unsafe_code_lives_in_one_module() {
    let found = breaches(&[".rs"], |path, line| {
        !path.starts_with(UNSAFE_HOME) && words(code(line)).any(|word| word == "unsafe")
    });
    assert_none(&found, "unsafe code outside of crates/jail/src/sys");
}

#[test]
fn one_module_knows_bashkit() {
    // A path of the crate, in code: `bashkit::…` or `use bashkit`.
    let found = breaches(&[".rs"], |path, line| {
        let code = code(line);
        !path.starts_with(BASHKIT_HOME)
            && (code.contains("bashkit::") || code.contains("use bashkit"))
    });
    assert_none(&found, "bashkit outside of crates/shell/src/adapter");
    let manifests = breaches(&["Cargo.toml"], |path, line| {
        path != "crates/shell/Cargo.toml" && line.trim_start().starts_with("bashkit")
    });
    assert_none(&manifests, "bashkit in another crate");
}

#[test]
fn nothing_is_left_for_later() {
    let found = breaches(&[".rs", ".md", ".toml", ".sh"], |_, line| {
        words(line).any(|word| matches!(word, "TODO" | "FIXME" | "XXX"))
            || code(line).contains("todo!(")
            || code(line).contains("unimplemented!(")
    });
    assert_none(&found, "left for later");
}

#[test]
fn types_say_what_they_are() {
    const EMPTY: [&str; 5] = ["Manager", "Controller", "Helper", "Util", "Utils"];
    let found = breaches(&[".rs"], |_, line| {
        let mut before = "";
        words(code(line)).filter(|word| !word.is_empty()).any(|word| {
            let named = matches!(before, "struct" | "enum" | "trait" | "type" | "mod");
            before = word;
            named && EMPTY.iter().any(|empty| word.to_lowercase().ends_with(&empty.to_lowercase()))
        })
    });
    assert_none(&found, "names that say nothing");
}

#[test]
fn one_thing_has_one_word() {
    // Where people read: a sealed layer is a snapshot, how a run happens is a
    // runner, and a named operation is a tool.
    const OTHERS: [&str; 6] =
        ["checkpoint", "checkpoints", "executor", "executors", "plugin", "plugins"];
    let found = breaches(&[".rs", ".md"], |path, line| {
        let is_ours = path.ends_with(".md") && !path.starts_with(FRAMEWORKS);
        let read_by_people = is_ours || path.starts_with("crates/cli/src/");
        read_by_people && words(&line.to_lowercase()).any(|word| OTHERS.contains(&word))
    });
    assert_none(&found, "a second word for something that has one");
}

#[test]
fn files_stay_short() {
    let long: Vec<String> = files(&[".rs", ".md"])
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(path, lines)| *lines > LINES_MAX && path != REFERENCE)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    assert_none(&long, "look for the seam");
}

#[test]
fn no_machine_of_ours_shows() {
    // In pieces, so that this file does not name them either.
    let places = [["/work", "/"].concat(), ["/tmp", "/wt"].concat(), ["/root/", ".cargo"].concat()];
    let found = breaches(&[".rs", ".md", ".toml", ".lock"], |_, line| {
        // A path component of its own: `layers/work/` is something else.
        places.iter().any(|place| {
            line.match_indices(place.as_str()).any(|(at, _)| {
                !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "}._-".contains(c))
            })
        })
    });
    assert_none(&found, "paths of one machine");
}
