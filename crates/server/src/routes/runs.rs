//! Running programs.

use super::reply;
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::{Json, Path};
use crate::failure::Failure;
use crate::state::Shared;
use crate::{idempotent, stream};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use fractal::model::{Part, Run, RunReply, Verb};
use fractal::{Action, Error};

pub fn routes(api: Api) -> Api {
    api.with(
        Operation::post("/v1/run", "run")
            .says("Run a program in a new sandbox, or in the one that is named.")
            .verb(Verb::Run)
            .takes::<Run>()
            .streams::<RunReply>(),
        run,
    )
    .with(
        Operation::post("/v1/sandboxes/{sandbox}/run", "runIn")
            .says("Run a program in this sandbox.")
            .verb(Verb::Run)
            .takes::<Run>()
            .streams::<RunReply>(),
        run_in,
    )
}

async fn run(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    Json(run): Json<Run>,
) -> Result<Response, Failure> {
    start(&state, &asker, &headers, run).await
}

async fn run_in(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    Json(mut run): Json<Run>,
) -> Result<Response, Failure> {
    if run.sandbox.as_ref().is_some_and(|other| *other != sandbox) {
        return Err(Error::invalid("path and body name two sandboxes").into());
    }
    run.sandbox = Some(sandbox);
    start(&state, &asker, &headers, run).await
}

async fn start(
    state: &Shared,
    asker: &Asker,
    headers: &HeaderMap,
    run: Run,
) -> Result<Response, Failure> {
    check(&run)?;
    if wants_events(headers) && headers.contains_key(idempotent::HEADER) {
        let why = "a run that is told while it happens takes no `Idempotency-Key`";
        return Err(Error::invalid(why)
            .hint("its answer is not kept: leave out one of the key and `text/event-stream`")
            .into());
    }
    match wants_events(headers) {
        true => stream::run(state, asker, run).await,
        false => reply(state, asker, Action::Run(run)).await,
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
