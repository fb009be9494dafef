//! Requests to a sandbox, handed on to the program inside.
//!
//! What proves who asks stays here. What the program answers is its own affair
//! and goes to whoever asked. A command may take as long as its client waits for
//! it: with the client goes the connection to the program, and with the program
//! the answer.

use super::place::{self, Place};
use super::{REXD, Refused};
use crate::agents::{Agent, Program};
use crate::asker::Asker;
use crate::failure::Failure;
use crate::state::Shared;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use fractal::model::{Id, format_bytes};
use fractal::{Code, Error};
use fractal_envd::Arrival;
use fractal_envd::rex::Thrown;
use futures_util::StreamExt;
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

/// What the program inside may know of a request.
const PASSED: [HeaderName; 3] =
    [header::CONTENT_TYPE, header::CONTENT_LENGTH, HeaderName::from_static("x-request-id")];

pub async fn hand_on(
    state: &Shared,
    asker: &Asker,
    place: &Place,
    request: Request,
) -> Result<Response, Refused> {
    let request = within(state, request)?;
    let used = state.swerex.enter(asker, place)?;
    let Some(id) = used.find(state, asker, place).await? else {
        let name = &place.name;
        return Err(Refused::Thrown(Thrown::new(
            "SwerexException",
            format!(
                "the sandbox `{name}` was dropped while it was worked in: its sessions and files \
                 are gone, and the next request begins a new one"
            ),
        )));
    };
    let (agent, stream, permit) = connection(state, asker, id).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|_| broken())?;
    let working = tokio::spawn(async move {
        let _permit = permit;
        // What breaks here is seen by who reads the answer.
        let _ = connection.await;
    });
    // Whoever goes away takes it along.
    let guard = Guard(working.abort_handle(), used);
    let Ok(answer) = sender.send_request(request).await else {
        // The next request must not come to one that is about to end.
        agent.wait_over().await;
        return Err(broken());
    };
    let (parts, body) = answer.into_parts();
    let chunks = Body::new(body).into_data_stream().map(move |chunk| {
        let _ = &guard;
        chunk
    });
    let mut response = Response::new(Body::from_stream(chunks));
    *response.status_mut() = parts.status;
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
        if let Some(value) = parts.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}

fn broken() -> Refused {
    Refused::Thrown(Thrown::new(
        "SwerexException",
        "what runs in the sandbox was ended meanwhile: its sessions are gone, its files are kept; \
         create a session again",
    ))
}

/// Ends the work on a connection when dropped, and lets go of the name.
struct Guard(
    tokio::task::AbortHandle,
    #[expect(dead_code, reason = "held")] Arc<super::desk::Used>,
);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The request as the program gets it: its own path, few headers, and no more
/// than the server takes.
fn within(state: &Shared, request: Request) -> Result<Request, Refused> {
    let most = state.admission.body_bytes();
    let (parts, body) = request.into_parts();
    let told = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if told.and_then(|text| text.parse::<u64>().ok()).is_some_and(|bytes| bytes > most) {
        let text = format!("the request is longer than {}", format_bytes(most));
        let error = Error::new(Code::Limit, text).hint("start the server with a larger `--body`");
        return Err(Failure::with_status(StatusCode::PAYLOAD_TOO_LARGE, error).into());
    }
    let mut left = most;
    let chunks = body.into_data_stream().map(move |chunk| {
        let chunk = chunk.map_err(std::io::Error::other)?;
        left = left.checked_sub(chunk.len() as u64).ok_or(ErrorKind::FileTooLarge)?;
        Ok::<_, std::io::Error>(chunk)
    });
    let mut inside = Request::new(Body::from_stream(chunks));
    *inside.method_mut() = parts.method;
    let operation = parts.uri.path().rsplit('/').next().unwrap_or_default();
    *inside.uri_mut() = format!("/{operation}").parse().unwrap_or_else(|_| Uri::from_static("/"));
    for name in PASSED {
        if let Some(value) = parts.headers.get(&name) {
            inside.headers_mut().insert(name, value.clone());
        }
    }
    inside.headers_mut().insert(header::HOST, HeaderValue::from_static("sandbox"));
    Ok(inside)
}

/// A connection to the program, once more if it turned out to be the program's
/// last moment.
async fn connection(
    state: &Shared,
    asker: &Asker,
    id: Id,
) -> Result<(Arc<Agent>, UnixStream, OwnedSemaphorePermit), Refused> {
    for is_last in [false, true] {
        let agent = program(state, asker, id).await?;
        match agent.connect(Arrival::Requests) {
            Ok((stream, permit)) => return Ok((agent, stream, permit)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let error = Error::new(Code::Busy, "the sandbox has too many connections");
                return Err(Failure::busy(error.hint("close some"), 1).into());
            }
            Err(error) if is_last => {
                return Err(
                    Error::internal(format!("the sandbox cannot be reached: {error}")).into()
                );
            }
            Err(_) => agent.wait_over().await,
        }
    }
    Err(Error::internal("the sandbox cannot be reached").into())
}

async fn program(state: &Shared, asker: &Asker, id: Id) -> Result<Arc<Agent>, Failure> {
    let program = || Ok(Program { word: REXD, env: BTreeMap::new() });
    state.swerex.agents.at(state, asker, place::slot(asker, id), program).await
}
