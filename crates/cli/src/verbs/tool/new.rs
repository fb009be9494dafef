use crate::failure::Failure;
use crate::session::Session;
use fractal::model::check_tool_name;
use fractal::{Code, Error};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Write a working example of a tool, to be changed
///
/// Makes `tools/NAME` beside the project's fractal.toml (or in this directory)
/// with a description, a program and a few words for readers. Nothing that
/// exists is overwritten.
///
/// Examples:
///
///   fractal tool new count-lines
///
///   fractal tool new count-lines --lang python
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct New {
    /// Its name: small letters, digits, - and _
    #[arg(value_name = "NAME")]
    name: String,
    /// What the program is written in
    #[arg(long, value_name = "LANG", value_enum, default_value = "sh")]
    lang: Lang,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Lang {
    /// A shell script
    Sh,
    /// A Python script
    Python,
}

const SHELL: &str = r#"#!/bin/sh
# The input is JSON on standard input, checked against the schema already. For
# more than a field or two use jq, or a language that knows JSON.
path=$(sed -n 's/.*"path" *: *"\([^"\\]*\)".*/\1/p')
[ -f "$path" ] || { echo "there is no file $path" >&2; exit 1; }
printf '{"lines": %d}\n' "$(wc -l < "$path")"
"#;

const PYTHON: &str = r#"#!/usr/bin/env python3
# The input is JSON on standard input, checked against the schema already.
import json
import sys

asked = json.load(sys.stdin)
try:
    with open(asked["path"], "rb") as file:
        json.dump({"lines": sum(1 for _ in file)}, sys.stdout)
except OSError as error:
    sys.exit(f"cannot read it: {error}")
"#;

impl Lang {
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Lang::Sh => ("main.sh", SHELL),
            Lang::Python => ("main.py", PYTHON),
        }
    }
}

impl New {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        check_tool_name(&self.name)?;
        let places = session.caller()?.config.tool_directories(session.directory());
        let tools = places.first().ok_or_else(|| Error::internal("tools have no place"))?;
        let directory = tools.join(&self.name);
        fs::create_dir_all(tools).map_err(|error| failed(tools, &error))?;
        fs::create_dir(&directory).map_err(|error| failed(&directory, &error))?;
        let (program, code) = self.lang.program();
        write(&directory.join(program), code, 0o755)?;
        write(&directory.join("README.md"), &readme(&self.name), 0o644)?;
        // Last: with it the tool is there.
        write(&directory.join("tool.toml"), &description(&self.name, program), 0o644)?;
        if session.json {
            return session.print_json(&json!({ "tool": self.name, "directory": directory }));
        }
        session.note(&format!("try it: fractal tool call {} path=FILE", self.name));
        session.print(&format!("{}\n", directory.display()))
    }
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Error::new(Code::Exists, format!("{} exists already", path.display()))
                .hint("choose another name, or take it away first")
        }
        _ => Error::denied(format!("cannot write {}: {error}", path.display())),
    }
}

fn readme(name: &str) -> String {
    format!(
        "# {name}\n\nA tool for fractal: `fractal tool call {name} path=FILE`. \
         `tool.toml` says what it takes and answers.\n"
    )
}

fn description(name: &str, program: &str) -> String {
    format!(
        r#"name = "{name}"
description = "Count the lines of a file. Use it to see how long a file is; returns the number of lines."
command = ["./{program}"]
# Doing it twice is as good as once, so it may be tried again.
idempotent = true
read-only = true
time = "10s"

[input]
type = "object"
required = ["path"]
additionalProperties = false
[input.properties.path]
type = "string"
description = "The file, from the project's directory."

[output]
type = "object"
required = ["lines"]
[output.properties.lines]
type = "integer"
"#
    )
}
