//! Keys. A secret is in one answer only, which is never stored.

use super::reply;
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::{Json, Path};
use crate::failure::Failure;
use crate::idempotent::Unkept;
use crate::state::Shared;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use fractal::Action;
use fractal::model::{Key, KeyMade, KeyVerb, Policy, Role, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A new key, never wider than the one that makes it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    /// The role it is made from; `GET /v1/roles` lists them.
    role: String,
    /// Its name; one is made up otherwise.
    #[serde(default)]
    name: Option<String>,
    /// Whose sandboxes it sees; a tenant of its own by default.
    #[serde(default)]
    tenant: Option<String>,
    /// `*`, `template:NAME`, or a sandbox by name or id.
    #[serde(default)]
    scope: Option<String>,
    /// What is asked to be narrower than the role.
    #[serde(default)]
    ask: Policy,
    /// How long it lives; 30 days by default.
    #[serde(default)]
    ttl_ms: Option<u64>,
    /// That it does not end by itself.
    #[serde(default)]
    endless: bool,
    /// Requests per minute.
    #[serde(default)]
    rate_per_minute: Option<u32>,
    /// Requests at once.
    #[serde(default)]
    concurrent: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rotate {
    /// How long the old secret stays good; not at all by default.
    #[serde(default)]
    grace_ms: Option<u64>,
}

/// Keys within your reach.
#[derive(Serialize, JsonSchema)]
struct Keys {
    #[allow(dead_code)]
    keys: Vec<Key>,
}

/// All roles.
#[derive(Serialize, JsonSchema)]
struct Roles {
    #[allow(dead_code)]
    roles: Vec<Role>,
}

pub fn routes(api: Api) -> Api {
    let api = api
        .with(
            Operation::get("/v1/keys", "keys")
                .says("Keys within your reach, without their secrets.")
                .verb(Verb::Key)
                .gives::<Keys>(),
            list,
        )
        .with(
            Operation::post("/v1/keys", "createKey")
                .says("A new key; its secret is in this answer only.")
                .verb(Verb::Key)
                .takes::<Create>()
                .makes::<KeyMade>(),
            create,
        )
        .with(
            Operation::get("/v1/roles", "roles")
                .says("The roles that keys are made from.")
                .verb(Verb::Key)
                .gives::<Roles>(),
            roles,
        );
    one(api)
}

/// What is done with one key.
fn one(api: Api) -> Api {
    api.with(
        Operation::get("/v1/keys/{key}", "showKey")
            .says("One key, without its secret.")
            .verb(Verb::Key)
            .gives::<Key>(),
        show,
    )
    .with(
        Operation::delete("/v1/keys/{key}", "revokeKey")
            .says("End a key, at once and for good.")
            .verb(Verb::Key)
            .gives::<Key>(),
        revoke,
    )
    .with(
        Operation::post("/v1/keys/{key}/rotate", "rotateKey")
            .says("Give it a new secret, which is in this answer only.")
            .verb(Verb::Key)
            .takes::<Rotate>()
            .gives::<KeyMade>(),
        rotate,
    )
}

async fn key(state: &Shared, asker: &Asker, verb: KeyVerb) -> Result<Response, Failure> {
    let mut response = reply(state, asker, Action::Key(verb)).await?;
    response.extensions_mut().insert(Unkept);
    Ok(response)
}

async fn list(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Failure> {
    key(&state, &asker, KeyVerb::List).await
}

async fn create(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(asked): Json<Create>,
) -> Result<(StatusCode, Response), Failure> {
    let Create { role, name, tenant, scope, ask, ttl_ms, endless, rate_per_minute, concurrent } =
        asked;
    let verb = KeyVerb::Create {
        role,
        name,
        tenant,
        scope,
        ask,
        ttl_ms,
        endless,
        rate_per_minute,
        concurrent,
    };
    Ok((StatusCode::CREATED, key(&state, &asker, verb).await?))
}

async fn roles(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Failure> {
    key(&state, &asker, KeyVerb::Roles).await
}

async fn show(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    key(&state, &asker, KeyVerb::Show { key: name }).await
}

async fn revoke(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    key(&state, &asker, KeyVerb::Revoke { key: name }).await
}

async fn rotate(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
    Json(Rotate { grace_ms }): Json<Rotate>,
) -> Result<Response, Failure> {
    key(&state, &asker, KeyVerb::Rotate { key: name, grace_ms }).await
}
