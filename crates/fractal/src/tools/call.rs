//! One call, from the request to its record.
//!
//! The order: is there such a tool, may the caller use it, in which sandbox,
//! is the input as its schema says; then run, check what comes back, try
//! again where that is harmless, and write down what happened. The record has
//! the tool, the outcome and the time, and nothing of the input.

use super::function::{called_off, caught};
use super::registry::Entry;
use super::slots::{LOOK, Permit, Slots};
use super::{
    Cancel, INPUT_BYTES_MAX, Kind, OUTPUT_BYTES_MAX, Options, ToolRegistry, function, mcp,
    policy_of_new, program, retry, schema,
};
use crate::{Caller, Engine, record};
use fractal_model::{
    Code, Error, Policy, Result, ToolAnswer, ToolCall, ToolReply, Verb, check_tool_name,
};
use fractal_store::SandboxRow;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything that calls of one request share.
pub struct Calling<'a> {
    pub registry: &'a ToolRegistry,
    pub engine: &'a Engine,
    pub caller: &'a Caller,
    pub options: &'a Options,
    pub slots: Arc<Slots>,
    /// Servers at work, where some are configured.
    pub servers: Option<&'a mcp::Servers>,
}

/// One try: what a tool gets to work with.
pub struct Work<'a> {
    pub engine: &'a Engine,
    pub caller: &'a Caller,
    pub call: &'a ToolCall,
    /// The sandbox it works in; `None` where it makes one, or needs none.
    pub row: Option<&'a SandboxRow>,
    /// Time for this try.
    pub time_ms: u64,
    /// Bytes of its answer.
    pub output_bytes_max: usize,
    /// Whether it is still wanted.
    pub cancel: &'a Cancel,
}

/// What a tool says, and which sandbox it left.
pub struct Said {
    pub value: Value,
    pub sandbox: Option<String>,
}

/// A call that may be carried out.
struct Ready {
    entry: Arc<Entry>,
    row: Option<SandboxRow>,
    time_ms: u64,
}

/// How it went.
struct Went {
    tries: u32,
    sandbox: Option<String>,
    result: Result<Value>,
}

