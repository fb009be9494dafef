//! What a person can ask an agent to go by, and names to choose from.

use super::Answer;
use super::calls::refused;
use crate::asker::Asker;
use crate::state::Shared;
use crate::work;
use fractal::{Action, Reply};
use rmcp::model::{
    CompleteRequestParams, CompletionInfo, GetPromptResult, Prompt, PromptMessage, Reference, Role,
};

const SKILL: &str = include_str!("../../../../SKILL.md");

/// The one prompt: how to work with fractal.
pub fn list() -> Vec<Prompt> {
    let about = "How to work in a sandbox, try several ways and bring the winner back";
    vec![Prompt::new("fractal", Some(about), None)]
}

pub fn get(name: &str) -> Option<GetPromptResult> {
    // What stands between the lines of dashes is for catalogues of skills.
    let text = SKILL.splitn(3, "---\n").last().unwrap_or(SKILL).trim_start();
    (name == "fractal")
        .then(|| GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]))
}

/// Names of sandboxes that begin like this; nothing else is completed.
pub async fn complete(
    state: &Shared,
    asker: &Asker,
    request: &CompleteRequestParams,
) -> Answer<CompletionInfo> {
    let is_sandbox = matches!(&request.r#ref, Reference::Resource(_))
        && request.argument.name == super::resources::VARIABLE;
    if !is_sandbox {
        return Ok(CompletionInfo::default());
    }
    let reply = work::apply(state, asker, Action::List).await.map_err(refused)?;
    let Reply::List(list) = reply else { return Ok(CompletionInfo::default()) };
    let names = list.sandboxes.into_iter().rev().map(|sandbox| sandbox.name);
    let fitting: Vec<String> =
        names.filter(|name| name.starts_with(&request.argument.value)).collect();
    let total = fitting.len();
    let shown = fitting.into_iter().take(CompletionInfo::MAX_VALUES).collect();
    CompletionInfo::with_pagination(
        shown,
        u32::try_from(total).ok(),
        total > CompletionInfo::MAX_VALUES,
    )
    .map_err(|error| rmcp::ErrorData::internal_error(error, None))
}
