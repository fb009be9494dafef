//! What the server says of itself.

use crate::api::{Answer, Api, Operation};
use crate::asker::Asker;
use crate::failure::Failure;
use crate::metrics;
use crate::reply::VersionReply;
use crate::state::Shared;
use crate::work;
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use fractal::Error;
use fractal::model::Verb;

/// A page that reads the description and shows it; it loads nothing else.
const PAGE: &str = include_str!("page.html");

pub fn open(api: Api) -> Api {
    api.with(
        Operation::get("/healthz", "health").says("Whether the server lives."),
        async || "ok\n",
    )
    .with(Operation::get("/readyz", "ready").says("Whether the server takes new work."), ready)
    .with(
        Operation::get("/v1/openapi.json", "openapi")
            .says("This description.")
            .answers(Answer::Text("application/json")),
        openapi,
    )
    .with(
        Operation::get("/docs", "docs")
            .says("This description, for people.")
            .answers(Answer::Text("text/html")),
        async || Html(PAGE),
    )
}

pub fn known(api: Api) -> Api {
    api.with(
        Operation::get("/v1/version", "version")
            .says("Which server this is, and who you are to it.")
            .verb(Verb::List)
            .gives::<VersionReply>(),
        version,
    )
    .with(
        Operation::get("/metrics", "metrics")
            .says("Numbers for Prometheus; for askers who see everything.")
            .verb(Verb::List),
        show_metrics,
    )
}

async fn ready(State(state): State<Shared>) -> Response {
    match state.is_ending() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response(),
        false => "ready\n".into_response(),
    }
}

async fn openapi(State(state): State<Shared>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, (*state.openapi).clone()).into_response()
}

async fn version(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Json<VersionReply>, Failure> {
    let job = |engine: &fractal::Engine, _: &fractal::Caller| Ok(engine.strongest_tier());
    let isolation = work::blocking(&state, &asker, Verb::List, job).await?;
    let who = asker.key.map_or_else(|| "owner".to_owned(), |key| key.name);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Json(VersionReply { version, format: fractal::FORMAT_VERSION, who, isolation }))
}

/// They count what everybody does, so they are for those who may see that.
async fn show_metrics(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Failure> {
    let shared = state.clone();
    let job = move |engine: &fractal::Engine, caller: &fractal::Caller| {
        if !caller.reach.is_everything() || !caller.policy.allows(Verb::List) {
            engine.record_denied(caller, "metrics", None, "the numbers of everybody");
            return Err(Error::denied("these numbers are of everybody's sandboxes")
                .hint("use a key of role admin without a tenant"));
        }
        shared.numbers()
    };
    let families = work::blocking(&state, &asker, Verb::List, job).await?;
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    Ok((kind, metrics::page(&families)).into_response())
}
