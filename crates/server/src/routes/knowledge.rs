//! What was learned: writing it down, asking for it, and looking after what
//! answers.
//!
//! Whose records answer is the engine's to say: a key asks its own place.

use super::reply;
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::{Json, Query};
use crate::failure::Failure;
use crate::state::Shared;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use fractal::model::{
    Find, FindReply, GraphAsk, GraphReply, IndexReply, IndexVerb, LearnedReply, LintReply, Note,
    NoteReply, Verb,
};
use fractal::{Action, Code};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Question {
    /// What is asked, in words; `POST` takes longer questions.
    #[schemars(length(min = 1))]
    q: String,
    /// Only records of these kinds, with commas between.
    #[serde(default)]
    kinds: Option<String>,
    /// Only records with all of these tags, with commas between.
    #[serde(default)]
    tags: Option<String>,
    /// Only records with this outcome.
    #[serde(default)]
    outcome: Option<String>,
    /// Only records of this sandbox.
    #[serde(default)]
    sandbox: Option<String>,
    /// Only records that were written since, in milliseconds since 1970.
    #[serde(default)]
    since_ms: Option<u64>,
    /// Only records that were written before.
    #[serde(default)]
    until_ms: Option<u64>,
    /// At most so many; 10 by default.
    #[serde(default)]
    limit: Option<u32>,
}

impl From<Question> for Find {
    fn from(asked: Question) -> Find {
        let Question { q, kinds, tags, outcome, sandbox, since_ms, until_ms, limit } = asked;
        let (kinds, tags) = (list(kinds), list(tags));
        Find { text: q, kinds, tags, outcome, sandbox, since_ms, until_ms, limit }
    }
}

fn list(words: Option<String>) -> Vec<String> {
    let words = words.unwrap_or_default();
    words.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Part {
    /// What is around this: a record by id or path, or `file:…`, `package:…`,
    /// `sandbox:…`; without it everything.
    #[serde(default)]
    around: Option<String>,
    /// The shortest way from there to here.
    #[serde(default)]
    to: Option<String>,
    /// So many steps; 1 by default.
    #[serde(default)]
    depth: Option<u32>,
    /// What fixed failures like this one.
    #[serde(default)]
    fixes: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Since {
    /// Not before, in milliseconds since 1970.
    #[serde(default)]
    since_ms: Option<u64>,
}

pub fn routes(api: Api) -> Api {
    let api = api
        .with(
            Operation::post("/v1/notes", "note")
                .says("Write down what was learned.")
                .verb(Verb::Note)
                .takes::<Note>()
                .makes::<NoteReply>(),
            note,
        )
        .with(
            Operation::get("/v1/find", "find")
                .says("Ask what was learned, in words.")
                .verb(Verb::Find)
                .asks::<Question>()
                .gives::<FindReply>(),
            find,
        )
        .with(
            Operation::post("/v1/find", "findLong")
                .says("The same with a question of any length, and lists as lists.")
                .verb(Verb::Find)
                .takes::<Find>()
                .gives::<FindReply>(),
            find_long,
        )
        .with(
            Operation::get("/v1/graph", "graph")
                .says("What stands in relation to what.")
                .verb(Verb::Find)
                .asks::<Part>()
                .gives::<GraphReply>(),
            graph,
        )
        .with(
            Operation::get("/v1/learned", "learned")
                .says("Insights, and failures by what they have in common.")
                .verb(Verb::Find)
                .asks::<Since>()
                .gives::<LearnedReply>(),
            learned,
        );
    index(api)
}

/// What answers questions, looked after.
fn index(api: Api) -> Api {
    api.with(
        Operation::get("/v1/index", "index")
            .says("What there is to answer from.")
            .verb(Verb::Find)
            .gives::<IndexReply>(),
        status,
    )
    .with(
        Operation::post("/v1/index/rebuild", "rebuildIndex")
            .says("Make it anew from the files.")
            .verb(Verb::Index)
            .gives::<IndexReply>(),
        rebuild,
    )
    .with(
        Operation::post("/v1/index/embed", "embedIndex")
            .says("Make vectors for the records that have none.")
            .verb(Verb::Index)
            .gives::<IndexReply>(),
        embed,
    )
    .with(
        Operation::get("/v1/index/lint", "lintIndex")
            .says("What is wrong in records.")
            .verb(Verb::Find)
            .gives::<LintReply>(),
        lint,
    )
    .with(
        Operation::get("/v1/index/verify", "verifyIndex")
            .says("Compare it with the files.")
            .verb(Verb::Find)
            .gives::<LintReply>(),
        verify,
    )
}

async fn note(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(asked): Json<Note>,
) -> Result<(StatusCode, Response), Failure> {
    Ok((StatusCode::CREATED, reply(&state, &asker, Action::Note(Box::new(asked))).await?))
}

async fn find(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(asked): Query<Question>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Find(Box::new(asked.into()))).await
}

async fn find_long(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(asked): Json<Find>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Find(Box::new(asked))).await
}

async fn graph(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(Part { around, to, depth, fixes }): Query<Part>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Graph(GraphAsk { around, to, depth, fixes })).await
}

async fn learned(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(Since { since_ms }): Query<Since>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Learned { since_ms }).await
}

async fn status(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Index(IndexVerb::Status)).await
}

async fn rebuild(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Index(IndexVerb::Rebuild)).await
}

/// Without a model nothing is wrong with the server: somebody has to add one.
async fn embed(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Failure> {
    let done = reply(&state, &asker, Action::Index(IndexVerb::Embed)).await;
    done.map_err(|failure| match failure.error() {
        error if error.code == Code::Unsupported => {
            Failure::with_status(StatusCode::CONFLICT, error.clone())
        }
        _ => failure,
    })
}

async fn lint(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Index(IndexVerb::Lint)).await
}

async fn verify(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Index(IndexVerb::Verify)).await
}
