//! What clients of SWE-ReX ask of a machine: shells that live on, programs that
//! run to their end, and files.
//!
//! It is the second program of this crate, beside the one for E2B, and is handed
//! its connections in the same way. A sandbox has one of it, so that everything
//! that a client starts lives together and ends together. It makes nothing in
//! the sandbox but what a client asks for: what is seen in a diff is the client's.

mod asked;
mod execute;
mod files;
mod gathered;
mod once;
mod session;
mod text;
mod thrown;

pub use thrown::Thrown;

use crate::arrivals;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State as Here};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use session::Sessions;
use std::io;
use std::sync::Arc;
use thrown::Refused;

/// Longer requests are no requests; files that are uploaded are not counted.
const BODY_BYTES_MAX: usize = 64 << 20;

/// What every request sees.
#[derive(Default)]
struct State {
    sessions: Sessions,
    programs: execute::Programs,
    answers: once::Answers,
}

type Shared = Arc<State>;

type Answer = Result<axum::Json<Value>, Refused>;

/// Serves whoever holds the other end of standard input, until it is closed.
pub fn serve() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(arrivals::take(router(Shared::default())))
}

fn router(state: Shared) -> Router {
    Router::new()
        .route("/create_session", post(create_session))
        .route("/run_in_session", post(run_in_session))
        .route("/close_session", post(close_session))
        .route("/execute", post(execute))
        .route("/read_file", post(read_file))
        .route("/write_file", post(write_file))
        .layer(from_fn_with_state(state.clone(), once::once))
        // How long one is decides whoever hands it over.
        .route("/upload", post(files::upload).layer(DefaultBodyLimit::disable()))
        .with_state(state)
}

/// The JSON of a body.
struct Asked<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Asked<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        let body = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX).await;
        let too_long = |_| {
            let detail = format!("a request is at most {BODY_BYTES_MAX} bytes, and whole");
            (StatusCode::PAYLOAD_TOO_LARGE, axum::Json(json!({ "detail": detail }))).into_response()
        };
        let bytes = body.map_err(too_long)?;
        let strange = |error: serde_json::Error| {
            let detail = format!("the body does not read: {error}");
            Refused::Invalid(detail).into_response()
        };
        serde_json::from_slice(&bytes).map(Asked).map_err(strange)
    }
}

async fn create_session(
    Here(state): Here<Shared>,
    Asked(asked): Asked<asked::NewSession>,
) -> Answer {
    let output = state.sessions.create(asked).await?;
    Ok(axum::Json(json!({ "output": output, "session_type": "bash" })))
}

async fn run_in_session(Here(state): Here<Shared>, Asked(action): Asked<asked::Action>) -> Answer {
    let session = state.sessions.find(action.session())?;
    let seen = match &action {
        asked::Action::Bash(asked) => session.run(asked).await?,
        asked::Action::BashInterrupt(asked) => session.interrupt(asked).await?,
    };
    Ok(axum::Json(seen.json()))
}

async fn close_session(
    Here(state): Here<Shared>,
    Asked(asked): Asked<asked::OldSession>,
) -> Answer {
    state.sessions.close(&asked.session).await?;
    Ok(axum::Json(json!({ "session_type": "bash" })))
}

async fn execute(Here(state): Here<Shared>, Asked(command): Asked<asked::Command>) -> Answer {
    Ok(axum::Json(state.programs.run(command).await?))
}

async fn read_file(Asked(asked): Asked<asked::Read>) -> Answer {
    Ok(axum::Json(json!({ "content": files::read(asked).await? })))
}

async fn write_file(Asked(asked): Asked<asked::Write>) -> Answer {
    files::write(asked).await?;
    Ok(axum::Json(json!({})))
}
