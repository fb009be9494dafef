//! Runs whose caller hands over its own input and output: `run.sock`, beside
//! the socket for HTTP and with the same owner.
//!
//! The server greets with its version, so that a caller who waits in vain has
//! asked for nothing yet. The caller sends one frame with three descriptors:
//! the lines that its requests by HTTP have as headers, an empty line, and the
//! run as JSON. From then on each byte it sends is a signal for the program,
//! and when it goes away the run ends. The answer is one frame. A frame is a
//! length of four bytes, most significant first, and so many bytes of text.

use crate::asker::Asker;
use crate::extract;
use crate::failure::Failure;
use crate::listen::{self, Claim};
use crate::otlp::{Open, TRACEPARENT};
use crate::owner::Owner;
use crate::routes::check_run;
use crate::state::Shared;
use crate::work::{self, Need};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use fractal::model::Run;
use fractal::{Code, Error, Reply, RunIo};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

const CONNECTIONS_MAX: usize = 1024;
/// Callers whose requests are read at once. Each has a thread for so long, and
/// who says nothing must not take those that work needs.
const READING_MAX: usize = 32;
/// A command line and an environment; the kernel's own bound is near.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// How long a request may take to arrive, and an answer to be taken.
const FRAME_TIME: Duration = Duration::from_secs(10);
/// Says that the output is to stand in the answer.
const CAPTURE: &str = "fractal-capture";

/// What is listened on.
pub struct Listener {
    socket: UnixListener,
    _claim: Claim,
}

impl Listener {
    pub fn open(path: &Path) -> fractal::Result<Listener> {
        let (socket, claim) = listen::open_socket(path)?;
        Ok(Listener { socket, _claim: claim })
    }

    /// Takes connections until told to stop, then lets each have its answer.
    pub async fn accept_all(self, state: Shared, mut stopped: watch::Receiver<bool>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let reading = Arc::new(Semaphore::new(READING_MAX));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                _ = stopped.changed() => break,
            };
            match accepted {
                Ok((stream, _)) if listen::is_owner(&stream) => {
                    let Ok(permit) = room.clone().try_acquire_owned() else { continue };
                    let (state, reading) = (state.clone(), reading.clone());
                    connections.spawn(async move {
                        let _permit = permit;
                        if let Ok(stream) = stream.into_std() {
                            serve_one(&state, &reading, stream).await;
                        }
                    });
                }
                Ok(_) => {}
                Err(error) => listen::breathe(&error).await,
            }
            while connections.try_join_next().is_some() {}
        }
        while connections.join_next().await.is_some() {}
    }
}

/// One run, from greeting to answer.
async fn serve_one(state: &Shared, reading: &Semaphore, stream: UnixStream) {
    let turn = reading.acquire().await;
    let taken = tokio::task::spawn_blocking(move || {
        let asked = take(&stream);
        (stream, asked)
    });
    let taken = taken.await;
    drop(turn);
    let Ok((stream, Ok(asked))) = taken else { return };
    let answer = match carry_out(state, &stream, asked).await {
        Ok(reply) => json!({ "reply": reply }),
        // Nothing has begun: who asked does it without us.
        Err(failure) if failure.is_ending() => json!("unused"),
        Err(failure) => json!({ "error": failure.error() }),
    };
    let _ = tokio::task::spawn_blocking(move || write_frame(&stream, &answer)).await;
}

/// What came: text, and the caller's input, output and errors.
struct Asked {
    text: Vec<u8>,
    descriptors: [OwnedFd; 3],
}

async fn carry_out(state: &Shared, stream: &UnixStream, asked: Asked) -> Result<Reply, Failure> {
    let (headers, run) = read(&asked.text)?;
    check_run(&run)?;
    let is_captured = headers.contains_key(CAPTURE);
    let mut asker = Asker::owner(Owner::read(&headers, &state.project)?);
    let span = begin(state, &headers);
    asker.span = span.as_ref().and_then(Open::context);
    let connection = stream
        .try_clone()
        .map_err(|error| Error::internal(format!("cannot follow the caller: {error}")))?;
    let need = Need::run(run.sandbox.is_none());
    let job = move |engine: &fractal::Engine, caller: &fractal::Caller| {
        require_present(&connection)?;
        let [stdin, stdout, stderr] = asked.descriptors;
        let output = (!is_captured).then_some((stdout, stderr));
        let io = RunIo::handed(stdin, output, connection.into());
        Ok(Reply::Run(Box::new(engine.run(caller, run, io)?)))
    };
    let done = work::replying(state, &asker, need, job).await;
    if let Some(span) = span {
        let error = done.as_ref().err().map(|failure| failure.error().code.name());
        span.end(Vec::new(), error);
    }
    done
}

