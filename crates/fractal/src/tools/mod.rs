//! Tools: named operations with an input schema, for programs that think.
//!
//! A tool is a verb of the engine, a function of the embedding program, a
//! program that runs inside a sandbox, or a tool of another MCP server that
//! runs there. All of them are called the same way:
//! the input is checked against the tool's schema before anything happens,
//! time, sizes and the number of calls at once are bounded, one call's failure
//! is its own, and every call leaves a record that tells nothing of its input.
//! This module knows no HTTP, and of MCP only how to ask (`mcp`); surfaces
//! offer what is registered here.

mod call;
mod function;
mod manifest;
mod many;
pub(crate) mod mcp;
mod program;
mod registry;
mod retry;
mod schema;
mod slots;
mod stoppable;
mod tame;
mod verbs;

pub use crate::Cancel;
pub use many::Options;
pub use mcp::Proxied;
pub use program::Program;
pub use registry::ToolRegistry;
pub use verbs::Builtin;

use crate::template::Template;
use crate::{Caller, Engine};
use fractal_model::{
    Error, Policy, Reply, Result, ToolCall, ToolCalls, ToolInfo, ToolReply, ToolsReply,
};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Time for one try where nobody says otherwise.
pub const TIME_MS: u64 = 60_000;

/// Bytes of an input, as JSON.
pub const INPUT_BYTES_MAX: usize = 1 << 20;

/// Bytes of an answer, as JSON, where nobody says otherwise.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// What a function of the embedding program looks like.
pub type Function = Arc<dyn Fn(&ToolCall) -> Result<Value> + Send + Sync>;

/// A named operation with an input schema.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Its name: a small letter, then small letters, digits, `-` and `_`.
    pub name: String,
    /// What it does, when to use it and what comes back, for whoever chooses.
    pub description: String,
    /// JSON Schema (2020-12) of its input, which is an object.
    pub input: Value,
    /// JSON Schema of what it answers.
    pub output: Option<Value>,
    /// Whether doing it twice is as good as once: only then it is tried again.
    pub idempotent: bool,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// Whether it may take something away for good.
    pub destructive: bool,
    /// Time for one try.
    pub time_ms: u64,
    /// How it runs.
    pub kind: Kind,
}

/// How a tool runs.
#[derive(Clone)]
#[non_exhaustive]
pub enum Kind {
    /// A verb of the engine.
    Verb(Builtin),
    /// Code of the embedding program, in a thread of its own.
    Function(Function),
    /// A program inside a sandbox, with JSON on its input and output.
    Program(Box<Program>),
    /// A tool of another MCP server, which runs inside a sandbox.
    Mcp(Box<Proxied>),
}

impl Kind {
    /// The word for it on every surface.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Verb(_) => "verb",
            Kind::Function(_) => "function",
            Kind::Program(_) => "program",
            Kind::Mcp(_) => "mcp",
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Tool {
    /// A function of the embedding program. It counts as one that changes
    /// things and is not to be repeated, until it says otherwise.
    pub fn function(
        name: impl Into<String>,
        description: impl Into<String>,
        input: Value,
        code: impl Fn(&ToolCall) -> Result<Value> + Send + Sync + 'static,
    ) -> Tool {
        Tool {
            name: name.into(),
            description: description.into(),
            input,
            output: None,
            idempotent: false,
            read_only: false,
            destructive: false,
            time_ms: TIME_MS,
            kind: Kind::Function(Arc::new(code)),
        }
    }

    /// The tool as it is offered.
    pub fn info(&self) -> ToolInfo {
        let directory = match &self.kind {
            Kind::Program(program) => Some(program.directory.display().to_string()),
            _ => None,
        };
        ToolInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            kind: self.kind.name().to_owned(),
            input: self.input.clone(),
            output: self.output.clone(),
            idempotent: self.idempotent,
            read_only: self.read_only,
            destructive: self.destructive,
            time_ms: self.time_ms,
            directory,
        }
    }
}

impl Engine {
    /// The tools that everybody has: the verbs, and what the embedding program
    /// registers here.
    pub fn tools(&self) -> &ToolRegistry {
        self.tools.get_or_init(ToolRegistry::built_in)
    }

    /// The same with what the caller's project and the user describe, and
    /// those descriptions that cannot be read.
    pub fn tools_for(&self, caller: &Caller) -> (ToolRegistry, Vec<Error>) {
        let (registry, broken) = self.tools().with(caller);
        (registry, self.all_readable(caller, broken))
    }

    fn all_readable(&self, caller: &Caller, list: Vec<Error>) -> Vec<Error> {
        list.into_iter().map(|error| self.readable(caller, error)).collect()
    }

    /// What of it the caller may use in a sandbox, or in a new one.
    pub(crate) fn list_tools(&self, caller: &Caller, sandbox: Option<&str>) -> Result<ToolsReply> {
        self.tools_of(self.tools(), caller, sandbox)
    }

    /// The same for a registry of the embedding program's own.
    pub fn tools_of(
        &self,
        registry: &ToolRegistry,
        caller: &Caller,
        sandbox: Option<&str>,
    ) -> Result<ToolsReply> {
        let policy = match sandbox {
            Some(name) => caller.policy.meet(&self.find(caller, Some(name))?.policy),
            None => caller.policy.meet(&policy_of_new(caller)?),
        };
        let (registry, mut broken) = registry.with(caller);
        broken.extend(registry.discover_servers(self, caller, &policy));
        let broken = self.all_readable(caller, broken);
        Ok(ToolsReply { tools: registry.list(&policy), broken })
    }

    pub(crate) fn call_tool(&self, caller: &Caller, call: &ToolCall) -> Result<Reply> {
        let (registry, broken) = self.tools_for(caller);
        let reply = told(registry.call(self, caller, call), &broken);
        match reply.error() {
            Some(error) => Err(error.clone()),
            None => Ok(Reply::Tool(Box::new(reply))),
        }
    }

    pub(crate) fn call_tools(&self, caller: &Caller, asked: ToolCalls) -> Result<Reply> {
        let (registry, broken) = self.tools_for(caller);
        let mut options =
            Options { jobs: asked.jobs.map(|jobs| jobs as usize), ..Options::default() };
        options.tries = asked.tries.unwrap_or(options.tries);
        let results = registry.call_many(self, caller, &asked.calls, &options)?;
        let results = results.into_iter().map(|reply| told(reply, &broken)).collect();
        Ok(Reply::Calls { results })
    }
}

/// What the template of a new sandbox says about tools.
fn policy_of_new(caller: &Caller) -> Result<Policy> {
    let template = Template::find(caller, &caller.config.default_template())?;
    Ok(Policy { tools: template.tools, ..Policy::default() })
}

/// Who calls a tool whose description is broken wants to know that.
fn told(mut reply: ToolReply, broken: &[Error]) -> ToolReply {
    let file = format!("/{}/{}", reply.tool, manifest::FILE_NAME);
    let is_missing = reply.error().is_some_and(|error| error.code == fractal_model::Code::NotFound);
    if let Some(why) = broken.iter().find(|why| is_missing && why.message.contains(&file)) {
        reply.answer = fractal_model::ToolAnswer::Error(why.clone());
    }
    reply
}
