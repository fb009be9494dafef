//! Tools: what there is, one call, many calls at once.

use super::reply;
use crate::api::{Api, Operation};
use crate::asker::Asker;
use crate::extract::{Json, Path, Query};
use crate::failure::Failure;
use crate::state::Shared;
use axum::extract::{Extension, State};
use axum::response::Response;
use fractal::Action;
use fractal::model::{ToolCall, ToolCalls, ToolReply, ToolsReply, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Where {
    /// The tools that may be used in this sandbox; in a new one by default.
    #[serde(default)]
    sandbox: Option<String>,
}

/// One call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Call {
    /// What the tool's own schema describes.
    #[serde(default)]
    input: Value,
    /// Where it works; in a new sandbox by default.
    #[serde(default)]
    sandbox: Option<String>,
    /// How long it may take, within what the tool says.
    #[serde(default)]
    time_ms: Option<u64>,
}

/// Answers in the order asked.
#[derive(Serialize, JsonSchema)]
struct Results {
    #[allow(dead_code)]
    results: Vec<ToolReply>,
}

pub fn routes(api: Api) -> Api {
    api.with(
        Operation::get("/v1/tools", "tools")
            .says("The tools that you may use, with the schemas of their input.")
            .verb(Verb::List)
            .asks::<Where>()
            .gives::<ToolsReply>(),
        list,
    )
    .with(
        Operation::post("/v1/tools/{tool}", "callTool")
            .says("Use a tool; what it refuses or fails at stands in its answer.")
            .verb(Verb::Tool)
            .takes::<Call>()
            .gives::<ToolReply>(),
        call,
    )
    .with(
        Operation::post("/v1/calls", "callTools")
            .says("Use several tools at once; one failure does not sink the others.")
            .verb(Verb::Tool)
            .takes::<ToolCalls>()
            .gives::<Results>(),
        call_many,
    )
}

async fn list(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(Where { sandbox }): Query<Where>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Tools { sandbox }).await
}

async fn call(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(tool): Path<String>,
    Json(Call { input, sandbox, time_ms }): Json<Call>,
) -> Result<Response, Failure> {
    // As in a list of calls, who gives nothing gives no fields.
    let input = if input.is_null() { Value::Object(Map::new()) } else { input };
    let call = ToolCall { tool, input, sandbox, time_ms };
    reply(&state, &asker, Action::Tool(Box::new(call))).await
}

async fn call_many(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(calls): Json<ToolCalls>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Calls(calls)).await
}
