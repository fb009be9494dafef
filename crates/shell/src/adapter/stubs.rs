//! Programs that are not there: `/bin/sh`, `/usr/bin/env` …
//!
//! Scripts name commands by their paths. Where the tree has nothing at such
//! a path, reading it gives a line that leads back to the command. The files
//! are in no listing and cannot be written.

use std::collections::HashSet;
use std::sync::OnceLock;

/// Below here, the name of a command leads to bashkit's own command even
/// when we have one of that name.
pub(super) const BASHKIT_DIR: &str = "/dev/.bashkit/";

const PROGRAM_DIRS: [&str; 2] = ["/bin/", "/usr/bin/"];

/// Commands that exist only inside a shell.
const SHELL_ONLY: &[&str] = &[
    ".",
    ":",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "declare",
    "dirs",
    "disown",
    "enable",
    "eval",
    "exec",
    "exit",
    "export",
    "fc",
    "fg",
    "getopts",
    "hash",
    "help",
    "history",
    "jobs",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "pushd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "times",
    "trap",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "wait",
];

/// The names of bashkit's commands; the same in every shell.
static NAMES: OnceLock<HashSet<String>> = OnceLock::new();

pub(super) fn learn(names: impl FnOnce() -> Vec<String>) {
    NAMES.get_or_init(|| {
        let programs = names().into_iter().filter(|name| !SHELL_ONLY.contains(&name.as_str()));
        programs.chain(["bash".to_owned(), "sh".to_owned()]).collect()
    });
}

/// What a file at this path would hold, if it is one of ours.
pub(super) fn content(place: &[u8], is_ours: impl Fn(&str) -> bool) -> Option<String> {
    let path = std::str::from_utf8(place).ok()?;
    if let Some(name) = path.strip_prefix(BASHKIT_DIR) {
        return known(name).then(|| marked(name));
    }
    let name = PROGRAM_DIRS.iter().find_map(|dir| path.strip_prefix(dir))?;
    match is_ours(name) {
        true => Some(format!("#!/bin/sh\n{name} \"$@\"\n")),
        false => known(name).then(|| marked(name)),
    }
}

fn known(name: &str) -> bool {
    NAMES.get().is_some_and(|names| names.contains(name))
}

/// The form by which bashkit knows a stand-in for one of its commands.
fn marked(name: &str) -> String {
    format!("#!/bin/sh\n# bashkit builtin: {name}\nexec {name} \"$@\"\n")
}
