//! Bodies that are too long for memory: on their way in and out they lie in
//! files without a name in the state directory, which are gone when whoever
//! holds them is.
//!
//! A client must keep up: one that sends or takes too slowly is cut off, so
//! that nobody keeps places and disk by doing nothing.

use crate::admission::Room;
use crate::asker::Asker;
use crate::failure::Failure;
use crate::state::Shared;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fractal::model::format_bytes;
use fractal::{Code, Error};
use futures_util::{StreamExt, stream};
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a client may be silent at first, or not take anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// What it must send afterwards, on average.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;
const CHUNK_BYTES: usize = 256 << 10;
const CHUNKS: usize = 2;

/// A body that has come whole, and its room.
pub struct Received {
    pub file: File,
    _room: Room,
}

/// Takes a body that is not longer than it may be.
pub async fn receive(
    state: &Shared,
    asker: &Asker,
    headers: &HeaderMap,
    body: Body,
) -> Result<Received, Failure> {
    let most = state.admission.body_bytes();
    let told = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if told.and_then(|text| text.parse::<u64>().ok()).is_some_and(|bytes| bytes > most) {
        return Err(too_long(most));
    }
    let room = state.admission.body(asker).await?;
    let file = nameless(state, asker).await?;
    let file = write_all(file, body.into_data_stream(), most).await?;
    Ok(Received { file, _room: room })
}

async fn write_all(mut file: File, mut body: BodyDataStream, most: u64) -> Result<File, Failure> {
    let started = Instant::now();
    let mut length = 0;
    loop {
        let until = started + PATIENCE + Duration::from_secs(length / BYTES_PER_SECOND_MIN);
        let Ok(piece) = timeout_at(until, body.next()).await else { return Err(too_slow()) };
        let Some(piece) = piece else { return Ok(file) };
        let piece = piece.map_err(|_| Error::invalid("the body ended too early"))?;
        length += piece.len() as u64;
        if length > most {
            return Err(too_long(most));
        }
        file = blocking(move || file.write_all(&piece).map(|()| file)).await?;
    }
}

/// A new file without a name.
pub async fn nameless(state: &Shared, asker: &Asker) -> Result<File, Failure> {
    let engine = state.engine.clone();
    let made = tokio::task::spawn_blocking(move || engine.nameless_file()).await;
    let made = made.map_err(|_| Error::internal("the engine broke off"))?;
    Ok(made.map_err(|error| asker.may_read(state, error))?)
}

async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(job).await;
    let done = done.map_err(|_| Error::internal("a body broke off"))?;
    done.map_err(|error| Error::new(Code::Limit, format!("a body was not kept: {error}")).into())
}

fn too_long(most: u64) -> Failure {
    let text = format!("the body is longer than {}", format_bytes(most));
    let hint = "start the server with a larger `--body`";
    Failure::with_status(StatusCode::PAYLOAD_TOO_LARGE, Error::new(Code::Limit, text).hint(hint))
}

fn too_slow() -> Failure {
    Failure::with_status(
        StatusCode::REQUEST_TIMEOUT,
        Error::new(Code::Timeout, "the body took too long to arrive"),
    )
}

/// Answers with a file's content, from where it stands. What the file lost
/// meanwhile ends the connection: the client sees that it has not got all.
pub fn send(file: File, length: u64, room: Option<Room>) -> Response {
    let (chunks, queue) = mpsc::channel(CHUNKS);
    tokio::spawn(async move {
        let _room = room;
        feed(file, length, chunks).await;
    });
    let pieces = stream::unfold(queue, |mut queue| async move {
        let piece: std::io::Result<Bytes> = queue.recv().await?;
        Some((piece, queue))
    });
    let mut response = Body::from_stream(pieces).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    response
}

async fn feed(mut file: File, mut left: u64, chunks: mpsc::Sender<std::io::Result<Bytes>>) {
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let read = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; room];
            let count = file.read(&mut chunk)?;
            chunk.truncate(count);
            Ok::<_, std::io::Error>((chunk, file))
        });
        let piece = match read.await {
            Ok(Ok((chunk, again))) if !chunk.is_empty() => {
                file = again;
                left -= chunk.len() as u64;
                Ok(Bytes::from(chunk))
            }
            _ => {
                let _ = chunks.send(Err(std::io::Error::other("the file became shorter"))).await;
                return;
            }
        };
        if !matches!(timeout(PATIENCE, chunks.send(piece)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// A writer that refuses to write more than it may.
pub struct Bounded<W> {
    pub inner: W,
    pub left: u64,
}

impl<W: Write> Write for Bounded<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() as u64 > self.left {
            let kind = std::io::ErrorKind::FileTooLarge;
            return Err(std::io::Error::new(kind, "it is longer than the server gives out"));
        }
        let count = self.inner.write(bytes)?;
        self.left -= count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
