//! Who did what, and whether the records are as they were written.

use super::reply;
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::Query;
use crate::failure::Failure;
use crate::state::Shared;
use axum::extract::{Extension, State};
use axum::response::Response;
use fractal::Action;
use fractal::model::{AuditReply, AuditVerifyReply, Verb};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Not before, in milliseconds since 1970.
    #[serde(default)]
    since_ms: Option<u64>,
    /// Not after.
    #[serde(default)]
    until_ms: Option<u64>,
    /// A key by id or name; `owner` for the local user.
    #[serde(default)]
    key: Option<String>,
    /// A verb.
    #[serde(default)]
    action: Option<String>,
    /// A sandbox by id, or by the name it had then.
    #[serde(default)]
    sandbox: Option<String>,
    /// Only what was refused.
    #[serde(default)]
    denied: bool,
    /// At most so many.
    #[serde(default)]
    limit: Option<u64>,
    /// Records that follow this number, oldest first.
    #[serde(default)]
    after: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// A hash that somebody noted elsewhere; it must still be in the chain.
    #[serde(default)]
    expect: Option<String>,
}

pub fn routes(api: Api) -> Api {
    api.with(
        Operation::get("/v1/audit", "audit")
            .says("Who did what, and what was refused.")
            .verb(Verb::Audit)
            .asks::<Which>()
            .gives::<AuditReply>(),
        audit,
    )
    .with(
        Operation::get("/v1/audit/verify", "verifyAudit")
            .says("Walk the whole chain of records.")
            .verb(Verb::Audit)
            .asks::<Expected>()
            .gives::<AuditVerifyReply>(),
        verify,
    )
}

async fn audit(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(which): Query<Which>,
) -> Result<Response, Failure> {
    let Which { since_ms, until_ms, key, action, sandbox, denied, limit, after } = which;
    let action = Action::Audit { since_ms, until_ms, key, action, sandbox, denied, limit, after };
    reply(&state, &asker, action).await
}

async fn verify(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(Expected { expect }): Query<Expected>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::AuditVerify { expect }).await
}
