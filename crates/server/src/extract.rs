//! Reading what a request carries. Whatever does not read, and every field
//! that nobody knows, is refused by name: a misspelt limit must not be a run
//! without that limit.

use crate::failure::Failure;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use fractal::{Code, Error};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Bytes of a JSON body.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// A JSON body, read strictly. No body at all reads as `{}`.
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        let bytes = read(body, BODY_BYTES_MAX).await?;
        if bytes.is_empty() {
            return strict(b"{}").map(Json);
        }
        require_json(&parts)?;
        strict(&bytes).map(Json)
    }
}

/// Reads a whole body of bounded size.
pub async fn read(body: Body, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    match tokio::time::timeout(BODY_TIME, to_bytes(body, bytes_max)).await {
        Ok(Ok(bytes)) => Ok(bytes.into()),
        Ok(Err(error)) if is_too_long(&error) => Err(Failure::with_status(
            StatusCode::PAYLOAD_TOO_LARGE,
            Error::new(Code::Limit, format!("the body is longer than {bytes_max} bytes")),
        )),
        Ok(Err(_)) => Err(Error::invalid("the body ended too early").into()),
        Err(_) => Err(Failure::with_status(
            StatusCode::REQUEST_TIMEOUT,
            Error::new(Code::Timeout, "the body took too long to arrive"),
        )),
    }
}

/// The limit's error has a name of its own, below axum's.
fn is_too_long(error: &axum::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.to_string().contains("length limit"))
}

/// A page of another site can send forms and plain text without being asked;
/// JSON it cannot.
fn require_json(parts: &Parts) -> Result<(), Failure> {
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|text| text.split(';').next()).map(str::trim).unwrap_or_default();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Failure::with_status(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Error::invalid("the body is not announced as JSON")
            .hint("send `Content-Type: application/json`"),
    ))
}

/// Reads JSON; fields that nobody knows are errors.
pub fn strict<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let mut unknown = None;
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_ignored::deserialize(&mut reader, |path| {
        unknown.get_or_insert_with(|| path.to_string());
    })
    .map_err(|error| Error::invalid(format!("the body does not read: {error}")))?;
    reader.end().map_err(|error| Error::invalid(format!("something follows the body: {error}")))?;
    match unknown {
        None => Ok(value),
        Some(path) => {
            Err(Error::invalid(format!("nobody knows the field `{}`", path.escape_debug()))
                .hint("`GET /v1/openapi.json` describes every field")
                .into())
        }
    }
}

/// What stands behind the question mark.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match axum::extract::Query::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Query(value)),
            Err(error) => {
                Err(Error::invalid(format!("the query does not read: {}", error.body_text()))
                    .into())
            }
        }
    }
}

/// Parts of the path.
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Path(value)),
            Err(error) => {
                Err(Error::invalid(format!("the path does not read: {}", error.body_text())).into())
            }
        }
    }
}
