//! The door for clients of SWE-ReX: the same sandboxes in their words.
//!
//! Their protocol has no word for a sandbox, since a server of theirs stands
//! for one machine. So the sandbox is the one that the path of the server names
//! (`/swerex/NAME`, made when it is first worked in), or, without a path, one
//! that belongs to the key. What is asked of it is answered by a program that
//! runs in it ([`crate::agents`], `fractal_envd::rex`) and is handed on without a
//! look. Nothing here decides what a key may do.

mod desk;
mod place;
mod relay;

pub use desk::{Desk, keep_time};

use crate::asker::{self, Asker};
use crate::failure::Failure;
use crate::state::Shared;
use crate::work::{self, Need};
use axum::Router;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fractal::model::Verb;
use fractal::{Caller, Code, Engine};
use fractal_envd::rex::Thrown;
use place::Place;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The word of our command line that this door's program inside is.
pub const REXD: &str = "rexd";

/// What the program inside answers.
const OPERATIONS: [&str; 7] = [
    "create_session",
    "run_in_session",
    "close_session",
    "execute",
    "read_file",
    "write_file",
    "upload",
];

/// The routes, without a path and below the name of a sandbox.
pub fn router(state: Shared) -> Router<Shared> {
    let mut router = Router::new();
    for below in ["", "/swerex/{sandbox}"] {
        router = router
            .route(&format!("{below}/is_alive"), get(is_alive))
            .route(&format!("{below}/close"), post(close));
        for operation in OPERATIONS {
            router = router.route(&format!("{below}/{operation}"), post(hand_on));
        }
    }
    router.layer(from_fn_with_state(state, identify))
}

/// Lets requests pass whose key is known.
async fn identify(State(state): State<Shared>, mut request: Request, next: Next) -> Response {
    let door = request.extensions().get::<asker::Door>().copied();
    match asker::admit(&state, door, request.headers()).await {
        Ok(asker) => {
            request.extensions_mut().insert(asker);
            next.run(request).await
        }
        Err(failure) => Refused::from(failure).into_response(),
    }
}

/// A refusal as these clients read it: a status where it is about the request,
/// and an exception where it is about the sandbox.
enum Refused {
    Failure(Failure),
    Thrown(Thrown),
}

impl<T: Into<Failure>> From<T> for Refused {
    fn from(failure: T) -> Refused {
        Refused::Failure(failure.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let failure = match self {
            Refused::Thrown(thrown) => return thrown.into_response(),
            Refused::Failure(failure) => failure,
        };
        let error = failure.error().clone();
        let text = match &error.hint {
            Some(hint) => format!("{} ({hint})", error.message),
            None => error.message.clone(),
        };
        let told = failure.into_response();
        let status = told.status();
        let is_about_request = matches!(
            status,
            StatusCode::UNAUTHORIZED
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::PAYLOAD_TOO_LARGE
        );
        if !is_about_request {
            let thrown = Thrown::new("SwerexException", text);
            return thrown.with("fractal_code", error.code.name()).into_response();
        }
        let body = axum::Json(json!({ "detail": text }));
        let mut response = (status, body).into_response();
        for name in [header::RETRY_AFTER, header::WWW_AUTHENTICATE] {
            if let Some(value) = told.headers().get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response
    }
}

type Names = Path<HashMap<String, String>>;

/// Whether one may work here. Starts nothing: clients ask often and are in a
/// hurry.
async fn is_alive(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(names): Names,
) -> Result<axum::Json<Value>, Refused> {
    let place = Place::of(&asker, names.get("sandbox"))?;
    let job = move |engine: &Engine, caller: &Caller| {
        engine.reached(caller, Verb::Run, &place.name).map(|_| ())
    };
    let told = match work::blocking(&state, &asker, Verb::Show, job).await {
        Ok(()) => json!({ "is_alive": true, "message": "" }),
        Err(failure) if failure.error().code == Code::Denied => {
            json!({ "is_alive": false, "message": failure.error().message })
        }
        Err(failure) => return Err(failure.into()),
    };
    Ok(axum::Json(told))
}

async fn hand_on(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(names): Names,
    request: Request,
) -> Result<Response, Refused> {
    let place = Place::of(&asker, names.get("sandbox"))?;
    relay::hand_on(&state, &asker, &place, request).await
}

/// Ends all that runs. The key's own sandbox goes with it; one that has a name
/// stays, with what was done in it.
async fn close(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(names): Names,
) -> Result<axum::Json<Value>, Refused> {
    let place = Place::of(&asker, names.get("sandbox"))?;
    let name = place.name.clone();
    let look = move |engine: &Engine, caller: &Caller| engine.reached(caller, Verb::Run, &name);
    let found = work::blocking(&state, &asker, Need::from(Verb::Show), look).await?;
    state.swerex.forget(&place);
    if let Some(id) = found {
        let (shared, slot) = (state.clone(), place::slot(&asker, id));
        let _ = tokio::task::spawn_blocking(move || shared.swerex.end(slot)).await;
        if place.is_of_key {
            place.drop_sandbox(&state, &asker, id).await?;
        }
    }
    Ok(axum::Json(json!({})))
}
