//! Which names a branch can have: what `git check-ref-format --branch` says,
//! as a rule of ours, so that a name is judged where it is written and without
//! a program that may not be there.

use fractal_model::Error;

/// What a person has to know to write one.
const ALLOWED: &str = "a branch is words joined by `/`, as in `release/1.2`: no spaces, no `..`, `@{`, `~^:?*[\\`, \
     and no word that begins with `.` or ends with `.` or `.lock`";

/// Refuses what git takes for no branch.
pub fn refuse_no_branch(name: &str) -> Result<(), Error> {
    match trouble(name) {
        None => Ok(()),
        Some(why) => {
            Err(Error::invalid(format!("`{}` is no name for a branch: {why}", name.escape_debug()))
                .hint(ALLOWED))
        }
    }
}

fn trouble(name: &str) -> Option<String> {
    let strange = |c: &char| c.is_ascii_control() || " ~^:?*[\\".contains(*c);
    if let Some(bad) = name.chars().find(strange) {
        return Some(format!("it has `{}` in it", bad.escape_debug()));
    }
    if let Some(part) = ["..", "@{"].into_iter().find(|part| name.contains(part)) {
        return Some(format!("it has `{part}` in it"));
    }
    match name {
        "" => return Some("it is empty".to_owned()),
        "@" | "HEAD" => return Some("git means something else by it".to_owned()),
        _ if name.starts_with('-') => return Some("it begins with `-`".to_owned()),
        _ if name.ends_with('.') => return Some("it ends with `.`".to_owned()),
        _ => {}
    }
    name.split('/').find_map(|word| match word {
        "" => Some("a `/` has nothing before or after it".to_owned()),
        _ if word.starts_with('.') => Some(format!("`{word}` begins with `.`")),
        _ if word.ends_with(".lock") => Some(format!("`{word}` ends with `.lock`")),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What git says, where there is one.
    fn git(name: &str) -> Option<bool> {
        let asked = Command::new("git").args(["check-ref-format", "--branch", name]).output();
        asked.ok().map(|answer| answer.status.success())
    }

    #[test]
    fn branches_are_those_of_git() {
        let good = ["main", "a", "release/1.2", "a.b", "a-b", "ä", "a@b", "a.lock.b", "x{y}", "@a"];
        let bad = [
            "",
            "-",
            "-a",
            "@",
            "HEAD",
            "bad..name",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[b",
            "a\\b",
            "a\tb",
            "a\u{7f}",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.",
            "a.lock",
            "a.lock/b",
            "a@{1}",
        ];
        for (names, is_good) in [(&good[..], true), (&bad[..], false)] {
            for name in names {
                assert_eq!(refuse_no_branch(name).is_ok(), is_good, "{name:?}");
                // It depends on git's version, and on where it is asked.
                if *name == "@" {
                    continue;
                }
                if let Some(says) = git(name) {
                    assert_eq!(says, is_good, "git about {name:?}");
                }
            }
        }
    }
}
