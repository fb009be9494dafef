//! Tools of other MCP servers.
//!
//! `[mcp.NAME]` in the settings names a command. It is started inside the
//! sandbox that a call is for, as a run like any other, and spoken to on its
//! standard input and output; so what it touches is the copy, within the
//! sandbox's policy. What it offers is asked once in a throw-away fork of
//! reality (`offer`), never in a sandbox that somebody worked in: what an agent
//! does to a server's files does not change what others are told about it.
//! Nothing that a server says is trusted, and nothing of it is executed here.

mod offer;
mod servers;
mod serving;
mod wire;

pub use offer::{Known, Offer, find, offer};
pub use servers::{Servers, with_servers};

use super::call::{Said, Work};
use super::function::{called_off, late};
use crate::config::Server;
use crate::{Caller, Engine};
use fractal_model::{Code, Error, Limits, Policy, Result, Run, World};
use serde_json::{Value, json};
use serving::{Failure, Serving};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Patience, Trouble};

/// What stands between a server's name and its tool's.
pub const SEPARATOR: char = '_';

/// How long one may be at work: every state has an end.
const LIFE_MS: u64 = 24 * 3_600_000;

/// What one may write while it is at work.
const LIFE_OUTPUT_BYTES: u64 = 1 << 30;

/// Bytes of what a server says about a failure that are told.
const WORDS_BYTES_MAX: usize = 2048;

/// A tool of a server.
#[derive(Clone, Debug)]
pub struct Proxied {
    /// Whose it is.
    pub server: Arc<Server>,
    /// What the server calls it.
    pub tool: String,
    /// Whether it says of what form its answers are.
    pub structured: bool,
}

pub fn run(proxied: &Proxied, work: &Work<'_>, servers: &Servers) -> Result<Said> {
    let until = Instant::now() + Duration::from_millis(work.time_ms);
    let patience = Patience { until, cancel: work.cancel };
    let wanted = asked(&proxied.server, work);
    match work.row {
        Some(row) => {
            let found = servers.at(row.id, &proxied.server, work.caller, wanted, patience);
            let serving = found.map_err(|failure| told(failure, work, &proxied.server))?;
            let answer = ask(&serving, proxied, work, patience);
            if answer.as_ref().is_err_and(|error| error.code == Code::Timeout) {
                servers.retire(&serving);
            }
            Ok(Said { value: answer?, sandbox: None })
        }
        None => {
            let started = servers.start(&proxied.server, work.caller, wanted, patience);
            let serving = started.map_err(|failure| told(failure, work, &proxied.server))?;
            let answer = ask(&serving, proxied, work, patience);
            let kept = serving.end().filter(|reply| reply.kept);
            Ok(Said { value: answer?, sandbox: kept.map(|reply| reply.sandbox) })
        }
    }
}

fn ask(
    serving: &Serving,
    proxied: &Proxied,
    work: &Work<'_>,
    patience: Patience<'_>,
) -> Result<Value> {
    let answer = serving.call(&proxied.tool, &work.call.input, patience);
    let result = answer.map_err(|failure| told(failure, work, &proxied.server))?;
    answered(result, &work.call.tool, proxied.structured)
}

/// The run that carries a server. Its bounds never ask for more than there is:
/// those of a server are a wish of who configured it, not of who calls.
fn asked(server: &Server, work: &Work<'_>) -> Run {
    let of_place = work.row.map(|row| row.policy.clone()).unwrap_or_default();
    let policy = work.caller.policy.meet(&of_place);
    let place = work.row.map_or(&work.caller.directory, |row| &row.directory);
    let sandbox = work.row.map(|row| row.id.to_string());
    // A new sandbox is that call's alone, and ends with it.
    let time_ms = if sandbox.is_some() { LIFE_MS } else { work.time_ms };
    Run { sandbox, ..carrying(server, place, &policy, time_ms) }
}

/// A run of a server's command within a policy.
fn carrying(server: &Server, place: &Path, policy: &Policy, time_ms: u64) -> Run {
    let allowed = &policy.limits;
    let least = |wish: u64, bound: Option<u64>| Some(bound.map_or(wish, |bound| wish.min(bound)));
    let limits = Limits {
        time_ms: least(time_ms, allowed.time_ms),
        output_bytes: least(LIFE_OUTPUT_BYTES, allowed.output_bytes),
        memory_bytes: server.memory_bytes.and_then(|wish| least(wish, allowed.memory_bytes)),
        ..Limits::default()
    };
    Run {
        command: server.command.clone(),
        env: server.env.clone(),
        cwd: Some(place.display().to_string()),
        ask: Policy { limits, ..Policy::default() },
        network: server.network.clone(),
        world: Some(World::Native),
        ..Run::default()
    }
}

