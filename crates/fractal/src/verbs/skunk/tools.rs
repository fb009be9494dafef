//! The real tools that make environments, and what each is told.

use fractal_model::{Error, Result};

/// A tool that makes manifest, environment and lock file.
pub(super) struct Tool {
    pub name: &'static str,
    /// What it is told first, with `$NAME` for the project's name. None of it
    /// needs a network.
    make: &'static [&'static str],
    /// What adds packages, if any are asked for.
    add: &'static [&'static str],
    /// What writes the lock file when none are.
    lock: &'static [&'static str],
    /// Where to get it.
    pub from: &'static str,
}

/// A workspace further up would take the experiment for a part of itself, and a
/// repository within the project's would not be seen by it.
const TOOLS: [Tool; 3] = [
    Tool {
        name: "uv",
        make: &[
            "uv init --bare --vcs none --no-workspace --name \"$NAME\" .",
            "uv venv --quiet --no-project",
        ],
        add: &["uv add"],
        lock: &["uv lock --offline"],
        from: "`pip install uv`",
    },
    Tool {
        name: "cargo",
        make: &[
            "cargo init --quiet --vcs none --name \"$NAME\" .",
            "printf '\\n[workspace]\\n' >>Cargo.toml",
        ],
        add: &["cargo add --quiet"],
        lock: &["cargo generate-lockfile --offline --quiet"],
        from: "https://rustup.rs",
    },
    Tool {
        name: "npm",
        make: &["npm init --yes >/dev/null"],
        add: &["npm install --no-fund --no-audit"],
        lock: &["npm install --package-lock-only --offline --no-fund --no-audit --silent"],
        from: "https://nodejs.org",
    },
];

pub(super) const EMPTY: &str = "empty";

/// The tool of this name; none for an environment without one.
pub(super) fn find(name: Option<&str>) -> Result<Option<&'static Tool>> {
    match name {
        None | Some(EMPTY) => Ok(None),
        Some(name) => TOOLS.iter().find(|tool| tool.name == name).map(Some).ok_or_else(|| {
            let names = TOOLS.map(|tool| tool.name).join(", ");
            Error::invalid(format!("`{}` makes no environments", name.escape_debug()))
                .hint(format!("there are: {names}, {EMPTY}"))
        }),
    }
}

impl Tool {
    /// What is run inside: a shell script that makes the directory `$1` and
    /// everything in it. Packages are further arguments, never part of the text.
    pub fn script(&self, packages: bool) -> String {
        let mut lines = vec!["set -e", "dir=$1 NAME=$2", "shift 2"];
        lines.push("mkdir -p \"$dir\"");
        lines.push("cd \"$dir\"");
        let missing = format!("command -v {} >/dev/null || exit 127", self.name);
        lines.insert(1, &missing);
        lines.extend(self.make);
        let add = format!("{} \"$@\"", self.add.join(" "));
        if packages {
            lines.push(&add);
        } else {
            lines.extend(self.lock);
        }
        lines.join("\n")
    }
}

/// A package as tools take it: no option, nothing that could be one.
pub(super) fn check_package(name: &str) -> Result<()> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "@/._-+[]=<>~^!,*: ".contains(c);
    let starts_well = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '@');
    if starts_well && name.len() <= 200 && name.chars().all(is_fine) {
        return Ok(());
    }
    Err(Error::invalid(format!("`{}` is no package", name.escape_debug()))
        .hint("name it as the tool does, as in `--add requests` or `--add serde@1`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_never_part_of_the_script() {
        let tool = find(Some("uv")).expect("there is one").expect("it is a tool");
        assert!(tool.script(true).ends_with("uv add \"$@\""));
        assert!(tool.script(false).ends_with("uv lock --offline"));
        assert!(find(Some("make")).is_err());
        assert!(find(Some("empty")).expect("it is fine").is_none());
    }

    #[test]
    fn packages_that_are_options_are_refused() {
        let check =
            |name: &str, fine: bool| assert_eq!(check_package(name).is_ok(), fine, "{name}");
        check("requests", true);
        check("serde@1.0", true);
        check("@types/node", true);
        check("requests[socks]>=2", true);
        check("--index-url=x", false);
        check("", false);
        check("a;b", false);
        check("$(x)", false);
    }
}
