use super::{one, tools};
use crate::bounds::{duration, small_count};
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use fractal::model::{ToolCall, ToolCalls, ToolInfo, ToolReply};
use fractal::{Action, Error, Reply};
use serde_json::{Map, Value};
use std::io::Read;

/// Bytes that are read as input; the engine's own bound is smaller.
const BYTES_MAX: u64 = 64 << 20;

/// Call a tool, or many at once
///
/// The input is JSON, or fields one by one; it is checked against the tool's
/// schema before anything runs. A program works in the sandbox given by --in,
/// or in a new one, which is kept if something changed in it; the verbs `read`,
/// `edit` and so on work in the latest one of this directory by default. The
/// answer is printed as JSON.
///
/// With --many a list of calls runs side by side: `[{"tool": …, "input": {…}}]`,
/// each with `sandbox` and `time_ms` if need be. The answers have the same
/// order, and one that fails is no trouble for the others.
///
/// Examples:
///
///   fractal tool call read path=README.md limit=5
///
///   fractal tool call run --in box --input '{"command": "make test"}'
///
///   fractal tool call --many calls.json --jobs 8
///
/// Exit status: that of the error, 1 when a program failed; with --many that
/// of the first error.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Call {
    /// The tool
    #[arg(value_name = "NAME", required_unless_present = "many", conflicts_with = "many")]
    name: Option<String>,
    /// Fields of the input; text where the schema says so, JSON otherwise
    #[arg(value_name = "KEY=VALUE", conflicts_with = "many")]
    fields: Vec<String>,
    /// The sandbox to work in
    #[arg(long = "in", value_name = "S", env = "FRACTAL_IN", hide_env_values = true)]
    sandbox: Option<String>,
    /// The whole input: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", conflicts_with = "many")]
    input: Option<String>,
    /// A JSON list of calls: FILE, or - for standard input
    #[arg(long, value_name = "FILE")]
    many: Option<String>,
    /// Calls that run at once [default: as many as there are cores]
    #[arg(long, value_name = "COUNT", value_parser = small_count, env = "FRACTAL_JOBS", hide_env_values = true)]
    jobs: Option<u32>,
    /// Time for each, as in 30s; never more than the tool's own
    #[arg(long, value_name = "DURATION", value_parser = duration, env = "FRACTAL_TIME", hide_env_values = true)]
    time: Option<u64>,
}

impl Call {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        match &self.many {
            Some(from) => self.call_many(session, from),
            None => self.call_one(session),
        }
    }

    fn call_one(&self, session: &Session) -> Result<u8, Failure> {
        let name = self.name.clone().unwrap_or_default();
        let call = ToolCall {
            input: self.read_input(session, &name)?,
            tool: name,
            sandbox: self.sandbox.clone(),
            time_ms: self.time,
        };
        let Reply::Tool(reply) = session.apply(Action::Tool(Box::new(call)))? else {
            return Err(unexpected());
        };
        if session.json {
            return session.print_json(&reply);
        }
        if let (Some(name), None) = (&reply.sandbox, &self.sandbox) {
            session.note(&format!("in `{name}`"));
        }
        session.print(&format!("{:#}\n", reply.result()?))
    }

    fn call_many(&self, session: &Session, from: &str) -> Result<u8, Failure> {
        let text = read(session, from)?;
        let mut calls: Vec<ToolCall> = serde_json::from_str(&text).map_err(|error| {
            Error::invalid(format!("--many: no list of calls: {error}"))
                .hint(r#"write [{"tool": "read", "input": {"path": "README.md"}}]"#)
        })?;
        for call in &mut calls {
            call.sandbox = call.sandbox.take().or_else(|| self.sandbox.clone());
            call.time_ms = call.time_ms.or(self.time);
        }
        let asked = ToolCalls { calls, jobs: self.jobs, tries: None };
        let Reply::Calls { results } = session.apply(Action::Calls(asked))? else {
            return Err(unexpected());
        };
        session.print_json(&results)?;
        let first = results.iter().find_map(ToolReply::error);
        Ok(first.map_or(0, |error| error.code.exit_status()))
    }

    fn read_input(&self, session: &Session, name: &str) -> Result<Value, Failure> {
        let mut input = match self.input.as_deref() {
            None => Value::Object(Map::new()),
            Some(text) => {
                let text = match text.strip_prefix('@') {
                    Some(file) => read(session, file)?,
                    None if text == "-" => read(session, text)?,
                    None => text.to_owned(),
                };
                let bad = |error| Error::invalid(format!("--input: no JSON: {error}"));
                serde_json::from_str(&text).map_err(bad)?
            }
        };
        if self.fields.is_empty() {
            return Ok(input);
        }
        let tool = one(tools(session, self.sandbox.clone())?, name)?;
        let object = input.as_object_mut().ok_or_else(|| {
            Error::invalid("--input is no object, so it has no fields")
                .hint("leave the fields out, or write an object")
        })?;
        for field in &self.fields {
            let (key, value) = field.split_once('=').ok_or_else(|| {
                Error::invalid(format!("`{}` is no KEY=VALUE", field.escape_debug()))
            })?;
            object.insert(key.to_owned(), typed(&tool, key, value));
        }
        Ok(input)
    }
}

/// Text where the schema wants text; elsewhere JSON, if it is some.
fn typed(tool: &ToolInfo, key: &str, value: &str) -> Value {
    let text = || Value::String(value.to_owned());
    match tool.input["properties"][key]["type"].as_str() {
        Some("string") => text(),
        _ => serde_json::from_str(value).unwrap_or_else(|_| text()),
    }
}

fn read(session: &Session, from: &str) -> Result<String, Error> {
    let mut text = String::new();
    let failed = |error: std::io::Error| {
        Error::invalid(format!("cannot read {}: {error}", from.escape_debug()))
    };
    let read = match from {
        "-" => std::io::stdin().take(BYTES_MAX).read_to_string(&mut text),
        path => std::fs::File::open(session.directory().join(path))
            .and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text)),
    };
    read.map(|_| text).map_err(failed)
}
