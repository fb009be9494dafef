//! Running programs.

use super::reply;
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::{self, Json, Path, Query};
use crate::failure::Failure;
use crate::state::Shared;
use crate::work;
use crate::{idempotent, stream};
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use fractal::model::{Part, Run, RunReply, Verb};
use fractal::{Action, Caller, Engine, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Followed {
    /// End the run when the client goes away.
    #[serde(default)]
    attended: bool,
    /// Let the client give it more to read while it runs: the first event says
    /// where. For attended runs that are told as events.
    #[serde(default)]
    input: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct More {
    /// There is no more to come.
    #[serde(default)]
    end: bool,
}

/// What became of something to read.
#[derive(Serialize, JsonSchema)]
struct Written {
    /// How many bytes were taken. Fewer than were sent when the program does
    /// not read: the rest can be sent again.
    written: u64,
}

/// What was told to end.
#[derive(Serialize, JsonSchema)]
struct Stopped {
    /// The sandbox in which nothing goes on.
    stopped: String,
}

pub fn routes(api: Api) -> Api {
    api.with(
        Operation::post("/v1/run", "run")
            .says("Run a program in a new sandbox, or in the one that is named.")
            .verb(Verb::Run)
            .asks::<Followed>()
            .takes::<Run>()
            .streams::<RunReply>(),
        run,
    )
    .with(
        Operation::post("/v1/sandboxes/{sandbox}/run", "runIn")
            .says("Run a program in this sandbox.")
            .verb(Verb::Run)
            .asks::<Followed>()
            .takes::<Run>()
            .streams::<RunReply>(),
        run_in,
    )
    .with(
        Operation::post("/v1/sandboxes/{sandbox}/stop", "stop")
            .says("End what runs in this sandbox, without waiting for it; its files stay.")
            .verb(Verb::Run)
            .gives::<Stopped>(),
        stop,
    )
    .with(
        Operation::post("/v1/input/{input}", "give")
            .says("Something to read for a run that was begun with `input`.")
            .verb(Verb::Run)
            .asks::<More>()
            .takes_bytes()
            .gives::<Written>(),
        give,
    )
}

async fn run(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(followed): Query<Followed>,
    headers: HeaderMap,
    Json(run): Json<Run>,
) -> Result<Response, Failure> {
    start(&state, &asker, &headers, &followed, run).await
}

async fn run_in(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Query(followed): Query<Followed>,
    headers: HeaderMap,
    Json(mut run): Json<Run>,
) -> Result<Response, Failure> {
    if run.sandbox.as_ref().is_some_and(|other| *other != sandbox) {
        return Err(Error::invalid("path and body name two sandboxes").into());
    }
    run.sandbox = Some(sandbox);
    start(&state, &asker, &headers, &followed, run).await
}

async fn stop(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
) -> Result<axum::Json<Stopped>, Failure> {
    let job = move |engine: &Engine, caller: &Caller| {
        engine.stop(caller, &sandbox)?;
        Ok(Stopped { stopped: sandbox })
    };
    // Places for runs may all be taken by what is to end.
    Ok(axum::Json(work::blocking(&state, &asker, Verb::Drop, job).await?))
}

async fn give(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(input): Path<String>,
    Query(More { end }): Query<More>,
    body: Body,
) -> Result<axum::Json<Written>, Failure> {
    let allowed = |engine: &Engine, caller: &Caller| engine.authorize(caller, Verb::Run);
    work::blocking(&state, &asker, Verb::Show, allowed).await?;
    let bytes = extract::read(body, extract::BODY_BYTES_MAX).await?;
    let written = state.inputs.write(&asker, &input, &bytes, end).await?;
    Ok(axum::Json(Written { written: written as u64 }))
}

async fn start(
    state: &Shared,
    asker: &Asker,
    headers: &HeaderMap,
    &Followed { attended, input }: &Followed,
    run: Run,
) -> Result<Response, Failure> {
    check(&run)?;
    if input && !(attended && wants_events(headers) && run.stdin.is_none()) {
        let why = "`input` is for attended runs that are told as events";
        return Err(Error::invalid(why)
            .hint("send `Accept: text/event-stream`, `?attended=true`, and no `stdin`")
            .into());
    }
    if wants_events(headers) && headers.contains_key(idempotent::HEADER) {
        let why = "a run that is told while it happens takes no `Idempotency-Key`";
        return Err(Error::invalid(why)
            .hint("its answer is not kept: leave out one of the key and `text/event-stream`")
            .into());
    }
    match (wants_events(headers), attended) {
        (true, _) => stream::run(state, asker, run, attended, input).await,
        (false, true) => Ok(axum::Json(work::attended(state, asker, run).await?).into_response()),
        (false, false) => reply(state, asker, Action::Run(run)).await,
    }
}

/// What only the engine itself may say of a run.
pub fn check(run: &Run) -> Result<(), Failure> {
    match run.part {
        Part::None => Ok(()),
        _ => Err(Error::invalid("`part` is for runs that fractal starts itself").into()),
    }
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|kinds| kinds.contains("text/event-stream"))
}
