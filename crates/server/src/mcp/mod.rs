//! Agents by the Model Context Protocol: the engine's tools, files of
//! sandboxes as resources, long calls as tasks.
//!
//! An agent works in a sandbox of its own, which is made with its first call;
//! reality is reached by `promote` alone, under the agent's key. One
//! [`Agent`] serves one connection on standard input and output, or one
//! session (before 2026-07-28) or request (since) over HTTP.

// Logging goes away in later revisions; clients of today's may ask for it.
#![expect(deprecated)]

mod calls;
mod fixtures;
mod prompts;
mod residents;
mod resources;
mod session;

use crate::asker::Asker;
use crate::state::Shared;
use axum::Router;
use axum::middleware::from_fn_with_state;
use residents::{Home, Resident, Residents};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::TaskManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use std::sync::Arc;

/// What a language model is told before it has called anything.
const INSTRUCTIONS: &str = "You work in a sandbox: an isolated copy of the user's real project and \
machine. Nothing you do in it touches the real files. Read, edit and run freely; `diff` shows what \
you changed; `snapshot` before something risky and `rollback` to undo it; `try` runs several ways \
side by side and ranks them by checks; `promote` brings the result into the real project, all of it \
or nothing, and can be undone.";

pub use fixtures::asker as suite;

type Answer<T> = Result<T, ErrorData>;

/// One agent that is connected.
#[derive(Clone)]
pub struct Agent {
    state: Shared,
    /// Who asks, where that is known for the whole connection.
    asker: Option<Asker>,
    /// Where the agent lives while its session or connection lasts.
    home: Home,
    residents: Arc<Residents>,
}

impl Agent {
    /// An agent whose requests all come from one asker, or say who asks.
    fn new(state: Shared, asker: Option<Asker>, residents: Arc<Residents>) -> Agent {
        Agent { state, asker, home: Home::default(), residents }
    }

    /// Who asks: whoever the connection belongs to, or the request's key.
    fn asker(&self, context: &RequestContext<RoleServer>) -> Answer<Asker> {
        if let Some(asker) = &self.asker {
            return Ok(asker.clone());
        }
        let asker = request(context).and_then(|parts| parts.extensions.get::<Asker>()).cloned();
        asker.ok_or_else(|| ErrorData::internal_error("a request came from nobody", None))
    }

    /// Where the agent lives.
    fn home(&self, asker: &Asker, context: &RequestContext<RoleServer>) -> Home {
        let is_alone =
            request(context).is_some_and(|parts| !parts.headers.contains_key(session::SESSION));
        match is_alone {
            true => self.residents.of(&asker.id()).home,
            false => self.home.clone(),
        }
    }

    fn resident(&self, asker: &Asker) -> Resident {
        self.residents.of(&asker.id())
    }

    fn tasks(&self, asker: &Asker) -> TaskManager {
        self.resident(asker).tasks
    }

    /// Whether the conformance suite's own things are shown.
    fn has_fixtures(&self) -> bool {
        self.state.mcp_fixtures
    }
}

/// The request that a message came in with, over HTTP.
fn request(context: &RequestContext<RoleServer>) -> Option<&axum::http::request::Parts> {
    context.extensions.get()
}

impl ServerHandler for Agent {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .enable_completions()
            .enable_logging()
            .enable_tasks()
            .build();
        if let Some(resources) = &mut capabilities.resources {
            resources.subscribe = self.has_fixtures().then_some(true);
        }
        let mut server = Implementation::new("fractal", env!("CARGO_PKG_VERSION"));
        server.title = Some("fractal".to_owned());
        let mut config = ServerConfig::new(capabilities).with_instructions(INSTRUCTIONS);
        config.server_info = server;
        config
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Answer<ListToolsResult> {
        let asker = self.asker(&context)?;
        let mut list = calls::list(&self.state, &asker).await?;
        if self.has_fixtures() {
            list.tools.extend(fixtures::tools());
        }
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Answer<CallToolResponse> {
        let asker = self.asker(&context)?;
        if self.has_fixtures() {
            let arguments = request.arguments.clone().unwrap_or_default();
            if let Some(answer) = fixtures::call(&request.name, &arguments, &context).await {
                return answer;
            }
        }
        calls::call(self, asker, request, context).await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Answer<ListResourcesResult> {
        let asker = self.asker(&context)?;
        let mut list = resources::list(&self.state, &asker).await?;
        if self.has_fixtures() {
            list.resources.extend(fixtures::resources());
        }
        Ok(list)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Answer<ListResourceTemplatesResult> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Answer<ReadResourceResponse> {
        let asker = self.asker(&context)?;
        if self.has_fixtures()
            && let Some(fixture) = fixtures::read(&request.uri)
        {
            return Ok(fixture.into());
        }
        resources::read(&self.state, &asker, &request.uri).await.map(Into::into)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Answer<ListPromptsResult> {
        let mut all = prompts::list();
        if self.has_fixtures() {
            all.extend(fixtures::prompts());
        }
        Ok(ListPromptsResult::with_all_items(all))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Answer<GetPromptResponse> {
        let arguments = request.arguments.unwrap_or_default();
        let fixture = || fixtures::prompt(&request.name, &arguments);
        let fixture = || self.has_fixtures().then(fixture).flatten();
        let missing = || ErrorData::invalid_params("there is no such prompt", None);
        prompts::get(&request.name).or_else(fixture).map(Into::into).ok_or_else(missing)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Answer<CompleteResult> {
        let asker = self.asker(&context)?;
        Ok(CompleteResult::new(prompts::complete(&self.state, &asker, &request).await?))
    }

    /// Nothing is told but what calls answer; a level is taken all the same.
    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Answer<()> {
        Ok(())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Answer<()> {
        match self.has_fixtures() {
            true => Ok(()),
            false => Err(ErrorData::invalid_request("files are not watched", None)),
        }
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Answer<()> {
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Answer<GetTaskResult> {
        let tasks = self.tasks(&self.asker(&context)?);
        Ok(GetTaskResult::new(tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Answer<()> {
        let tasks = self.tasks(&self.asker(&context)?);
        tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Answer<()> {
        let tasks = self.tasks(&self.asker(&context)?);
        tasks.cancel_task(&request.task_id)
    }
}

/// What is behind `/mcp`. Names and origins were checked before.
pub fn router(state: Shared) -> fractal::Result<Router<Shared>> {
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(crate::extract::BODY_BYTES_MAX);
    let residents = Arc::<Residents>::default();
    let agent = move || Ok(Agent::new(state.clone(), None, residents.clone()));
    let sessions = session::Sessions::new()?;
    let service = StreamableHttpService::<Agent, LocalSessionManager>::new(
        agent,
        sessions.open.clone(),
        config,
    );
    let keep = from_fn_with_state(sessions, session::keep);
    Ok(Router::new().route_service("/mcp", service).layer(keep))
}

/// Serves one agent on standard input and output until it goes.
pub async fn serve_stdio(state: Shared, asker: Asker) -> fractal::Result<()> {
    let agent = Agent::new(state, Some(asker), Arc::default());
    let broken = |error: String| fractal::Error::internal(format!("MCP broke off: {error}"));
    let serving =
        agent.serve(rmcp::transport::stdio()).await.map_err(|error| broken(error.to_string()))?;
    serving.waiting().await.map_err(|error| broken(error.to_string()))?;
    Ok(())
}
