//! Files that come in.

use super::{Asked, Refused, written};
use crate::connect::{Code, Failure};
use crate::filesystem::make_directories;
use crate::users::User;
use crate::{Shared, entries};
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{FromRequest, Multipart, Query, Request, State as Here};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use flate2::write::MultiGzDecoder;
use futures_util::{Stream, StreamExt};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a client may send nothing before its upload is given up.
const IDLE: Duration = Duration::from_secs(120);
/// What is read of a body that nobody wants any more, and how long.
const REST_BYTES_MAX: usize = 256 << 20;
const REST_TIME: Duration = Duration::from_secs(20);
/// Uploads at once; others wait.
pub const UPLOADS_MAX: usize = 64;
/// How what is packed begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Files of one form.
const FILES_MAX: usize = 10_000;
const PREFIX: &str = "x-metadata-";

pub async fn upload(
    Here(state): Here<Shared>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let rest = Arc::new(Mutex::new(body.into_data_stream()));
    let body = Body::from_stream(Shares(rest.clone()));
    let done = take(&state, asked, &headers, Request::from_parts(parts, body)).await;
    // Who sends must have sent all of it, or hears of a broken connection
    // instead of this answer.
    let reading = async {
        let mut left = REST_BYTES_MAX;
        let mut rest = Shares(rest);
        while let Some(Ok(chunk)) = rest.next().await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(REST_TIME, reading).await;
    done
}

/// A body that is read by one after the other.
struct Shares(Arc<Mutex<BodyDataStream>>);

impl Stream for Shares {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).poll_next_unpin(context)
    }
}

async fn take(
    state: &Shared,
    asked: Asked,
    headers: &HeaderMap,
    request: Request,
) -> Result<Response, Refused> {
    let user = state.users.find(asked.username.as_deref())?;
    let metadata = metadata(headers)?;
    let packed = match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"identity") => false,
        Some(b"gzip") => true,
        Some(_) => return Err(Failure::invalid("content comes as it is, or as gzip").into()),
    };
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_form = kind.unwrap_or_default().starts_with("multipart/form-data");
    let path = asked.path.filter(|path| !path.is_empty());
    let found = match is_form {
        false => {
            let path = path.ok_or_else(|| Failure::invalid("`path` is missing"))?;
            let target = Target { path: file_path(&user, &path)?, user, metadata, packed };
            let chunks = request.into_body().into_data_stream();
            vec![target.take(state, chunks.map(|chunk| chunk.map_err(|_| cut()))).await?]
        }
        true => form(request, state, path, &user, &metadata).await?,
    };
    Ok(axum::Json(found).into_response())
}

/// Where a file goes; a name that ends like a directory's is none of a file.
fn file_path(user: &User, path: &str) -> Result<PathBuf, Failure> {
    match path.ends_with('/') {
        true => Err(Failure::invalid(format!("path is a directory: {}", path.escape_debug()))),
        false => user.path(path),
    }
}

fn cut() -> Failure {
    Failure::invalid("the content was cut on its way")
}

/// Every file of a form, each under its own name, or the only one under the
/// path that the request names.
async fn form(
    request: Request,
    state: &Shared,
    path: Option<String>,
    user: &User,
    metadata: &Map<String, Value>,
) -> Result<Vec<Value>, Refused> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::invalid(format!("the form does not read: {error}"))
    };
    let form = Multipart::from_request(request, state).await;
    let mut form = form.map_err(|error| unreadable(&error))?;
    let mut found = Vec::new();
    while let Some(field) = form.next_field().await.map_err(|error| unreadable(&error))? {
        if field.name() != Some("file") {
            continue;
        }
        if found.len() >= FILES_MAX {
            return Err(Failure::invalid(format!("a form has at most {FILES_MAX} files")).into());
        }
        let named = field.file_name().map(str::to_owned);
        let none = || Failure::invalid("a file of the form has no name");
        let path = file_path(user, &path.clone().or(named).ok_or_else(none)?)?;
        let (user, metadata) = (user.clone(), metadata.clone());
        let target = Target { path, user, metadata, packed: false };
        found.push(target.take(state, field.map(|chunk| chunk.map_err(|_| cut()))).await?);
    }
    if found.is_empty() {
        return Err(Failure::invalid("there is no file in the form").into());
    }
    Ok(found)
}

