//! `tool.toml`: a program described as a tool.
//!
//! The file lies in a directory of the tool's name, beside what it needs. It
//! is read on the host; the program it names runs inside a sandbox only.

use super::program::Program;
use super::{Kind, TIME_MS, Tool};
use crate::config::{line_of, read_regular};
use fractal_model::{Error, Network, Result, parse_bytes, parse_duration_ms};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file's name.
pub const FILE_NAME: &str = "tool.toml";

/// Tools of one directory.
const TOOLS_MAX: usize = 256;

const FILE_BYTES_MAX: usize = 256 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    name: String,
    description: String,
    command: Vec<String>,
    input: toml::Value,
    output: Option<toml::Value>,
    #[serde(default)]
    idempotent: bool,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    destructive: bool,
    time: Option<String>,
    memory: Option<String>,
    net: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Reads every description in a directory, by name. One that does not exist
/// has none.
pub fn read_all(directory: &Path) -> Vec<Result<(PathBuf, Tool)>> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let files = entries.flatten().map(|entry| entry.path().join(FILE_NAME));
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.symlink_metadata().is_ok()).take(TOOLS_MAX + 1).collect();
    files.sort();
    let too_many = files.len() > TOOLS_MAX;
    files.truncate(TOOLS_MAX);
    let mut read: Vec<Result<(PathBuf, Tool)>> =
        files.into_iter().map(|path| read(&path).map(|tool| (path, tool))).collect();
    if too_many {
        let why = format!("{} holds more than {TOOLS_MAX} tools", directory.display());
        read.push(Err(Error::invalid(why).hint("some are left out: keep fewer in one place")));
    }
    read
}

fn read(path: &Path) -> Result<Tool> {
    let failed = |error: std::io::Error| {
        Error::invalid(format!("cannot read {}: {error}", path.display()))
            .hint("a description is a text file that you can read")
    };
    let text = read_regular(path).map_err(failed)?;
    if text.len() > FILE_BYTES_MAX {
        return Err(in_file(path, &Error::invalid("it is too long")));
    }
    let file: File = toml::from_str(&text).map_err(|error| {
        let line = line_of(&text, error.span().map_or(0, |span| span.start));
        let reason = error.message().lines().next().unwrap_or("not valid TOML").to_owned();
        Error::invalid(format!("{}:{line}: {reason}", path.display()))
            .hint("`fractal tool new NAME` writes an example to compare with")
    })?;
    file.tool(path).map_err(|error| in_file(path, &error))
}

/// An error about a whole description.
pub fn in_file(path: &Path, error: &Error) -> Error {
    Error { message: format!("{}: {error}", path.display()), ..error.clone() }
}

impl File {
    fn tool(self, path: &Path) -> Result<Tool> {
        let directory = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        fractal_model::check_tool_name(&self.name)?;
        if directory.file_name().is_none_or(|own| own != self.name.as_str()) {
            let why = format!("the tool `{}` lies in a directory of another name", self.name);
            return Err(Error::invalid(why).hint("give both the same name"));
        }
        if self.command.first().is_none_or(|word| word.is_empty()) {
            return Err(Error::invalid("command: there is none")
                .hint("write it as a list of words, as in command = [\"./main.sh\"]"));
        }
        let in_field =
            |name: &str, error: Error| Error { message: format!("{name}: {error}"), ..error };
        let time_ms = self.time.as_deref().map(parse_duration_ms).transpose();
        let memory_bytes = self.memory.as_deref().map(parse_bytes).transpose();
        let network = self.net.as_deref().map(Network::parse).transpose();
        Ok(Tool {
            input: schema(self.input, &directory).map_err(|error| in_field("input", error))?,
            output: self
                .output
                .map(|output| schema(output, &directory))
                .transpose()
                .map_err(|error| in_field("output", error))?,
            name: self.name,
            description: self.description,
            idempotent: self.idempotent,
            read_only: self.read_only,
            destructive: self.destructive,
            time_ms: time_ms.map_err(|error| in_field("time", error))?.unwrap_or(TIME_MS),
            kind: Kind::Program(Box::new(Program {
                directory,
                command: self.command,
                env: self.env,
                memory_bytes: memory_bytes.map_err(|error| in_field("memory", error))?,
                network: network.map_err(|error| in_field("net", error))?,
            })),
        })
    }
}

/// A schema as a table, or as the name of a JSON file beside the description.
fn schema(value: toml::Value, directory: &Path) -> Result<Value> {
    let toml::Value::String(name) = value else {
        return serde_json::to_value(value)
            .map_err(|error| Error::invalid(format!("it is no JSON Schema: {error}")));
    };
    if name.contains('/') || name == ".." || name.is_empty() {
        let why = format!("`{}` is no name of a file beside the description", name.escape_debug());
        return Err(Error::invalid(why).hint("write a table, or a name as in \"input.json\""));
    }
    let path = directory.join(&name);
    let text = read_regular(&path)
        .map_err(|error| Error::invalid(format!("cannot read {}: {error}", path.display())))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::invalid(format!("{}:{}: {error}", path.display(), error.line())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"t\"\ndescription = \"d\"\ncommand = [\"./main\"]\n";

    fn check(text: &str, words: &str) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("t")).expect("it is new");
        std::fs::write(dir.path().join("t/tool.toml"), text).expect("it is written");
        std::fs::write(dir.path().join("t/bad.json"), "{\n3}").expect("it is written");
        let read = read_all(dir.path()).pop().expect("there is one");
        let error = read.map(|(_, tool)| tool.name).expect_err(text);
        let all = format!("{error} {}", error.hint.clone().unwrap_or_default());
        assert!(all.contains("/t/tool.toml") && all.contains(words), "{all}");
    }

    #[test]
    fn mistakes_name_file_line_and_what_is_allowed() {
        let with = |line: &str| format!("{GOOD}{line}\n");
        check(
            &with("input = {}\ncomand = 3"),
            "tool.toml:5: unknown field `comand`, expected one of `name`",
        );
        check(GOOD, "missing field `input`");
        check(&with("input = 3 4"), "tool.toml:4");
        check(&with("input = {}\ntime = \"soon\""), "time: ");
        check(&with("input = {}\nmemory = \"much\""), "memory: ");
        check(&with("input = {}\nnet = \"all\""), "net: ");
        check(&with("input = \"../x.json\""), "input: `../x.json` is no name");
        check(&with("input = \"gone.json\""), "input: cannot read");
        check(&with("input = \"bad.json\""), "bad.json:2");
        check("name = \"u\"\ndescription = \"d\"\ncommand = [\"a\"]\ninput = {}\n", "another name");
        check("name = \"t\"\ndescription = \"d\"\ncommand = []\ninput = {}\n", "command");
    }
}
