//! A run that is followed while it happens: its output as events, its reply
//! as the last one.
//!
//! The program's output goes through pipes into a bounded queue. A client
//! that reads slowly slows the program down; one that goes away lets it run
//! to its end or its limits, as without a stream, unless it said that the run
//! is nothing without it. One whose key ends meanwhile hears no more of it.

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
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

const CHUNK_BYTES: usize = 16 << 10;
const QUEUED: usize = 64;
/// How long a client may take nothing. Until then it slows the program down.
const PATIENCE: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(5);

type Events = mpsc::Sender<Event>;

/// Starts the run and answers with its events. What is refused before it
/// starts is refused as without a stream.
pub async fn run(
    state: &Shared,
    asker: &Asker,
    run: Run,
    attended: bool,
    input: bool,
) -> Result<Response, Failure> {
    let (events, queue) = mpsc::channel(QUEUED);
    let (ended, watched) = watch(state, asker, attended)?;
    let opened = input.then(|| state.inputs.open(asker)).transpose()?;
    let (state, asker) = (state.clone(), asker.clone());
    let need = Need::run(run.sandbox.is_none());
    tokio::spawn(async move {
        let (out, out_told) = oneshot::channel();
        let (err, err_told) = oneshot::channel();
        let told = events.clone();
        let (input, stdin) = opened.unzip();
        if let Some(input) = &input
            && let Ok(event) =
                Event::default().event("input").json_data(json!({ "input": input.id }))
        {
            let _ = events.send(event).await;
        }
        let job = move |engine: &fractal::Engine, caller: &fractal::Caller| {
            let stdout = follow("stdout", told.clone(), out)?;
            let stderr = follow("stderr", told, err)?;
            let io = match (stdin, watched) {
                (Some(stdin), Some(watched)) => {
                    RunIo::beside(stdin, stdout, stderr).ending_with(watched.into())
                }
                (_, Some(watched)) => {
                    RunIo::piped(run.stdin.as_deref(), stdout, stderr).ending_with(watched.into())
                }
                (_, None) => RunIo::piped(run.stdin.as_deref(), stdout, stderr),
            };
            Ok(Reply::Run(Box::new(engine.run(caller, run, io)?)))
        };
        let done = work::replying(&state, &asker, need, job).await;
        drop(input);
        // All output comes before the answer.
        let _ = (out_told.await, err_told.await);
        let last = match done {
            Ok(reply) => Event::default().event("result").json_data(reply),
            Err(failure) => {
                Event::default().event("error").json_data(json!({ "error": failure.error() }))
            }
        };
        if let Ok(last) = last {
            let _ = events.send_timeout(last, PATIENCE).await;
        }
    });
    Ok(answer(queue, ended))
}

/// What comes back when nobody may listen any more, and what the run looks at
/// to see that somebody does: behind a door nobody else would come back for it.
fn watch(
    state: &Shared,
    asker: &Asker,
    attended: bool,
) -> Result<(impl Future<Output = ()> + Send + 'static, Option<UnixStream>), Failure> {
    let lost = |error| Error::internal(format!("cannot follow the caller: {error}"));
    let pair =
        (attended || state.inside.is_some()).then(UnixStream::pair).transpose().map_err(lost)?;
    let (asked, watched) = pair.unzip();
    let (state, asker) = (state.clone(), asker.clone());
    let ended = async move {
        let _until_left = asked;
        asker.ended(&state).await;
    };
    Ok((ended, watched))
}

/// Events from a queue, with a sign of life now and then, until whoever hears
/// them may no longer.
pub fn answer(
    queue: mpsc::Receiver<Event>,
    ended: impl Future<Output = ()> + Send + 'static,
) -> Response {
    let events = stream::unfold((queue, Box::pin(ended)), |(mut queue, mut ended)| async move {
        let event = tokio::select! {
            biased;
            () = &mut ended => return None,
            event = queue.recv() => event?,
        };
        Some((Ok::<_, Infallible>(event), (queue, ended)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

/// A pipe whose content becomes events, whole characters at a time, in a thread
/// of its own: those of the runtime are for work that ends soon. It says when
/// all of it was told.
fn follow(
    name: &'static str,
    events: Events,
    told: oneshot::Sender<()>,
) -> fractal::Result<OwnedFd> {
    let failed = |error| Error::internal(format!("cannot follow the output: {error}"));
    let (read, write) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(std::io::Error::from(error)))?;
    let work = move || {
        let _until_told = told;
        tell(File::from(read), name, events);
    };
    std::thread::Builder::new().spawn(work).map_err(failed)?;
    Ok(write)
}

fn tell(mut pipe: File, name: &str, events: Events) {
    let mut events = Some(events);
    let mut rest = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut send_on = |bytes: &[u8]| {
        // Nobody listens any more; the pipe is emptied all the same, or the
        // program would hang.
        events = events.take().filter(|events| send(events, name, bytes).is_some());
    };
    while let Ok(read @ 1..) = pipe.read(&mut chunk) {
        rest.extend_from_slice(&chunk[..read]);
        let whole = whole_characters(&rest);
        let text: Vec<u8> = rest.drain(..whole).collect();
        send_on(&text);
    }
    send_on(&rest);
}

fn send(events: &Events, name: &str, bytes: &[u8]) -> Option<()> {
    if bytes.is_empty() {
        return Some(());
    }
    let text = String::from_utf8_lossy(bytes);
    let mut event = Event::default().event(name).json_data(json!({ "text": text })).ok()?;
    let until = Instant::now() + PATIENCE;
    loop {
        match events.try_send(event) {
            Ok(()) => return Some(()),
            Err(TrySendError::Full(back)) if Instant::now() < until => event = back,
            Err(_) => return None,
        }
        std::thread::sleep(NAP);
    }
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
