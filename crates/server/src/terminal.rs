//! A terminal over a WebSocket: bytes both ways as binary messages, words
//! about it as text.
//!
//! It is a run like any other, with its place, its limits and its record. A
//! client that goes away, is silent, does not take what is written, or whose
//! key ends hangs up: the kernel tells the programs, and a while later they are
//! ended.

use crate::asker::{Asker, KEY_ENDED};
use crate::failure::Failure;
use crate::state::Shared;
use crate::work::{self, Need};
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket};
use fractal::model::{Run, RunReply};
use fractal::{Error, FarEnd, Reply, RunIo};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Deserialize;
use serde_json::json;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

/// Bytes of one message.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Messages that wait for a program to read them.
const TYPED: usize = 64;
const CHUNK_BYTES: usize = 16 << 10;
/// How often a client is asked whether it is there.
const ASK: Duration = Duration::from_secs(20);
/// How long it may be silent, or not take what is written.
const SILENCE: Duration = Duration::from_secs(60);

/// A window's size: columns, rows.
pub type Size = (u16, u16);

/// What a client says besides what is typed.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Word {
    Resize { cols: u16, rows: u16 },
}

/// Our ends of what the run's terminal hangs on.
struct Lines {
    typed: mpsc::Sender<Bytes>,
    words: OwnedFd,
    shown: pipe::Receiver,
}

type Ran = JoinHandle<Result<Reply, Failure>>;

/// Carries one terminal to its end.
pub async fn attend(socket: WebSocket, state: Shared, asker: Asker, run: Run, size: Size) {
    let (mut sink, stream) = socket.split();
    let (lines, ran) = match start(&state, &asker, run, size) {
        Ok(started) => started,
        Err(failure) => return say_last(&mut sink, refusal(&failure)).await,
    };
    let Lines { typed, words, mut shown } = lines;
    let gone = tokio::select! {
        gone = listen(stream, typed, &words) => Some(gone),
        () = show(&mut shown, &mut sink) => None,
        () = asker.ended(&state) => Some(Some(Error::denied(KEY_ENDED))),
    };
    // In this order: who has hung up has not typed an end.
    drop(words);
    drop(shown);
    let last = match (gone, ran.await) {
        (Some(Some(why)), _) => refusal(&why.into()),
        (_, Ok(Ok(Reply::Run(reply)))) => exit(&reply),
        (_, Ok(Err(failure))) => refusal(&failure),
        _ => refusal(&Error::internal("the engine broke off").into()),
    };
    say_last(&mut sink, last).await;
}

/// Starts the run; what is refused comes out of its task.
fn start(state: &Shared, asker: &Asker, run: Run, size: Size) -> Result<(Lines, Ran), Failure> {
    let no_pipe = |error: std::io::Error| Error::internal(format!("no pipe: {error}"));
    let (typed_out, typed_in) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| no_pipe(e.into()))?;
    // A word that does not fit is lost: nobody waits for a window's size.
    let nonblocking = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (words_out, words) = pipe_with(nonblocking).map_err(|e| no_pipe(e.into()))?;
    let (shown, shown_in) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| no_pipe(e.into()))?;
    let far = FarEnd::new(typed_out, words_out, size);
    let shown = pipe::Receiver::from_owned_fd(shown).map_err(no_pipe)?;
    let typed_in = pipe::Sender::from_owned_fd(typed_in).map_err(no_pipe)?;
    let (typed, queue) = mpsc::channel(TYPED);
    tokio::spawn(pass_on(queue, typed_in));
    let (state, asker) = (state.clone(), asker.clone());
    let ran = tokio::spawn(async move {
        let job = move |engine: &fractal::Engine, caller: &fractal::Caller| {
            let io = RunIo::far_terminal(far, shown_in);
            Ok(Reply::Run(Box::new(engine.run(caller, run, io)?)))
        };
        work::replying(&state, &asker, Need::run(false), job).await
    });
    Ok((Lines { typed, words, shown }, ran))
}

/// Hands what was typed to the run, as fast as it is read there.
async fn pass_on(mut queue: mpsc::Receiver<Bytes>, mut typed: pipe::Sender) {
    while let Some(bytes) = queue.recv().await {
        if typed.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Takes what the client sends until it is gone; `Some` is why it was sent
/// away.
async fn listen(
    mut stream: SplitStream<WebSocket>,
    typed: mpsc::Sender<Bytes>,
    words: &OwnedFd,
) -> Option<Error> {
    loop {
        // Silence, an end and a broken connection are the same to the run.
        let Ok(Some(Ok(message))) = timeout(SILENCE, stream.next()).await else { return None };
        match message {
            Message::Binary(bytes) => {
                if let Err(mpsc::error::TrySendError::Full(_)) = typed.try_send(bytes) {
                    let text = format!("{TYPED} messages wait and the program reads none");
                    return Some(Error::new(fractal::Code::Limit, text));
                }
            }
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(Word::Resize { cols, rows }) => {
                    let _ = rustix::io::write(words, &FarEnd::word((cols, rows)));
                }
                Err(error) => {
                    return Some(
                        Error::invalid(format!("a text message does not read: {error}"))
                            .hint(r#"say `{"resize":{"cols":80,"rows":24}}`"#),
                    );
                }
            },
            Message::Close(_) => return None,
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}

/// Passes on what is written until there will be no more, or nobody takes it.
async fn show(shown: &mut pipe::Receiver, sink: &mut SplitSink<WebSocket, Message>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut ask = interval(ASK);
    loop {
        let message = tokio::select! {
            read = shown.read(&mut chunk) => match read {
                Ok(count @ 1..) => Message::Binary(Bytes::copy_from_slice(&chunk[..count])),
                _ => return,
            },
            _ = ask.tick() => Message::Ping(Bytes::new()),
        };
        if !matches!(timeout(SILENCE, sink.send(message)).await, Ok(Ok(()))) {
            return;
        }
    }
}

fn exit(reply: &RunReply) -> String {
    json!({ "exit": reply.exit, "result": reply }).to_string()
}

fn refusal(failure: &Failure) -> String {
    json!({ "error": failure.error() }).to_string()
}

async fn say_last(sink: &mut SplitSink<WebSocket, Message>, text: String) {
    let goodbye = async {
        sink.send(Message::Text(text.into())).await?;
        sink.close().await
    };
    // Whoever is gone does not hear it.
    let _ = timeout(Duration::from_secs(5), goodbye).await;
}
