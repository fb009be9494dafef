//! Volumes, and cleaning up.

use super::reply;
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::{Json, Path};
use crate::failure::Failure;
use crate::state::Shared;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use fractal::Action;
use fractal::model::{GcReply, Verb, VolumeInfo, VolumeVerb};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    /// Its name.
    name: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Gc {
    /// Only say what would go.
    #[serde(default)]
    dry_run: bool,
    /// Give up what is kept for `undo` of promotions older than this.
    #[serde(default)]
    undo_ms: Option<u64>,
}

/// All volumes.
#[derive(serde::Serialize, JsonSchema)]
struct Volumes {
    #[allow(dead_code)]
    volumes: Vec<VolumeInfo>,
}

/// What was removed.
#[derive(serde::Serialize, JsonSchema)]
struct Removed {
    #[allow(dead_code)]
    dropped: Vec<String>,
}

pub fn routes(api: Api) -> Api {
    api.with(
        Operation::get("/v1/volumes", "volumes")
            .says("Directories that outlive sandboxes.")
            .verb(Verb::Volume)
            .gives::<Volumes>(),
        list,
    )
    .with(
        Operation::post("/v1/volumes", "createVolume")
            .says("A new, empty volume.")
            .verb(Verb::Volume)
            .takes::<Create>()
            .makes::<VolumeInfo>(),
        create,
    )
    .with(
        Operation::get("/v1/volumes/{volume}", "showVolume")
            .says("One volume and who mounts it.")
            .verb(Verb::Volume)
            .gives::<VolumeInfo>(),
        show,
    )
    .with(
        Operation::delete("/v1/volumes/{volume}", "removeVolume")
            .says("Remove a volume that nobody mounts.")
            .verb(Verb::Volume)
            .gives::<Removed>(),
        remove,
    )
    .with(
        Operation::post("/v1/gc", "gc")
            .says("Drop what has expired and free what nobody stands on.")
            .verb(Verb::Gc)
            .takes::<Gc>()
            .gives::<GcReply>(),
        gc,
    )
}

async fn list(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Volume(VolumeVerb::List)).await
}

async fn create(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(Create { name }): Json<Create>,
) -> Result<(StatusCode, Response), Failure> {
    let action = Action::Volume(VolumeVerb::Create { name });
    Ok((StatusCode::CREATED, reply(&state, &asker, action).await?))
}

async fn show(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Volume(VolumeVerb::Show { name })).await
}

async fn remove(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Volume(VolumeVerb::Rm { name })).await
}

async fn gc(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(Gc { dry_run, undo_ms }): Json<Gc>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Gc { dry_run, undo_ms }).await
}
