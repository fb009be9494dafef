//! Processes: started, listed, talked to and ended by their numbers.
//!
//! What one writes goes to whoever listens at that moment; without listeners
//! it is read and forgotten, so that nobody hangs because nobody looks. A slow
//! listener slows the process, as a pipe would.

mod output;
mod start;
pub mod terminal;

use crate::connect::{Answer, Asked, Failure, Unary, ping_interval, stream, time_limit};
use crate::{Shared, State};
use axum::Router;
use axum::extract::State as Here;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use output::{Event, Listeners};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
pub use start::surround;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terminal::Size;
use tokio::process::ChildStdin;
use tokio::sync::mpsc;

/// How often it is looked whether a process without a listener has ended.
const LOOK: Duration = Duration::from_millis(500);
/// Processes at once that somebody asked for.
const PROCESSES_MAX: usize = 1024;

/// What is to be run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Config {
    cmd: String,
    args: Vec<String>,
    envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pty {
    size: Option<Size>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Start {
    process: Config,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
}

/// Which process is meant.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selected {
    process: Selector,
    pty: Option<Pty>,
    input: Input,
    signal: Value,
}

/// Bytes for a process, as base64.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Input {
    stdin: Option<String>,
    pty: Option<String>,
}

/// Where input goes.
enum Inlet {
    /// Nowhere: there never was any, or it was closed.
    None,
    Pipe(ChildStdin),
    Terminal(terminal::Master),
}

/// One process that was asked for, until it has ended.
pub struct Process {
    pid: u32,
    config: Config,
    tag: Option<String>,
    inlet: tokio::sync::Mutex<Inlet>,
    screen: Option<terminal::Screen>,
    listeners: Listeners,
}

/// Those that have not ended.
#[derive(Default)]
pub struct Table(Mutex<BTreeMap<u32, Arc<Process>>>);

impl Table {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Process>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, selector: &Selector) -> Result<Arc<Process>, Failure> {
        let table = self.lock();
        let found = match (selector.pid, &selector.tag) {
            (Some(pid), _) => table.get(&pid),
            (None, Some(tag)) => table.values().find(|process| process.tag.as_ref() == Some(tag)),
            (None, None) => return Err(Failure::invalid("no process is named")),
        };
        let gone = || match (selector.pid, &selector.tag) {
            (Some(pid), _) => Failure::not_found(format!("process with pid {pid} not found")),
            (_, tag) => {
                let tag = tag.as_deref().unwrap_or_default().escape_debug();
                Failure::not_found(format!("process with tag '{tag}' not found"))
            }
        };
        found.cloned().ok_or_else(gone)
    }

    fn is_full(&self) -> bool {
        self.lock().len() >= PROCESSES_MAX
    }
}

impl Process {
    /// Ends it with all that it has started, unless they made groups of their
    /// own.
    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let gone = || Failure::not_found(format!("process with pid {} not found", self.pid));
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        match kill_process_group(pid, signal) {
            Err(rustix::io::Errno::SRCH) => Err(gone()),
            Err(error) => Err(Failure::of(&error.into(), "cannot send the signal")),
            Ok(()) => Ok(()),
        }
    }

    async fn write(&self, input: &Input) -> Result<(), Failure> {
        use tokio::io::AsyncWriteExt;
        let text = input.stdin.as_deref().or(input.pty.as_deref()).unwrap_or_default();
        let bytes =
            STANDARD.decode(text).map_err(|_| Failure::invalid("the input is no base64"))?;
        let closed = || {
            Failure::new(
                crate::connect::Code::Precondition,
                format!("the input of process {} is closed", self.pid),
            )
        };
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => closed(),
            _ => Failure::of(&error, "cannot write the input"),
        };
        let mut inlet = self.inlet.lock().await;
        match &mut *inlet {
            Inlet::None => Err(closed()),
            Inlet::Pipe(pipe) => {
                pipe.write_all(&bytes).await.map_err(failed)?;
                pipe.flush().await.map_err(failed)
            }
            Inlet::Terminal(master) => master.write_all(&bytes).await.map_err(failed),
        }
    }
}

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/process.Process/Start", post(begin))
        .route("/process.Process/Connect", post(join))
        .route("/process.Process/List", post(list))
        .route("/process.Process/SendSignal", post(send_signal))
        .route("/process.Process/SendInput", post(send_input))
        .route("/process.Process/StreamInput", post(stream_input))
        .route("/process.Process/CloseStdin", post(close_stdin))
        .route("/process.Process/Update", post(update))
}

async fn begin(
    Here(state): Here<Shared>,
    headers: HeaderMap,
    Asked(start): Asked<Start>,
) -> Response {
    let started =
        state.users.of_headers(&headers).and_then(|user| start::start(&state, &user, start));
    match started {
        Ok((process, events)) => told(&state, &process, events, &headers, true),
        Err(failure) => crate::connect::stream_that_failed(&failure),
    }
}

async fn join(
    Here(state): Here<Shared>,
    headers: HeaderMap,
    Asked(asked): Asked<Selected>,
) -> Response {
    match state.processes.find(&asked.process) {
        Ok(process) => match process.listeners.join() {
            Some(events) => told(&state, &process, events, &headers, false),
            None => {
                let why = format!("too many listen to process {} already", process.pid);
                let failure = Failure::new(crate::connect::Code::Exhausted, why);
                crate::connect::stream_that_failed(&failure)
            }
        },
        Err(failure) => crate::connect::stream_that_failed(&failure),
    }
}

