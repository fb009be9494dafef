//! Files of sandboxes as `sandbox://NAME/path`.

use super::Answer;
use super::calls::refused;
use crate::asker::Asker;
use crate::state::Shared;
use crate::work;
use fractal::model::{ToolAnswer, ToolCall, Verb};
use fractal::tools::Options;
use fractal::{Action, Caller, Engine, Reply};
use rmcp::ErrorData;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use serde_json::{Value, json};

const SCHEME: &str = "sandbox://";
/// What stands for a sandbox in the template of addresses.
pub const VARIABLE: &str = "sandbox";
const LISTED_MAX: usize = 100;

pub fn templates() -> ListResourceTemplatesResult {
    let file = ResourceTemplate::new("sandbox://{sandbox}/{+path}", "file").with_description(
        "A file or directory as a sandbox sees it; the path is from the project's directory, or \
         absolute with a second slash.",
    );
    ListResourceTemplatesResult::with_all_items(vec![file])
}

/// The sandboxes that can be seen, each with its project.
pub async fn list(state: &Shared, asker: &Asker) -> Answer<ListResourcesResult> {
    let Reply::List(list) = work::apply(state, asker, Action::List).await.map_err(refused)? else {
        return Err(ErrorData::internal_error("a list was answered with something else", None));
    };
    let latest = list.sandboxes.into_iter().rev().take(LISTED_MAX);
    let shown = latest.map(|sandbox| {
        Resource::new(format!("{SCHEME}{}/", sandbox.name), sandbox.name)
            .with_description("The project as this sandbox sees it")
            .with_mime_type("application/json")
    });
    Ok(ListResourcesResult::with_all_items(shown.collect()))
}

pub async fn read(state: &Shared, asker: &Asker, uri: &str) -> Answer<ReadResourceResult> {
    let missing = || ErrorData::resource_not_found(format!("there is no {uri}"), None);
    let (sandbox, path) =
        uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')).ok_or_else(missing)?;
    let path = if path.is_empty() { "." } else { path };
    let call = ToolCall {
        tool: "read".to_owned(),
        input: json!({ "path": path }),
        sandbox: Some(sandbox.to_owned()),
        time_ms: None,
    };
    let job = move |engine: &Engine, caller: &Caller| {
        Ok(engine.tools().call_with(engine, caller, &call, &Options::default()))
    };
    let reply = work::blocking(state, asker, Verb::Copy, job).await.map_err(refused)?;
    let value = match reply.answer {
        ToolAnswer::Output(value) => value,
        ToolAnswer::Error(_) => return Err(missing()),
    };
    let contents = match value.get("content").and_then(Value::as_str) {
        Some(text) => ResourceContents::text(text, uri),
        None => ResourceContents::text(value.to_string(), uri).with_mime_type("application/json"),
    };
    Ok(ReadResourceResult::new(vec![contents]))
}