/// What a server's answer means. Where it says of what form its answers are,
/// that is the answer, and otherwise what is for reading.
fn answered(mut result: Value, tool: &str, structured: bool) -> Result<Value> {
    let failed = |why: String| Error::new(Code::Failed, format!("`{tool}` {why}"));
    if result.get("isError").and_then(Value::as_bool).unwrap_or(false) {
        let words = words(&result);
        let said = if words.is_empty() { String::new() } else { format!(": {words}") };
        return Err(failed(format!("failed{said}")));
    }
    let form = result.get_mut("structuredContent").map(Value::take).filter(Value::is_object);
    if structured {
        return form.ok_or_else(|| failed("answered without the form that it promises".to_owned()));
    }
    match result.get_mut("content").map_or(json!([]), Value::take) {
        content @ Value::Array(_) => {
            let mut answer = json!({ "content": content });
            form.into_iter().for_each(|form| answer["structuredContent"] = form);
            Ok(answer)
        }
        _ => Err(failed("answered no list of content".to_owned())),
    }
}

/// What stands in an answer for people to read.
fn words(result: &Value) -> String {
    let blocks = result.get("content").and_then(Value::as_array);
    let texts = blocks.into_iter().flatten().filter_map(|block| block.get("text")?.as_str());
    cut(&texts.collect::<Vec<_>>().join("\n"))
}

/// The beginning of a text, and whether more would follow.
fn cut(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().map(|(at, _)| at).find(|at| *at >= WORDS_BYTES_MAX) {
        Some(at) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Why a call has no answer.
fn told(failure: Failure, work: &Work<'_>, server: &Server) -> Error {
    let tool = &work.call.tool;
    match failure {
        Failure::Refused(error) => error,
        Failure::Said { code, message } => {
            let (message, name) = (cut(&message), &server.name);
            let why = format!("`{tool}` failed: the server `{name}` says: {message} ({code})");
            Error::new(Code::Failed, why)
        }
        Failure::Trouble(Trouble::CalledOff, _) => called_off(tool),
        Failure::Trouble(Trouble::Late, noise) => with_noise(late(tool, work.time_ms), noise),
        Failure::Trouble(Trouble::Broken(why), noise) => {
            let why = why.unwrap_or_else(|| "it does not listen any more".to_owned());
            let error = Error::new(Code::Failed, format!("the server `{}`: {why}", server.name));
            with_noise(error, noise)
        }
    }
}

/// Who writes anything but messages is often not heard.
fn with_noise(error: Error, noise: Option<String>) -> Error {
    match noise {
        None => error,
        Some(noise) => error.hint(format!(
            "its standard output is for messages alone; it wrote `{}`",
            noise.escape_debug()
        )),
    }
}

impl Engine {
    /// Has servers that calls start go on until they are idle for long or
    /// [`Engine::end_servers`] is called, so that the next call in the same
    /// sandbox finds them as the last one left them. Otherwise they end with
    /// the request that they were started for.
    pub fn keep_servers(self: &Arc<Engine>) {
        servers::keep(self);
    }

    /// Ends all that were kept.
    pub fn end_servers(&self) {
        if let Some(kept) = self.mcp.kept() {
            kept.end_all();
        }
    }

    /// Ends those in a sandbox that nobody waits for, also those of other
    /// processes, for who wants it alone.
    pub(crate) fn rest_servers(&self, sandbox: fractal_model::Id) {
        if let Some(kept) = self.mcp.kept() {
            kept.rest(sandbox);
        }
        let is_running = || self.is_running(sandbox).unwrap_or(false);
        servers::want_alone(&self.home().join("cache"), sandbox, is_running);
    }
}

/// Whether a call may use what is kept. Behind a door everything ends with who
/// asked for it.
fn may_keep(caller: &Caller) -> bool {
    caller.door.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_content_and_a_failure_has_its_words() {
        let block = json!([{ "type": "text", "text": "hi" }]);
        let said = answered(json!({ "content": block }), "t", false).expect("it is one");
        assert_eq!(said, json!({ "content": block }));
        let form = json!({ "content": block, "structuredContent": { "a": 1 } });
        assert_eq!(answered(form, "t", true).expect("it is one"), json!({ "a": 1 }));
        let failed =
            |result, structured| answered(result, "t", structured).expect_err("it failed").message;
        let wrong = json!({ "content": block, "isError": true });
        assert_eq!(failed(wrong, false), "`t` failed: hi");
        assert!(failed(json!({ "content": block }), true).contains("promises"));
        assert!(failed(json!({ "content": 3 }), false).contains("no list"));
        let long = json!([{ "type": "text", "text": "ü".repeat(WORDS_BYTES_MAX) }]);
        let long = json!({ "content": long, "isError": true });
        assert!(failed(long, false).len() < WORDS_BYTES_MAX + 40);
    }
}
