//! Bringing changes towards reality, and taking them back.
//!
//! A promotion that a gate, a conflict or a missing approval stops was
//! carried out as a question: its answer tells the verdict, and nothing has
//! been written.

use super::reply;
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::{Json, Path};
use crate::failure::Failure;
use crate::state::Shared;
use axum::extract::{Extension, State};
use axum::response::Response;
use fractal::model::{
    Guard, GuardReply, Part, Promote, PromoteReply, StagesReply, TypedPath, Verb, VerifyReply,
    Vote, VoteReply,
};
use fractal::{Action, Error};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Undo {
    /// Which promotion; the latest one of the project by default.
    #[serde(default)]
    promotion: Option<String>,
    /// Put back only what lies at or below these paths; empty means all.
    #[serde(default)]
    only: Vec<TypedPath>,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Verify {
    /// Which promotion; the latest one of the project by default.
    #[serde(default)]
    promotion: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Update {
    /// Where both sides changed these paths, keep the sandbox's.
    #[serde(default)]
    ours: Vec<TypedPath>,
    /// Where both sides changed these paths, take what is outside.
    #[serde(default)]
    theirs: Vec<TypedPath>,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
}

pub fn routes(api: Api) -> Api {
    let api = api
        .with(
            Operation::post("/v1/sandboxes/{sandbox}/promote", "promote")
                .says("Bring its changes into reality or a stage; `verdict` says how it went.")
                .verb(Verb::Promote)
                .takes::<Promote>()
                .gives::<PromoteReply>(),
            promote,
        )
        .with(
            Operation::post("/v1/sandboxes/{sandbox}/update", "update")
                .says("Move it onto today's reality, with its own changes.")
                .verb(Verb::Update)
                .takes::<Update>()
                .gives::<PromoteReply>(),
            update,
        )
        .with(
            Operation::post("/v1/guard", "guard")
                .says("Run unattended, promote what passes.")
                .verb(Verb::Guard)
                .takes::<Guard>()
                .gives::<GuardReply>(),
            guard,
        )
        .with(
            Operation::post("/v1/undo", "undo")
                .says("Take a promotion back.")
                .verb(Verb::Undo)
                .takes::<Undo>()
                .gives::<PromoteReply>(),
            undo,
        );
    gates(api)
}

/// Evidence and votes.
fn gates(api: Api) -> Api {
    api.with(
        Operation::post("/v1/verify", "verify")
            .says("Check the attestation of a promotion.")
            .verb(Verb::Verify)
            .takes::<Verify>()
            .gives::<VerifyReply>(),
        verify,
    )
    .with(
        Operation::post("/v1/approve", "approve")
            .says("Say that exactly this may come into a stage.")
            .verb(Verb::Approve)
            .takes::<Vote>()
            .gives::<VoteReply>(),
        approve,
    )
    .with(
        Operation::post("/v1/reject", "reject")
            .says("Say that it may not.")
            .verb(Verb::Reject)
            .takes::<Vote>()
            .gives::<VoteReply>(),
        reject,
    )
    .with(
        Operation::get("/v1/stages", "stages")
            .says("Where everything stands, and on what evidence.")
            .verb(Verb::Stages)
            .gives::<StagesReply>(),
        stages,
    )
}

async fn promote(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Json(mut asked): Json<Promote>,
) -> Result<Response, Failure> {
    if asked.sandbox.as_ref().is_some_and(|other| *other != sandbox) {
        return Err(Error::invalid("path and body name two sandboxes").into());
    }
    asked.sandbox = Some(sandbox);
    reply(&state, &asker, Action::Promote(Box::new(asked))).await
}

async fn update(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Json(Update { ours, theirs, dry_run }): Json<Update>,
) -> Result<Response, Failure> {
    let action = Action::Update { sandbox: Some(sandbox), ours, theirs, dry_run };
    reply(&state, &asker, action).await
}

async fn guard(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(asked): Json<Guard>,
) -> Result<Response, Failure> {
    if asked.run.part != Part::None {
        return Err(Error::invalid("`part` is for runs that fractal starts itself").into());
    }
    reply(&state, &asker, Action::Guard(Box::new(asked))).await
}

async fn undo(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(Undo { promotion, only, dry_run }): Json<Undo>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Undo { promotion, only, dry_run }).await
}

async fn verify(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(Verify { promotion }): Json<Verify>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Verify { promotion }).await
}

async fn approve(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(vote): Json<Vote>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Approve(vote)).await
}

async fn reject(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(vote): Json<Vote>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Reject(vote)).await
}

async fn stages(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Stages).await
}
