//! A tool that is code of the embedding program.
//!
//! It runs in a thread of its own, because nothing else can bound its time: a
//! thread cannot be ended from outside. Who overruns is answered for and left
//! alone; the places it takes are given back when it ends.

use super::slots::{LOOK, Permit};
use super::{Cancel, Function};
use fractal_model::{Code, Error, Result, ToolCall, format_duration_ms};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Calls the function, and waits for it so long at most.
pub fn run(
    function: &Function,
    call: &ToolCall,
    time_ms: u64,
    permits: Vec<Permit>,
    cancel: &Cancel,
) -> Result<Value> {
    let (send, answer) = sync_channel(1);
    let (function, owned) = (Arc::clone(function), call.clone());
    let work = move || {
        let said = caught(&owned.tool, || function(&owned));
        drop(permits);
        // Nobody listens any more when it took too long.
        let _ = send.send(said);
    };
    std::thread::Builder::new()
        .name("tool".to_owned())
        .spawn(work)
        .map_err(|error| Error::new(Code::Busy, format!("no thread can be started: {error}")))?;
    wait(&answer, &call.tool, time_ms, cancel)
}

fn wait(
    answer: &Receiver<Result<Value>>,
    tool: &str,
    time_ms: u64,
    cancel: &Cancel,
) -> Result<Value> {
    let end = Instant::now() + Duration::from_millis(time_ms);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match answer.recv_timeout(left.min(LOOK)) {
            Ok(said) => return said,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal(format!("`{tool}` ended without an answer")));
            }
            Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                return Err(called_off(tool));
            }
            Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(late(tool, time_ms)),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A panic becomes an error of this call alone.
pub fn caught<T>(tool: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
        let why = said.map_or_else(String::new, |text| format!(": {}", text.escape_debug()));
        Err(Error::internal(format!("`{tool}` panicked{why}")))
    })
}

/// The answer for a call that took too long.
pub fn late(tool: &str, time_ms: u64) -> Error {
    let time = format_duration_ms(time_ms);
    Error::new(Code::Timeout, format!("`{tool}` took longer than {time}"))
        .hint("give it less to do, or more time if its description and your policy allow it")
}

/// The answer for a call that nobody wants any more.
pub fn called_off(tool: &str) -> Error {
    Error::new(Code::Failed, format!("`{tool}` was called off"))
}
