//! Tools on real sandboxes.

mod files;
mod many;
mod mcp;
mod programs;
mod verbs;

use crate::world::World;
use fractal::model::{ToolCall, ToolReply};
use fractal::{Action, Error, Reply};
use serde_json::Value;

/// Calls a tool in a sandbox as every surface does.
fn call(world: &World, sandbox: &str, tool: &str, input: Value) -> Result<Value, Error> {
    let call = ToolCall {
        tool: tool.into(),
        input,
        sandbox: Some(sandbox.into()).filter(|name: &String| !name.is_empty()),
        time_ms: None,
    };
    match world.engine.apply(&world.caller, Action::Tool(Box::new(call)))? {
        Reply::Tool(reply) => reply.result(),
        other => panic!("a tool answered {other:?}"),
    }
}

fn done(reply: &ToolReply) -> Value {
    reply.clone().result().unwrap_or_else(|error| panic!("{}: {error}", reply.tool))
}

/// Records of tools, newest first: name, outcome and tries.
fn records(world: &World) -> Vec<(String, String, u64)> {
    let action = Action::Log { sandbox: None, limit: Some(500), here: false, whole: false };
    let Reply::Log(log) = world.apply(action).unwrap() else { panic!("log") };
    let tools = log.records.into_iter().map(|record| record.body);
    let tools = tools.filter(|body| body.action == "tool").map(|body| body.detail);
    let text = |detail: &Value, name: &str| detail[name].as_str().unwrap().to_owned();
    tools
        .map(|it| (text(&it, "tool"), text(&it, "outcome"), it["tries"].as_u64().unwrap()))
        .collect()
}
