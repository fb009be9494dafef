//! Any verb at all, as the engine's own `Action`: the way of the command line,
//! and of programs that have actions as data.
//!
//! Nothing is decided here. What a key may do, which paths it may name, and
//! how much happens at once hold as on the routes with names.

use super::{reply, runs};
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::Json;
use crate::failure::Failure;
use crate::idempotent::Unkept;
use crate::state::Shared;
use axum::extract::{Extension, State};
use axum::response::Response;
use fractal::Action;
use fractal::model::Verb;

pub fn routes(api: Api) -> Api {
    api.with(
        Operation::post("/v1/apply", "apply")
            .says("Any verb, as the engine takes it; the output of runs stands in the answer.")
            .verb(Verb::List)
            .takes::<Action>()
            .gives::<fractal::Reply>(),
        apply,
    )
}

async fn apply(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(action): Json<Action>,
) -> Result<Response, Failure> {
    match &action {
        Action::Run(run) => runs::check(run)?,
        Action::Try(asked) => runs::check(&asked.run)?,
        Action::Guard(asked) => runs::check(&asked.run)?,
        _ => {}
    }
    let is_secret = matches!(action, Action::Key(_));
    let mut response = reply(&state, &asker, action).await?;
    if is_secret {
        response.extensions_mut().insert(Unkept);
    }
    Ok(response)
}
