//! The protocol between client and sandbox: JSON over HTTP, where a stream is
//! a row of envelopes and errors have codes of their own.
//!
//! An envelope is one byte of flags, four of length (big endian) and a JSON
//! document; the last one of a stream says how it ended.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;

/// Longer requests are no requests.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;

const LAST: u8 = 0b10;

// Errors of the system that the library has no word for.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ELOOP: i32 = 40;

const COMPRESSED: u8 = 0b01;

/// What a request failed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Invalid,
    NotFound,
    Exists,
    Denied,
    Unauthenticated,
    Exhausted,
    Precondition,
    Deadline,
    Unimplemented,
    Internal,
}

impl Code {
    /// Its name in the protocol and the status of an answer that has it.
    const fn words(self) -> (&'static str, StatusCode) {
        match self {
            Code::Invalid => ("invalid_argument", StatusCode::BAD_REQUEST),
            Code::NotFound => ("not_found", StatusCode::NOT_FOUND),
            Code::Exists => ("already_exists", StatusCode::CONFLICT),
            Code::Denied => ("permission_denied", StatusCode::FORBIDDEN),
            Code::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
            Code::Exhausted => ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS),
            Code::Precondition => ("failed_precondition", StatusCode::BAD_REQUEST),
            Code::Deadline => ("deadline_exceeded", StatusCode::GATEWAY_TIMEOUT),
            Code::Unimplemented => ("unimplemented", StatusCode::NOT_IMPLEMENTED),
            Code::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// Why a request was not carried out.
#[derive(Clone, Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(Code::Invalid, message)
    }

    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure::new(Code::NotFound, message)
    }

    /// What the system said about `what`.
    pub fn of(error: &std::io::Error, what: impl std::fmt::Display) -> Failure {
        use std::io::ErrorKind as Kind;
        let code = match error.kind() {
            _ if error.raw_os_error() == Some(ELOOP) => Code::Invalid,
            // Watches and descriptors there are only so many of.
            _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => Code::Exhausted,
            Kind::NotFound => Code::NotFound,
            Kind::AlreadyExists => Code::Exists,
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Code::Denied,
            Kind::StorageFull | Kind::QuotaExceeded => Code::Exhausted,
            Kind::NotADirectory | Kind::IsADirectory | Kind::InvalidInput => Code::Invalid,
            Kind::InvalidFilename => Code::Invalid,
            Kind::DirectoryNotEmpty | Kind::ResourceBusy => Code::Precondition,
            _ => Code::Internal,
        };
        Failure::new(code, format!("{what}: {error}"))
    }

    fn json(&self) -> Value {
        json!({ "code": self.code.words().0, "message": self.message })
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.code.words().1, axum::Json(self.json())).into_response()
    }
}

pub type Answer = Result<axum::Json<Value>, Failure>;

/// What is no operation.
pub async fn nowhere(request: Request) -> Failure {
    let path = request.uri().path().escape_debug().to_string();
    Failure::new(Code::Unimplemented, format!("there is no `{path}` here"))
}

/// The message of a request that has one.
pub struct Unary<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Unary<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let bytes = whole_body(request).await?;
        read(&bytes).map(Unary)
    }
}

/// The message of a request that is answered by a stream: one envelope.
pub struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Asked<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        let asked = async {
            let bytes = whole_body(request).await?;
            let mut envelopes = Envelopes::default();
            envelopes.push(&bytes);
            let message = envelopes.next()?;
            read(&message.ok_or_else(|| Failure::invalid("the message is cut short"))?)
        };
        // A stream that fails at once is a stream all the same.
        asked.await.map(Asked).map_err(|failure| stream_that_failed(&failure))
    }
}

async fn whole_body(request: Request) -> Result<Bytes, Failure> {
    let body = axum::body::to_bytes(request.into_body(), MESSAGE_BYTES_MAX).await;
    body.map_err(|_| Failure::new(Code::Exhausted, "the message is too long, or was cut"))
}

pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    // Through a map, since a list would be taken for fields in their order.
    serde_json::from_slice::<serde_json::Map<String, Value>>(bytes)
        .and_then(|fields| T::deserialize(Value::Object(fields)))
        .map_err(|error| Failure::invalid(format!("the message does not read: {error}")))
}

/// Envelopes as they come in, piece by piece.
#[derive(Default)]
pub struct Envelopes(Vec<u8>);

impl Envelopes {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next one, once it is whole.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let Some((head, rest)) = self.0.split_at_checked(5) else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(Failure::new(Code::Exhausted, "a message is too long"));
        }
        if head[0] & COMPRESSED != 0 {
            return Err(Failure::new(Code::Unimplemented, "messages are not compressed here"));
        }
        let Some(message) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.0.drain(..5 + length);
        Ok(Some(message))
    }
}

fn envelope(flags: u8, message: &Value) -> Bytes {
    let text = message.to_string();
    let mut bytes = Vec::with_capacity(5 + text.len());
    bytes.push(flags);
    bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.into()
}

/// What a stream tells: its messages, and how it ends unless that is well.
pub type Messages = mpsc::Receiver<Result<Value, Failure>>;

/// Messages as they come. Without one for so long, `idle` is said instead.
pub fn stream(messages: Messages, idle: Option<(Duration, Value)>) -> Response {
    let state = (Some(messages), idle);
    let envelopes = futures_util::stream::unfold(state, |(messages, idle)| async move {
        let mut messages = messages?;
        let next = match &idle {
            None => messages.recv().await,
            Some((after, said)) => match tokio::time::timeout(*after, messages.recv()).await {
                Ok(next) => next,
                Err(_) => Some(Ok(said.clone())),
            },
        };
        Some(match next {
            Some(Ok(message)) => (envelope(0, &message), (Some(messages), idle)),
            Some(Err(failure)) => (last(Some(&failure)), (None, idle)),
            None => (last(None), (None, idle)),
        })
    });
    streamed(Body::from_stream(envelopes.map(Ok::<_, Infallible>)))
}

pub fn stream_that_failed(failure: &Failure) -> Response {
    streamed(Body::from(last(Some(failure))))
}

fn streamed(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/connect+json")], body).into_response()
}

fn last(failure: Option<&Failure>) -> Bytes {
    let end = failure.map_or_else(|| json!({}), |failure| json!({ "error": failure.json() }));
    envelope(LAST, &end)
}

/// How long the client gives a stream as a whole.
pub fn time_limit(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("connect-timeout-ms")?.to_str().ok()?;
    text.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// How often it wants to hear something.
pub fn ping_interval(headers: &HeaderMap) -> Duration {
    const USUAL: u64 = 90;
    let text = headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok());
    let seconds = text.and_then(|text| text.parse().ok()).unwrap_or(USUAL);
    Duration::from_secs(seconds.clamp(1, 3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_come_in_pieces() {
        let mut envelopes = Envelopes::default();
        let bytes = [envelope(0, &json!({"a": 1})), envelope(0, &json!({"b": 2}))].concat();
        let mut found = Vec::new();
        for byte in bytes {
            envelopes.push(&[byte]);
            found.extend(envelopes.next().expect("it is sound"));
        }
        assert_eq!(found, [br#"{"a":1}"#.to_vec(), br#"{"b":2}"#.to_vec()]);
    }

    #[test]
    fn what_cannot_be_an_envelope_is_refused() {
        for head in [[0, 0xff, 0, 0, 0], [1, 0, 0, 0, 2]] {
            let mut envelopes = Envelopes::default();
            envelopes.push(&head);
            envelopes.push(b"{}");
            assert!(envelopes.next().is_err(), "{head:?}");
        }
    }
}