impl Calling<'_> {
    /// Carries out one call. It always has an answer.
    pub fn call(&self, call: &ToolCall) -> ToolReply {
        let start = Instant::now();
        let found = caught(&call.tool, || self.entry(call));
        let entry = found.as_ref().ok().cloned();
        let ready = found.and_then(|entry| caught(&call.tool, || self.prepare(call, &entry)));
        let row = ready.as_ref().ok().and_then(|ready| ready.row.clone());
        let mut went = match ready {
            Ok(ready) => self.try_often(call, &ready),
            Err(error) => Went { tries: 0, sandbox: None, result: Err(error) },
        };
        let wall_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let how = entry.as_ref().map(|entry| entry.tool.kind.name());
        let noted = self.note(call, row.as_ref(), how, &went, wall_ms);
        if let (Err(error), true) = (noted, went.result.is_ok()) {
            went.result = Err(error);
        }
        ToolReply {
            tool: call.tool.clone(),
            sandbox: went.sandbox.or_else(|| row.map(|row| row.name)),
            tries: went.tries,
            wall_ms,
            kind: how,
            answer: match went.result {
                Ok(value) => ToolAnswer::Output(value),
                Err(error) => ToolAnswer::Error(self.engine.readable(self.caller, error)),
            },
        }
    }

    /// The tool. A server is asked for what it offers when one of its tools is
    /// called, by those who may.
    fn entry(&self, call: &ToolCall) -> Result<Arc<Entry>> {
        let (engine, caller) = (self.engine, self.caller);
        engine.ready()?;
        if let Some(entry) = self.registry.entry(&call.tool) {
            return Ok(entry);
        }
        let mut broken = Vec::new();
        if let (Some(servers), Some(server)) = (self.servers, self.registry.server_of(&call.tool)) {
            engine.authorize(caller, Verb::Tool)?;
            if !caller.policy.allows_tool(&call.tool) {
                return Err(not_allowed(&call.tool));
            }
            let offer = mcp::offer(engine, caller, server, servers, call.time_ms)?;
            broken = self.registry.add(offer);
        }
        self.registry.entry(&call.tool).ok_or_else(|| {
            let missing =
                Error::not_found(format!("there is no tool `{}`", call.tool.escape_debug()))
                    .hint("`fractal tool list` shows what there is");
            let named = |error: &Error| error.message.contains(&format!("`{}`", call.tool));
            broken.into_iter().find(named).unwrap_or(missing)
        })
    }

    /// Whether it may be carried out, decided before anything happens.
    fn prepare(&self, call: &ToolCall, entry: &Arc<Entry>) -> Result<Ready> {
        let (engine, caller) = (self.engine, self.caller);
        let tool = &entry.tool;
        // A verb asks for itself: who may `diff` may do so as a tool.
        if !matches!(tool.kind, Kind::Verb(_)) {
            engine.authorize(caller, Verb::Tool)?;
        }
        schema::bounded(&call.input, INPUT_BYTES_MAX, "the input")?;
        let violations = entry.input.violations(&call.input);
        if !violations.is_empty() {
            let why = format!("`{}` cannot take this input: {}", tool.name, violations.join("; "));
            let hint = format!("`fractal tool show {}` prints what it takes", tool.name);
            return Err(Error::invalid(why).hint(hint));
        }
        let row = self.find(call, entry)?;
        let of_place = match &row {
            Some(row) => row.policy.clone(),
            None => policy_of_new(caller)?,
        };
        let policy = caller.policy.meet(&of_place);
        if !policy.allows_tool(&tool.name) {
            return Err(not_allowed(&tool.name));
        }
        Ok(Ready { entry: Arc::clone(entry), row, time_ms: time_ms(call, tool.time_ms, &policy) })
    }

    /// The sandbox: the input's, the call's, or the latest one where the tool
    /// needs one that exists.
    fn find(&self, call: &ToolCall, entry: &Entry) -> Result<Option<SandboxRow>> {
        let Kind::Verb(builtin) = &entry.tool.kind else {
            let named = call.sandbox.as_deref();
            return named.map(|name| self.engine.find(self.caller, Some(name))).transpose();
        };
        let named = call.input.get("sandbox").and_then(Value::as_str).or(call.sandbox.as_deref());
        match named {
            None if !builtin.needs_sandbox() => Ok(None),
            named => self.engine.find(self.caller, named).map(Some),
        }
    }

    fn try_often(&self, call: &ToolCall, ready: &Ready) -> Went {
        let tries_max = if ready.entry.tool.idempotent { self.options.tries_max() } else { 1 };
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match caught(&call.tool, || self.try_once(call, ready)) {
                Ok(said) => return Went { tries, sandbox: said.sandbox, result: Ok(said.value) },
                Err(error) => error,
            };
            let again = retry::is_transient(error.code, self.options.retry_timeout);
            if !again || tries >= tries_max || !self.pause(retry::pause(tries, retry::dice())) {
                return Went { tries, sandbox: None, result: Err(error) };
            }
        }
    }

    /// Waits; false when all of it was called off.
    fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.options.cancel.is_cancelled() {
            std::thread::sleep(end.saturating_duration_since(Instant::now()).min(LOOK));
        }
        !self.options.cancel.is_cancelled()
    }

    fn try_once(&self, call: &ToolCall, ready: &Ready) -> Result<Said> {
        let permit = self.permit(&self.slots, call, ready)?;
        let entry = &ready.entry;
        let work = Work {
            engine: self.engine,
            caller: self.caller,
            call,
            row: ready.row.as_ref(),
            time_ms: ready.time_ms,
            output_bytes_max: self.options.output_bytes.unwrap_or(OUTPUT_BYTES_MAX),
            cancel: &self.options.cancel,
        };
        let said = match &entry.tool.kind {
            Kind::Verb(builtin) => builtin.run(&work)?,
            Kind::Program(program) => program::run(program, &work)?,
            Kind::Mcp(proxied) => {
                let none = || Error::internal("a tool of a server was called without servers");
                mcp::run(proxied, &work, self.servers.ok_or_else(none)?)?
            }
            Kind::Function(code) => {
                let permits = vec![permit, self.permit(&self.registry.functions, call, ready)?];
                let cancel = &self.options.cancel;
                let value = function::run(code, call, ready.time_ms, permits, cancel)?;
                Said { value, sandbox: None }
            }
        };
        schema::bounded(
            &said.value,
            work.output_bytes_max,
            &format!("what `{}` answered", call.tool),
        )?;
        let violations = entry.output.as_ref().map(|schema| schema.violations(&said.value));
        match violations.filter(|list| !list.is_empty()) {
            None => Ok(said),
            Some(list) => {
                let why =
                    format!("`{}` answered other than it promises: {}", call.tool, list.join("; "));
                Err(Error::new(Code::Failed, why).hint("mend the tool, or its output schema"))
            }
        }
    }

    /// A place to work, waited for as long as the work itself may take.
    fn permit(&self, slots: &Arc<Slots>, call: &ToolCall, ready: &Ready) -> Result<Permit> {
        let cancel = &self.options.cancel;
        if cancel.is_cancelled() {
            return Err(called_off(&call.tool));
        }
        let permit = slots.take(Duration::from_millis(ready.time_ms), cancel);
        permit.ok_or_else(|| match cancel.is_cancelled() {
            true => called_off(&call.tool),
            false => Error::new(
                Code::Busy,
                format!("`{}` found no place: functions that overran are still at work", call.tool),
            )
            .hint("try again when they have ended"),
        })
    }

    fn note(
        &self,
        call: &ToolCall,
        row: Option<&SandboxRow>,
        how: Option<&str>,
        went: &Went,
        wall_ms: u64,
    ) -> Result<()> {
        // What is no name is only what somebody sent, of any length.
        let name = Some(call.tool.as_str()).filter(|name| check_tool_name(name).is_ok());
        let mut body = record(self.caller, "tool", row);
        body.error = went.result.as_ref().err().map(|error| error.code);
        let outcome = body.error.map_or("done", Code::name);
        body.detail = json!({
            "tool": name, "how": how, "outcome": outcome, "tries": went.tries, "wall_ms": wall_ms,
        });
        self.engine.store.transact_relaxed(|tx| tx.append(body))?;
        Ok(())
    }
}

fn not_allowed(tool: &str) -> Error {
    let why = format!("the tool `{}` may not be used here", tool.escape_debug());
    Error::denied(why).hint("`fractal tool list` shows which may")
}

/// The least of what the tool, the call and the policy give.
fn time_ms(call: &ToolCall, own: u64, policy: &Policy) -> u64 {
    let given = [call.time_ms, policy.limits.time_ms].into_iter().flatten();
    given.fold(own, u64::min).max(1)
}