/// `X-Metadata-KEY: VALUE`, in lower case.
fn metadata(headers: &HeaderMap) -> Result<Map<String, Value>, Failure> {
    let mut found = Map::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(PREFIX).filter(|key| !key.is_empty()) else {
            continue;
        };
        let text = value.to_str();
        let text = text.map_err(|_| Failure::invalid(format!("the value of {key} is no ASCII")))?;
        found.insert(key.to_owned(), json!(text));
    }
    Ok(found)
}

/// Where content goes.
struct Target {
    path: PathBuf,
    user: User,
    metadata: Map<String, Value>,
    packed: bool,
}

impl Target {
    /// Writes what comes, and says what is there then.
    async fn take(
        self,
        state: &Shared,
        chunks: impl Stream<Item = Result<Bytes, Failure>> + Send,
    ) -> Result<Value, Failure> {
        let over = |_| Failure::new(Code::Internal, "the sandbox ends");
        let _turn = state.uploads.acquire().await.map_err(over)?;
        let (send, mut waiting) = mpsc::channel::<Bytes>(super::CHUNKS);
        let writing = tokio::task::spawn_blocking(move || {
            let first = waiting.blocking_recv();
            // Before the old content is gone.
            if self.packed && first.as_ref().is_none_or(|bytes| !begins_packed(bytes)) {
                return Err(self.failed(&io::Error::from(io::ErrorKind::InvalidData)));
            }
            let file = create(&self.path, &self.user)?;
            let failed = |error: io::Error| self.failed(&error);
            let mut out = match self.packed {
                true => Out::Packed(Box::new(MultiGzDecoder::new(file))),
                false => Out::Plain(file),
            };
            let mut next = first;
            while let Some(chunk) = next {
                out.write_all(&chunk).map_err(failed)?;
                next = waiting.blocking_recv();
            }
            out.finish().map_err(failed)?;
            entries::set_metadata(&self.path, &self.metadata).map_err(failed)?;
            Ok(written(&self.path))
        });
        let mut chunks = std::pin::pin!(chunks);
        let sent = loop {
            match tokio::time::timeout(IDLE, chunks.next()).await {
                Err(_) => break Err(Failure::new(Code::Deadline, "nothing came for too long")),
                Ok(None) => break Ok(()),
                Ok(Some(Err(failure))) => break Err(failure),
                Ok(Some(Ok(chunk))) => {
                    if send.send(chunk).await.is_err() {
                        // Whoever writes has given up and says why.
                        break Ok(());
                    }
                }
            }
        };
        drop(send);
        let done = writing.await.map_err(|_| Failure::new(Code::Internal, "writing broke off"))?;
        sent.and(done)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let message = format!("cannot write {}", self.path.display());
        match error.kind() {
            io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData
            | io::ErrorKind::UnexpectedEof
                if self.packed =>
            {
                Failure::invalid(format!("{message}: the content is no gzip"))
            }
            _ => Failure::of(error, message),
        }
    }
}

/// Whether this can be the beginning of what is packed, as far as it goes.
fn begins_packed(bytes: &[u8]) -> bool {
    bytes.iter().zip(GZIP).all(|(byte, expect)| *byte == expect)
}

/// A file, perhaps behind what unpacks its content.
enum Out {
    Plain(File),
    Packed(Box<MultiGzDecoder<File>>),
}

impl Out {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Out::Plain(file) => file.write_all(bytes),
            Out::Packed(decoder) => decoder.write_all(bytes),
        }
    }

    /// Content that ends too early is seen only here.
    fn finish(self) -> io::Result<()> {
        match self {
            Out::Plain(mut file) => file.flush(),
            Out::Packed(decoder) => decoder.finish()?.flush(),
        }
    }
}

/// Opens a file for new content, with the directories above it.
fn create(path: &Path, user: &User) -> Result<File, Failure> {
    let failed = |error: io::Error| Failure::of(&error, format!("cannot write {}", path.display()));
    let found = std::fs::metadata(path);
    if found.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
        return Err(Failure::invalid(format!("path is a directory: {}", path.display())));
    }
    if found.as_ref().is_ok_and(|found| !found.is_file()) {
        return Err(Failure::invalid(format!("path is not a regular file: {}", path.display())));
    }
    if let Some(parent) = path.parent() {
        make_directories(parent, user).map_err(failed)?;
    }
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    let file = file.map_err(failed)?;
    if found.is_err() {
        fchown(&file, Some(user.uid), Some(user.gid)).map_err(failed)?;
    }
    Ok(file)
}
