//! Contents of files: down, up one by one or as a form of many, compressed or
//! not, with metadata beside them.
//!
//! A file that is written is the old one with new content, as a shell's `>`
//! would have it: its mode, links and owner stay. A new one belongs to whoever
//! asked.

mod compose;
mod upload;

pub use upload::UPLOADS_MAX;

use crate::connect::{Code, Failure};
use crate::{Shared, entries};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Query, State as Here};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde_json::json;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use tokio::sync::mpsc;

const CHUNK_BYTES: usize = 128 << 10;
/// Chunks between disk and wire.
const CHUNKS: usize = 8;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    path: Option<String>,
    username: Option<String>,
}

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/files", get(download).post(upload::upload))
        .layer(DefaultBodyLimit::disable())
        .route("/files/compose", post(compose::compose))
}

/// An error of this part speaks plain HTTP.
pub struct Refused(Failure);

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused(failure)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self.0.code {
            Code::Exhausted => StatusCode::INSUFFICIENT_STORAGE,
            Code::Invalid | Code::Precondition => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::Denied => StatusCode::FORBIDDEN,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let body = json!({ "code": status.as_u16(), "message": self.0.message });
        (status, axum::Json(body)).into_response()
    }
}

async fn download(
    Here(state): Here<Shared>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let user = state.users.find(asked.username.as_deref())?;
    let none = || Failure::invalid("`path` is missing");
    let path =
        user.path(asked.path.as_deref().filter(|path| !path.is_empty()).ok_or_else(none)?)?;
    let shown = path.display().to_string();
    let opening = tokio::task::spawn_blocking(move || open(&path));
    let (file, size) =
        opening.await.map_err(|_| Failure::new(Code::Internal, "opening broke off"))??;
    let compress = accepts_gzip(&headers);
    let name = shown.rsplit('/').next().unwrap_or_default();
    let name: String =
        name.chars().filter(|c| c.is_ascii_graphic() && !"\"\\".contains(*c)).collect();
    let mut response = Body::from_stream(content(file, compress)).into_response();
    let head = response.headers_mut();
    let text = |text: String| header::HeaderValue::from_str(&text).expect("it is graphic ASCII");
    head.insert(header::CONTENT_TYPE, text("application/octet-stream".to_owned()));
    head.insert(header::CONTENT_DISPOSITION, text(format!("inline; filename=\"{name}\"")));
    head.insert(header::VARY, text("Accept-Encoding".to_owned()));
    match compress {
        true => head.insert(header::CONTENT_ENCODING, text("gzip".to_owned())),
        false => head.insert(header::CONTENT_LENGTH, text(size.to_string())),
    };
    Ok(response)
}

/// A file's content to read, and how long it is. Nothing else is opened: a
/// fifo would wait for ever.
fn open(path: &Path) -> Result<(io::Take<File>, u64), Failure> {
    let missing = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Failure::not_found(format!("path '{}' does not exist", path.display()))
        }
        _ => Failure::of(&error, format!("cannot read {}", path.display())),
    };
    let found = std::fs::metadata(path).map_err(missing)?;
    if found.is_dir() {
        return Err(Failure::invalid(format!("path '{}' is a directory", path.display())));
    }
    if !found.is_file() {
        return Err(Failure::invalid(format!("path '{}' is not a regular file", path.display())));
    }
    let file = File::open(path).map_err(missing)?;
    let size = file.metadata().map_err(missing)?.len();
    // Files of /proc say that they are empty and are not.
    // Those of /sys say that they are a page long.
    let is_made = path.starts_with("/sys") || (size == 0 && path.starts_with("/proc"));
    match is_made {
        true => whole(file.take(u64::MAX), path),
        false => Ok((file.take(size), size)),
    }
}

/// A file whose length is known only when it has been read.
fn whole(mut file: io::Take<File>, path: &Path) -> Result<(io::Take<File>, u64), Failure> {
    const BYTES_MAX: u64 = 16 << 20;
    let failed = |error: io::Error| Failure::of(&error, format!("cannot read {}", path.display()));
    let mut copy = tempfile()?;
    file.set_limit(BYTES_MAX);
    let size = io::copy(&mut file, &mut copy).map_err(failed)?;
    io::Seek::rewind(&mut copy).map_err(failed)?;
    Ok((copy.take(size), size))
}

fn tempfile() -> Result<File, Failure> {
    let memory = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC);
    memory.map(File::from).map_err(|error| Failure::of(&error.into(), "no room for the file"))
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let wanted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    // Clients that take several name it among others; only who wants it alone
    // is better off with it on one machine.
    wanted.is_some_and(|wanted| wanted.trim().eq_ignore_ascii_case("gzip"))
}

type Chunks = futures_util::stream::BoxStream<'static, io::Result<Bytes>>;

/// Content piece by piece, read by a thread that may block.
fn content(file: io::Take<File>, compress: bool) -> Chunks {
    let (send, chunks) = mpsc::channel(CHUNKS);
    tokio::task::spawn_blocking(move || {
        let told = send.clone();
        let done = match compress {
            true => {
                let mut encoder = GzEncoder::new(Wire(send), Compression::fast());
                let mut file = file;
                io::copy(&mut file, &mut encoder).and_then(|_| encoder.finish().map(|_| ()))
            }
            false => send_all(file, &mut Wire(send)),
        };
        if let Err(error) = done {
            // A body that breaks off is seen to be broken.
            let _ = told.blocking_send(Err(error));
        }
    });
    let next = |mut chunks: mpsc::Receiver<io::Result<Bytes>>| async move {
        let chunk = chunks.recv().await?;
        Some((chunk, chunks))
    };
    Box::pin(futures_util::stream::unfold(chunks, next))
}

fn send_all(mut file: io::Take<File>, wire: &mut Wire) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 if file.limit() == 0 => return Ok(()),
            0 => return Err(io::Error::other("the file was cut meanwhile")),
            read => wire.write_all(&chunk[..read])?,
        }
    }
}

/// What is written goes out as chunks.
struct Wire(mpsc::Sender<io::Result<Bytes>>);

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a client is told of a file that was written.
fn written(path: &Path) -> serde_json::Value {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut told = json!({ "name": name, "type": "file", "path": path.to_string_lossy() });
    let metadata = entries::metadata(path);
    if !metadata.is_empty() {
        told["metadata"] = json!(metadata);
    }
    told
}
