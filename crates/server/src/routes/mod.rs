//! The table of operations, one file per kind of thing. Each verb of the
//! command line is here under its own name.

mod about;
mod apply;
mod attempts;
mod audit;
mod events;
mod files;
mod keys;
mod knowledge;
mod promotions;
mod runs;
mod sandboxes;
mod skunks;
mod terminals;
mod tools;
mod volumes;

pub use files::IMPORT;
pub use runs::check as check_run;

use crate::api::Api;
use crate::asker::{Asker, Door};
use crate::failure::Failure;
use crate::otlp::{Attribute, Open, TRACEPARENT};
use crate::state::Shared;
use crate::work;
use axum::Json;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fractal::{Action, Error};
use std::time::Instant;

/// What everybody may see: it tells nothing about sandboxes.
pub fn open() -> Api {
    about::open(Api::default())
}

/// What only known askers see.
pub fn known() -> Api {
    let api = about::known(Api::default());
    let api = sandboxes::routes(api);
    let api = files::routes(api);
    let api = runs::routes(api);
    let api = terminals::routes(api);
    let api = apply::routes(api);
    let api = attempts::routes(api);
    let api = promotions::routes(api);
    let api = volumes::routes(api);
    let api = knowledge::routes(api);
    let api = skunks::routes(api);
    let api = tools::routes(api);
    let api = keys::routes(api);
    let api = audit::routes(api);
    events::routes(api)
}

/// Everything, for the description.
pub fn all() -> Api {
    let mut api = open();
    api.operations.extend(known().operations);
    api
}

/// Carries out an action; its reply is the answer.
async fn reply(state: &Shared, asker: &Asker, action: Action) -> Result<Response, Failure> {
    Ok(Json(work::apply(state, asker, action).await?).into_response())
}

/// A path that leads nowhere.
pub async fn nowhere() -> Failure {
    Error::not_found("there is nothing at this path")
        .hint("`GET /v1/openapi.json` lists every path")
        .into()
}

/// What a browser must not do with an answer: guess its kind, or keep it.
const ALWAYS: [(HeaderName, &str); 2] =
    [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::CACHE_CONTROL, "no-store")];

/// Counts every request by the table's own words for it.
pub async fn count(State(state): State<Shared>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let method = word(request.method());
    let span = begin(&state, &mut request, method, route.as_deref());
    let mut response = next.run(request).await;
    for (name, value) in ALWAYS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let status = response.status().as_u16();
    let route = route.unwrap_or_else(|| "none".to_owned());
    tracing::debug!(method, route, status, "answered");
    if let Some(span) = span {
        let error = (status >= 500).then(|| status.to_string());
        span.end(vec![("http.response.status_code", status.into())], error.as_deref());
    }
    state.metrics.request(method, route, status, started.elapsed());
    response
}

/// Begins the request's span, in the words that OpenTelemetry has for it.
fn begin(
    state: &Shared,
    request: &mut Request,
    method: &'static str,
    route: Option<&str>,
) -> Option<Open> {
    let spans = state.spans.as_ref()?;
    let method = if method == "other" { "_OTHER".to_owned() } else { method.to_uppercase() };
    let name = format!("{method} {}", route.unwrap_or_default());
    let door = match request.extensions().get::<Door>() {
        Some(Door::Socket { .. }) => "socket",
        Some(Door::Port { .. }) => "port",
        Some(Door::Inside) | None => "inside",
    };
    let mut attributes: Vec<Attribute> =
        vec![("http.request.method", method.into()), ("fractal.door", door.into())];
    attributes.extend(route.map(|route| ("http.route", route.into())));
    let parent = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let span = spans.request(parent, name.trim_end().to_owned(), attributes)?;
    request.extensions_mut().insert(span.context()?);
    Some(span)
}

/// Methods of the table; a client may invent others.
fn word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::DELETE => "delete",
        _ => "other",
    }
}

/// What a verb that needs one sandbox was answered, where another is meant.
fn unexpected() -> Failure {
    Error::internal("the engine gave an answer of another verb").into()
}
