//! Experiments: directories of the project, for its owner alone.
//!
//! An experiment within another has a slash in its name, which a path writes
//! as `%2F`: what follows a name (`/extract`) could not be told from it
//! otherwise.

use super::reply;
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::{Json, Path, Query};
use crate::failure::Failure;
use crate::state::Shared;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use fractal::Action;
use fractal::model::{Extract, ExtractReply, SkunkInfo, SkunkNew, SkunkReply, SkunkVerb, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Archived ones, too.
    #[serde(default)]
    all: bool,
}

/// What to take out of it, to be used again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TakeOut {
    /// What the pattern is called; the experiment's title by default.
    #[serde(default)]
    title: Option<String>,
    /// Files and directories of the experiment that belong to it.
    #[serde(default)]
    files: Vec<String>,
    /// The name of a template to make of them in `fractal.toml`.
    #[serde(default)]
    template: Option<String>,
    /// What was understood, in Markdown.
    #[serde(default)]
    insight: Option<String>,
    /// A directory of the project into which the files are promoted, behind its
    /// checks and with an undo.
    #[serde(default)]
    into: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Archive {
    /// Takes it back.
    #[serde(default)]
    undo: bool,
}

/// All experiments.
#[derive(Serialize, JsonSchema)]
struct Skunks {
    #[allow(dead_code)]
    skunks: Vec<SkunkInfo>,
}

pub fn routes(api: Api) -> Api {
    api.with(
        Operation::get("/v1/skunks", "skunks")
            .says("Experiments of the project.")
            .verb(Verb::Find)
            .asks::<Which>()
            .gives::<Skunks>(),
        list,
    )
    .with(
        Operation::post("/v1/skunks", "createSkunk")
            .says("A directory of its own for a problem, with an environment.")
            .verb(Verb::Skunk)
            .takes::<SkunkNew>()
            .makes::<SkunkReply>(),
        create,
    )
    .with(
        Operation::get("/v1/skunks/{skunk}", "showSkunk")
            .says("One experiment and its records; a slash in its name is written `%2F`.")
            .verb(Verb::Find)
            .gives::<SkunkReply>(),
        show,
    )
    .with(
        Operation::post("/v1/skunks/{skunk}/extract", "extractSkunk")
            .says("Take out what works, to be used again.")
            .verb(Verb::Skunk)
            .takes::<TakeOut>()
            .makes::<ExtractReply>(),
        extract,
    )
    .with(
        Operation::post("/v1/skunks/{skunk}/archive", "archiveSkunk")
            .says("Say that no more is tried; everything stays.")
            .verb(Verb::Skunk)
            .takes::<Archive>()
            .gives::<SkunkReply>(),
        archive,
    )
}

fn action(verb: SkunkVerb) -> Action {
    Action::Skunk(Box::new(verb))
}

async fn list(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(Which { all }): Query<Which>,
) -> Result<Response, Failure> {
    reply(&state, &asker, action(SkunkVerb::List { all })).await
}

async fn create(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(asked): Json<SkunkNew>,
) -> Result<(StatusCode, Response), Failure> {
    Ok((StatusCode::CREATED, reply(&state, &asker, action(SkunkVerb::New(asked))).await?))
}

async fn show(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    reply(&state, &asker, action(SkunkVerb::Show { name })).await
}

async fn extract(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
    Json(TakeOut { title, files, template, insight, into }): Json<TakeOut>,
) -> Result<(StatusCode, Response), Failure> {
    let asked = Extract { name, title, files, template, insight, into };
    Ok((StatusCode::CREATED, reply(&state, &asker, action(SkunkVerb::Extract(asked))).await?))
}

async fn archive(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
    Json(Archive { undo }): Json<Archive>,
) -> Result<Response, Failure> {
    reply(&state, &asker, action(SkunkVerb::Archive { name, undo })).await
}
