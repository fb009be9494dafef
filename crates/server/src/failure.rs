//! How a refusal looks on the wire: the engine's error, its status, and when
//! to come again.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fractal::{Code, Error};
use serde_json::json;

/// Seconds after which asking again makes sense when capacity is used up.
const COME_AGAIN_S: u64 = 1;

/// A request that was not carried out.
#[derive(Debug)]
pub struct Failure {
    error: Error,
    status: StatusCode,
    come_again_s: Option<u64>,
}

impl Failure {
    /// An error with a status that its code alone would not give.
    pub fn with_status(status: StatusCode, error: Error) -> Failure {
        Failure { error, status, come_again_s: None }
    }

    /// Who asks is not known.
    pub fn unknown_asker(why: &str) -> Failure {
        let error = Error::denied(why)
            .hint("send `Authorization: Bearer KEY`; `fractal key create` makes a key");
        Failure::with_status(StatusCode::UNAUTHORIZED, error)
    }

    /// Too much at once; says when there may be room again.
    pub fn busy(error: Error, come_again_s: u64) -> Failure {
        let status = StatusCode::TOO_MANY_REQUESTS;
        Failure { error, status, come_again_s: Some(come_again_s.max(1)) }
    }

    /// The server is about to end.
    pub fn ending() -> Failure {
        let error = Error::new(Code::Busy, "the server is stopping and takes no new work");
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Failure { error, status, come_again_s: Some(5) }
    }

    /// Whether nothing was begun because the server is about to end.
    pub fn is_ending(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE
    }

    /// The error inside.
    pub fn error(&self) -> &Error {
        &self.error
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = StatusCode::from_u16(error.code.http_status())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let come_again_s = (error.code == Code::Busy).then_some(COME_AGAIN_S);
        Failure { error, status, come_again_s }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = axum::Json(json!({ "error": self.error }));
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.come_again_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
