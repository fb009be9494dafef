//! Tools: which there are, and calling one.

use super::residents::Home;
use super::{Agent, Answer};
use crate::asker::Asker;
use crate::state::Shared;
use crate::work;
use fractal::model::{ToolAnswer, ToolCall, ToolInfo, ToolReply, Verb};
use fractal::tools::{Cancel, Options};
use fractal::{Caller, Code, Engine, Error};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult,
    JsonObject, ListToolsResult, ProgressNotificationParam, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskExit, TaskManager, TaskOptions};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long a call may take before a client that knows tasks is given one.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often whoever asked for it hears that work goes on.
const BEAT: Duration = Duration::from_secs(1);
/// How long the answer of a task waits to be fetched.
const TASK_TTL_MS: u64 = 3_600_000;

type Working = JoinHandle<Result<ToolReply, crate::failure::Failure>>;

pub async fn list(state: &Shared, asker: &Asker) -> Answer<ListToolsResult> {
    let job =
        |engine: &Engine, caller: &Caller| Ok(engine.tools_of(engine.tools(), caller, None)?.tools);
    let tools = work::blocking(state, asker, Verb::List, job).await.map_err(refused)?;
    Ok(ListToolsResult::with_all_items(tools.into_iter().map(describe).collect()))
}

fn describe(tool: ToolInfo) -> Tool {
    let annotations = ToolAnnotations::new()
        .read_only(tool.read_only)
        .destructive(tool.destructive)
        .idempotent(tool.idempotent)
        .open_world(false);
    let described =
        Tool::new(tool.name, tool.description, object(tool.input)).with_annotations(annotations);
    match tool.output {
        Some(output) => described.with_raw_output_schema(object(output)),
        None => described,
    }
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(map) => Arc::new(map),
        _ => Arc::default(),
    }
}

/// One call, with whoever makes it.
struct Calling {
    state: Shared,
    asker: Asker,
    home: Home,
    cancel: Cancel,
}

pub async fn call(
    agent: &Agent,
    asker: Asker,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Answer<CallToolResponse> {
    let home = agent.home(&asker, &context);
    let resident = agent.resident(&asker);
    let cancel = Cancel::default();
    let state = agent.state.clone();
    let mut working = start(Calling { state, asker, home, cancel: cancel.clone() }, request);
    let knows_tasks = context.client_capabilities().is_some_and(|known| known.supports_tasks());
    // Who has many waits for the answer itself.
    let has_room = knows_tasks && resident.has_room();
    let patience = if has_room { PATIENCE } else { Duration::MAX };
    tokio::select! {
        done = &mut working => return answer(done).map(Into::into),
        () = beat(&context) => {}
        () = context.ct.cancelled() => {
            cancel.cancel();
            return answer(working.await).map(Into::into);
        }
        () = tokio::time::sleep(patience) => {}
    }
    let task = later(&resident.tasks, working, cancel);
    resident.was_given(&task.task_id);
    Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
}

fn start(calling: Calling, request: CallToolRequestParams) -> Working {
    let Calling { state, asker, home, cancel } = calling;
    let input = request.arguments.unwrap_or_default();
    let named = input.get("sandbox").and_then(Value::as_str).map(str::to_owned);
    tokio::spawn(async move {
        let shared = state.clone();
        let job = move |engine: &Engine, caller: &Caller| {
            let (registry, _) = engine.tools_for(caller);
            let sandbox = match named {
                Some(name) => Some(name),
                None if registry.is_place_free(&request.name) => home.known(),
                None => Some(home.find_or_make(|| settle(&shared, engine, caller))?),
            };
            let call = ToolCall {
                tool: request.name.into_owned(),
                input: Value::Object(input),
                sandbox: sandbox.clone(),
                time_ms: None,
            };
            let options = Options { cancel, ..Options::default() };
            let mut reply = registry.call_with(engine, caller, &call, &options);
            if let Some(sandbox) = sandbox {
                check_out(&home, &sandbox, &mut reply);
            }
            Ok(reply)
        };
        work::calling(&state, &asker, job).await
    })
}

/// Makes the agent's sandbox, with its first call.
fn settle(state: &Shared, engine: &Engine, caller: &Caller) -> fractal::Result<String> {
    state.admission.room(engine)?;
    let run = fractal::Run { command: vec!["true".to_owned()], ..fractal::Run::default() };
    engine.make(caller, &run).map(|made| made.name)
}

/// Somebody dropped the sandbox that the agent lives in: it is told, and has
/// a new one with its next call.
fn check_out(home: &Home, sandbox: &str, reply: &mut ToolReply) {
    if let ToolAnswer::Error(error) = &mut reply.answer
        && error.code == Code::NotFound
        && error.message.contains(sandbox)
        && home.leave(sandbox)
    {
        error.hint = Some(
            "your sandbox is gone, with what you did in it; call again to get a new one".into(),
        );
    }
}

/// Tells whoever asked for it that work goes on; never ends otherwise.
async fn beat(context: &RequestContext<RoleServer>) {
    let Some(token) = context.meta.get_progress_token() else {
        return std::future::pending().await;
    };
    let mut seconds = 0.0;
    loop {
        tokio::time::sleep(BEAT).await;
        seconds += BEAT.as_secs_f64();
        let mut progress = ProgressNotificationParam::new(token.clone(), seconds);
        progress.message = Some(format!("running for {seconds} s"));
        if context.peer.notify_progress(progress).await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// The call as a task that is asked for later.
fn later(tasks: &TaskManager, working: Working, cancel: Cancel) -> rmcp::model::Task {
    let options = TaskOptions::new().with_ttl_ms(TASK_TTL_MS);
    tasks.spawn(options, |context| {
        Box::pin(async move {
            let mut working = working;
            tokio::select! {
                done = &mut working => answer(done).map_err(TaskExit::Error),
                () = context.cancelled() => {
                    cancel.cancel();
                    let _ = working.await;
                    Err(TaskExit::Cancelled)
                }
            }
        })
    })
}

type Done = Result<Result<ToolReply, crate::failure::Failure>, tokio::task::JoinError>;

/// What the agent reads. A tool that failed says so where the agent sees it.
fn answer(done: Done) -> Answer<CallToolResult> {
    let reply = match done {
        Ok(Ok(reply)) => reply,
        Ok(Err(failure)) => return Ok(failed(failure.error())),
        Err(_) => return Err(ErrorData::internal_error("the engine broke off", None)),
    };
    Ok(match reply.answer {
        ToolAnswer::Output(value) => told(value),
        ToolAnswer::Error(error) => failed(&error),
    })
}

/// What another server has for reading is handed on as it is: pictures and
/// sounds stay what they are.
fn told(value: Value) -> CallToolResult {
    let content = value.get("content").cloned().map(serde_json::from_value);
    let mut result = CallToolResult::structured(value);
    if let Some(Ok(content)) = content {
        result.content = content;
    }
    result
}

fn failed(error: &Error) -> CallToolResult {
    let hint = error.hint.as_ref().map(|hint| format!("\n{hint}")).unwrap_or_default();
    let text = format!("{}: {}{hint}", error.code.name(), error.message);
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({ "error": error }));
    result
}

pub fn refused(failure: crate::failure::Failure) -> ErrorData {
    ErrorData::invalid_request(failure.error().message.clone(), Some(json!(failure.error())))
}
