//! A run that is followed while it happens: its output as events, its reply
//! as the last one.
//!
//! The program's output goes through pipes into a bounded queue. A client
//! that reads slowly slows the program down; one that goes away lets it run
//! to its end or its limits, as without a stream.

use crate::asker::Asker;
use crate::failure::Failure;
use crate::state::Shared;
use crate::work::{self, Need};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use fractal::model::Run;
use fractal::{Error, Reply, RunIo};
use futures_util::stream;
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::json;
use std::convert::Infallible;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::mpsc;

const CHUNK_BYTES: usize = 16 << 10;
const QUEUED: usize = 64;

type Events = mpsc::Sender<Event>;

/// Starts the run and answers with its events. What is refused before it
/// starts is refused as without a stream.
pub async fn run(state: &Shared, asker: &Asker, run: Run) -> Result<Response, Failure> {
    let (events, queue) = mpsc::channel(QUEUED);
    let (stdout, out) = pipe()?;
    let (stderr, err) = pipe()?;
    let out = follow(out, "stdout", events.clone());
    let err = follow(err, "stderr", events.clone());
    let (state, asker) = (state.clone(), asker.clone());
    let need = Need::run(run.sandbox.is_none());
    tokio::spawn(async move {
        let job = move |engine: &fractal::Engine, caller: &fractal::Caller| {
            let io = RunIo::piped(run.stdin.as_deref(), stdout, stderr);
            Ok(Reply::Run(Box::new(engine.run(caller, run, io)?)))
        };
        let done = work::replying(&state, &asker, need, job).await;
        // All output comes before the answer.
        let _ = (out.await, err.await);
        let last = match done {
            Ok(reply) => Event::default().event("result").json_data(reply),
            Err(failure) => {
                Event::default().event("error").json_data(json!({ "error": failure.error() }))
            }
        };
        if let Ok(last) = last {
            let _ = events.send(last).await;
        }
    });
    Ok(answer(queue))
}

/// Events from a queue, with a sign of life now and then.
pub fn answer(queue: mpsc::Receiver<Event>) -> Response {
    let events = stream::unfold(queue, |mut queue| async move {
        let event = queue.recv().await?;
        Some((Ok::<_, Infallible>(event), queue))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

/// The end to write to, then the one to read from.
fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)
        .map_err(|error| Error::internal(format!("no pipe for the output: {error}")))?;
    Ok((write, read))
}

/// Turns what comes out of a pipe into events, whole characters at a time.
fn follow(pipe: OwnedFd, name: &'static str, events: Events) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(move || {
        let mut pipe = std::fs::File::from(pipe);
        let mut rest = Vec::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(read @ 1..) = pipe.read(&mut chunk) {
            rest.extend_from_slice(&chunk[..read]);
            let whole = whole_characters(&rest);
            let text: Vec<u8> = rest.drain(..whole).collect();
            // Nobody listens any more; the pipe is emptied all the same, or
            // the program would hang.
            let _ = send(&events, name, &text);
        }
        let _ = send(&events, name, &rest);
    })
}

fn send(events: &Events, name: &str, bytes: &[u8]) -> Option<()> {
    if bytes.is_empty() {
        return Some(());
    }
    let text = String::from_utf8_lossy(bytes);
    let event = Event::default().event(name).json_data(json!({ "text": text })).ok()?;
    events.blocking_send(event).ok()
}

/// How many of these bytes end with a whole character, or can never be one.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => {
            let tail = bytes.len().saturating_sub(3);
            let start = (tail..bytes.len()).find(|at| bytes[*at] >= 0xC0).unwrap_or(bytes.len());
            match std::str::from_utf8(&bytes[start..]) {
                Err(error) if error.error_len().is_none() => start,
                _ => bytes.len(),
            }
        }
        Ok(_) => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::whole_characters;

    #[test]
    fn characters_are_not_torn() {
        let euro = "a€".as_bytes();
        assert_eq!(whole_characters(euro), 4);
        assert_eq!(whole_characters(&euro[..3]), 1);
        assert_eq!(whole_characters(&euro[..2]), 1);
        assert_eq!(whole_characters(b"\xff\xfeab"), 4);
        assert_eq!(whole_characters(b"\xffa\xe2\x82"), 2);
    }
}
