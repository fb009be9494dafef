//! The door for clients of E2B: the same sandboxes in their words.
//!
//! What clients ask about sandboxes ([`control`]) becomes verbs of the engine;
//! what they ask of a sandbox is answered by a program that runs in it
//! ([`crate::agents`], `fractal-envd`) and is handed on without a look ([`relay`]).
//! What the engine has no word for (metadata, variables, when a sandbox ends)
//! stands in a [`book`] of its own. Nothing here decides what a key may do.

mod absent;
mod asked;
mod book;
mod control;
mod filter;
mod lifecycle;
mod once;
mod relay;
mod snapshots;
mod tokens;

pub use relay::divert;
pub use tokens::dressed_key;

use crate::agents::Agents;
use crate::asker;
use crate::failure::Failure;
use crate::state::Shared;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use book::Book;
use fractal::{Code, Error};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokens::Tokens;

/// What the program inside can do, in the numbers of E2B's own.
const ENVD_VERSION: &str = "0.6.4";

/// The word of our command line that this door's program inside is.
pub const ENVD: &str = "envd";

/// How often it is looked whose time has come.
const LOOK: Duration = Duration::from_millis(250);

/// How often it is looked whose key has ended.
const LOOK_AT_KEYS: Duration = Duration::from_secs(2);

/// What this door knows.
pub struct Desk {
    book: Book,
    tokens: Tokens,
    agents: Agents,
    making: once::Making,
}

impl Desk {
    /// Over a state directory.
    pub fn new(home: &Path) -> Desk {
        Desk {
            book: Book::new(home),
            tokens: Tokens::new(home),
            agents: Agents::default(),
            making: once::Making::default(),
        }
    }

    /// Ends every program inside; what they did stays.
    pub fn close(&self) {
        self.agents.end_all();
    }
}

/// The routes of the control plane.
pub fn router(state: Shared) -> Router<Shared> {
    control::routes()
        .merge(snapshots::routes())
        .merge(absent::routes())
        .layer(from_fn_with_state(state, identify))
}

/// Ends or pauses sandboxes whose time has come, as long as the server lives.
pub fn keep_time(state: &Shared) {
    let (timed, keyed) = (Arc::downgrade(state), Arc::downgrade(state));
    tokio::spawn(async move {
        let ending = lifecycle::Ending::default();
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(state) = timed.upgrade().filter(|state| !state.is_ending()) else { return };
            lifecycle::end_due(&state, &ending);
        }
    });
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK_AT_KEYS).await;
            let Some(state) = keyed.upgrade().filter(|state| !state.is_ending()) else { return };
            lifecycle::end_of_keys(&state).await;
        }
    });
}

/// Lets requests pass whose key is known; all answers are in the words of the
/// protocol.
async fn identify(State(state): State<Shared>, mut request: Request, next: Next) -> Response {
    let door = request.extensions().get::<asker::Door>().copied();
    let headers = tokens::plain_key(request.headers());
    match asker::admit(&state, door, &headers).await {
        Ok(asker) => {
            request.extensions_mut().insert(asker);
            next.run(request).await
        }
        Err(failure) => Refused(failure).into_response(),
    }
}

/// A refusal as these clients read it.
pub struct Refused(Failure);

impl<T: Into<Failure>> From<T> for Refused {
    fn from(failure: T) -> Refused {
        Refused(failure.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let error = self.0.error().clone();
        let told = self.0.into_response();
        let status = match error.code {
            // Their word for what cannot be done to a sandbox as it is.
            Code::Unsupported => StatusCode::BAD_REQUEST,
            _ => told.status(),
        };
        let message = match &error.hint {
            Some(hint) => format!("{} ({hint})", error.message),
            None => error.message,
        };
        let body = axum::Json(json!({ "code": status.as_u16(), "message": message }));
        let mut response = (status, body).into_response();
        if let Some(again) = told.headers().get(axum::http::header::RETRY_AFTER) {
            response.headers_mut().insert(axum::http::header::RETRY_AFTER, again.clone());
        }
        response
    }
}

/// Carries something out to its end, also when who asked for it goes away:
/// what was made must be written down.
async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    tokio::spawn(work).await.map_err(|_| Error::internal("the request broke off"))?
}

/// A sandbox that is not there, or not for whoever asks.
fn not_found(id: &str) -> Error {
    Error::not_found(format!("sandbox {} was not found", id.escape_debug()))
}
