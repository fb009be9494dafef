//! Several ways at once, and comparing what is there.

use super::reply;
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::Json;
use crate::failure::Failure;
use crate::state::Shared;
use axum::extract::{Extension, State};
use axum::response::Response;
use fractal::model::{Check, Part, RankBy, Try, TryReply, Verb};
use fractal::{Action, Error};
use schemars::JsonSchema;
use serde::Deserialize;

/// Which sandboxes, and by what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Compare {
    /// Names or ids of two or more.
    #[schemars(length(min = 2))]
    sandboxes: Vec<String>,
    /// What is asked of each.
    #[serde(default)]
    checks: Vec<Check>,
    /// A command that prints a number, higher is better.
    #[serde(default)]
    score: Option<String>,
    /// How they are put in order.
    #[serde(default)]
    rank: Option<RankBy>,
    /// How often each check runs, to find flaky ones.
    #[serde(default)]
    repeat: Option<u32>,
}

pub fn routes(api: Api) -> Api {
    api.with(
        Operation::post("/v1/try", "try")
            .says("Fork once per attempt, run them side by side, check and rank.")
            .verb(Verb::Try)
            .takes::<Try>()
            .gives::<TryReply>(),
        try_all,
    )
    .with(
        Operation::post("/v1/compare", "compare")
            .says("The same table for sandboxes that exist.")
            .verb(Verb::Compare)
            .takes::<Compare>()
            .gives::<TryReply>(),
        compare,
    )
}

async fn try_all(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(asked): Json<Try>,
) -> Result<Response, Failure> {
    if asked.run.part != Part::None {
        return Err(Error::invalid("`part` is for runs that fractal starts itself").into());
    }
    reply(&state, &asker, Action::Try(Box::new(asked))).await
}

async fn compare(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(Compare { sandboxes, checks, score, rank, repeat }): Json<Compare>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Compare { sandboxes, checks, score, rank, repeat }).await
}