/// What a process does, as messages. The time limit of a call that started it
/// is the process's, too.
fn told(
    state: &Shared,
    process: &Arc<Process>,
    mut events: mpsc::Receiver<Event>,
    headers: &HeaderMap,
    is_mine: bool,
) -> Response {
    let event = |inner: Value| json!({ "event": inner });
    let (send, messages) = mpsc::channel(1);
    let limit = time_limit(headers);
    let (process, state) = (process.clone(), state.clone());
    tokio::spawn(async move {
        let late = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let telling = async {
            let start = json!({ "start": { "pid": process.pid } });
            if send.send(Ok(event(start))).await.is_err() {
                return;
            }
            loop {
                let next = tokio::select! {
                    next = events.recv() => next,
                    () = send.closed() => return,
                };
                let Some(next) = next else { return };
                if send.send(Ok(event(next.json()))).await.is_err() {
                    return;
                }
            }
        };
        tokio::pin!(late);
        let is_late = tokio::select! {
            () = telling => false,
            () = &mut late => true,
        };
        drop(events);
        let is_there = || {
            let table = state.processes.lock();
            table.get(&process.pid).is_some_and(|found| Arc::ptr_eq(found, &process))
        };
        let is_bound = is_mine && limit.is_some();
        if is_late {
            if is_bound && is_there() {
                let _ = process.signal(Signal::KILL);
            }
            let why = "the process took longer than the time it was given";
            let failure = Failure::new(crate::connect::Code::Deadline, why);
            let _ = send.send(Err(failure)).await;
            return;
        }
        // The stream ends here; the limit holds also for who has left before.
        drop(send);
        while is_bound && is_there() {
            tokio::select! {
                () = &mut late => {
                    let _ = process.signal(Signal::KILL);
                    return;
                }
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    });
    let idle: (Duration, Value) = (ping_interval(headers), event(json!({ "keepalive": {} })));
    stream(messages, Some(idle))
}

async fn list(Here(state): Here<Shared>) -> Answer {
    let table = state.processes.lock();
    let processes: Vec<Value> = table
        .values()
        .map(|process| {
            let mut told = json!({ "pid": process.pid, "config": process.config });
            if let Some(tag) = &process.tag {
                told["tag"] = json!(tag);
            }
            told
        })
        .collect();
    Ok(axum::Json(json!({ "processes": processes })))
}

async fn send_signal(Here(state): Here<Shared>, Unary(asked): Unary<Selected>) -> Answer {
    let signal = match (asked.signal.as_str(), asked.signal.as_u64()) {
        (Some("SIGNAL_SIGKILL"), _) | (_, Some(9)) => Signal::KILL,
        (Some("SIGNAL_SIGTERM"), _) | (_, Some(15)) => Signal::TERM,
        _ => return Err(Failure::invalid("the signal is SIGNAL_SIGTERM or SIGNAL_SIGKILL")),
    };
    state.processes.find(&asked.process)?.signal(signal)?;
    empty()
}

async fn send_input(Here(state): Here<Shared>, Unary(asked): Unary<Selected>) -> Answer {
    state.processes.find(&asked.process)?.write(&asked.input).await?;
    empty()
}

async fn close_stdin(Here(state): Here<Shared>, Unary(asked): Unary<Selected>) -> Answer {
    let process = state.processes.find(&asked.process)?;
    let mut inlet = process.inlet.lock().await;
    if let Inlet::Terminal(_) = &*inlet {
        return Err(Failure::new(
            crate::connect::Code::Precondition,
            "a terminal's input is not closed: send it ^D",
        ));
    }
    *inlet = Inlet::None;
    drop(inlet);
    empty()
}

async fn update(Here(state): Here<Shared>, Unary(asked): Unary<Selected>) -> Answer {
    let process = state.processes.find(&asked.process)?;
    if let Some(size) = asked.pty.and_then(|pty| pty.size) {
        let none = || Failure::invalid("the process has no terminal");
        process.screen.as_ref().ok_or_else(none)?.resize(size)?;
    }
    empty()
}

fn empty() -> Answer {
    Ok(axum::Json(json!({})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputEvent {
    start: Option<Selected>,
    data: Option<Selected>,
}

/// Input piece by piece: the first message names the process.
async fn stream_input(Here(state): Here<Shared>, request: axum::extract::Request) -> Response {
    let (send, messages) = mpsc::channel(1);
    let done = take_input(&state, request.into_body()).await;
    let _ = send.send(done.map(|()| json!({}))).await;
    drop(send);
    stream(messages, None)
}

async fn take_input(state: &State, body: axum::body::Body) -> Result<(), Failure> {
    use futures_util::StreamExt;
    let mut chunks = body.into_data_stream();
    let mut envelopes = crate::connect::Envelopes::default();
    let mut process = None;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Failure::invalid("the stream was cut"))?;
        envelopes.push(&chunk);
        while let Some(message) = envelopes.next()? {
            let event: InputEvent = crate::connect::read(&message)?;
            if let Some(start) = event.start {
                process = Some(state.processes.find(&start.process)?);
            }
            if let Some(data) = event.data {
                let none = || Failure::invalid("the first message names the process");
                process.as_ref().ok_or_else(none)?.write(&data.input).await?;
            }
        }
    }
    Ok(())
}