/// As a request by HTTP has one.
fn begin(state: &Shared, headers: &HeaderMap) -> Option<Open> {
    let parent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    state.spans.as_ref()?.request(
        parent,
        "run.sock".to_owned(),
        vec![("fractal.door", "run".into())],
    )
}

/// A caller that gave up while it waited for a place wants nothing run.
fn require_present(connection: &UnixStream) -> fractal::Result<()> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(connection, &mut [0u8][..], flags) {
        Ok((_, 0)) => Err(Error::new(Code::Busy, "the caller is gone")),
        _ => Ok(()),
    }
}

/// Greets and takes the request.
fn take(stream: &UnixStream) -> std::io::Result<Asked> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(FRAME_TIME))?;
    stream.set_write_timeout(Some(FRAME_TIME))?;
    let version = env!("CARGO_PKG_VERSION");
    write_frame(stream, &json!({ "version": version, "format": fractal::FORMAT_VERSION }))?;
    let asked = read_frame(stream)?;
    // What comes now comes when the caller has something to say.
    stream.set_read_timeout(None)?;
    Ok(asked)
}

fn write_frame(mut stream: &UnixStream, value: &Value) -> std::io::Result<()> {
    let text = value.to_string();
    let length = u32::try_from(text.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(text.as_bytes())
}

/// The descriptors come with the first bytes.
fn read_frame(mut stream: &UnixStream) -> std::io::Result<Asked> {
    let strange = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let mut length = [0u8; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut first = [IoSliceMut::new(&mut length)];
    let received = recvmsg(stream, &mut first, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = message {
            descriptors.extend(list);
        }
    }
    let descriptors = descriptors.try_into().map_err(|_| strange())?;
    stream.read_exact(&mut length[received.bytes..])?;
    let length = u32::from_be_bytes(length) as usize;
    if length > REQUEST_BYTES_MAX {
        return Err(strange());
    }
    let mut text = Vec::new();
    stream.take(length as u64).read_to_end(&mut text)?;
    match text.len() == length {
        true => Ok(Asked { text, descriptors }),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The lines, and the run behind them.
fn read(text: &[u8]) -> Result<(HeaderMap, Run), Failure> {
    const END: &[u8] = b"\r\n\r\n";
    let strange = || Error::invalid("the request does not read");
    let at = text.windows(END.len()).position(|four| four == END).ok_or_else(strange)?;
    let mut headers = HeaderMap::new();
    for line in text[..at].split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|byte| *byte == b':').ok_or_else(strange)?;
        let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| strange())?;
        let value = line[colon + 1..].trim_ascii();
        headers.insert(name, HeaderValue::from_bytes(value).map_err(|_| strange())?);
    }
    Ok((headers, extract::strict(&text[at + END.len()..])?))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_request_reads_whole_or_not_at_all() {
        let check = |text: &str, expect: bool| {
            assert_eq!(read(text.as_bytes()).is_ok(), expect, "{text}");
        };
        check("Fractal-Who: a\r\nA:\r\n\r\n{\"command\":[\"true\"]}", true);
        check("Fractal-Who: a\r\n\r\n{\"command\":[\"true\"],\"speed\":1}", false);
        check("Fractal-Who: a\r\n\r\n{\"command\":", false);
        check("Fractal-Who: a\r\n\r\n", false);
        check("Fractal-Who\r\n\r\n{\"command\":[]}", false);
        check("a b: c\r\n\r\n{\"command\":[]}", false);
        check("\r\n\r\n{}", false);
        check("", false);
    }
}
