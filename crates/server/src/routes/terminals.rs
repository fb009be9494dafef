//! Terminals in sandboxes that exist.

use crate::api::{Answer, Api, Operation};
use crate::asker::Asker;
use crate::extract::{Path, Query};
use crate::failure::Failure;
use crate::state::Shared;
use crate::{terminal, work};
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Extension, State, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::Response;
use fractal::model::{Run, Verb, World};
use fractal::{Caller, Engine, Error};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Bash where there is one.
const SHELL: &str = "if command -v bash >/dev/null; then exec bash; else exec sh; fi";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// A line for `sh`; a shell by default.
    #[serde(default)]
    command: Option<String>,
    /// Columns of the window; 80 by default.
    #[serde(default)]
    cols: Option<u16>,
    /// Rows of the window; 24 by default.
    #[serde(default)]
    rows: Option<u16>,
    /// Working directory inside; the sandbox's by default.
    #[serde(default)]
    cwd: Option<String>,
}

pub fn routes(api: Api) -> Api {
    api.with(
        Operation::get("/v1/sandboxes/{sandbox}/terminal", "terminal")
            .says("A program on a terminal in this sandbox, as a WebSocket.")
            .verb(Verb::Run)
            .asks::<Asked>()
            .answers(Answer::Socket),
        open,
    )
}

async fn open(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Query(asked): Query<Asked>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let name = sandbox.clone();
    let allowed =
        move |engine: &Engine, caller: &Caller| engine.require_reach(caller, Verb::Run, &name);
    work::blocking(&state, &asker, Verb::Diff, allowed).await?;
    let upgrade = upgrade.map_err(|why| {
        let error = Error::invalid(format!("a terminal is a WebSocket: {}", why.body_text()));
        Failure::with_status(
            StatusCode::UPGRADE_REQUIRED,
            error.hint("ask with a WebSocket client"),
        )
    })?;
    let size = (asked.cols.unwrap_or(80), asked.rows.unwrap_or(24));
    let command = asked.command.unwrap_or_else(|| SHELL.to_owned());
    let run = Run {
        command: vec!["sh".to_owned(), "-c".to_owned(), command],
        sandbox: Some(sandbox),
        cwd: asked.cwd,
        env: BTreeMap::from([("TERM".to_owned(), "xterm-256color".to_owned())]),
        // Scripts in memory have no terminal.
        world: Some(World::Native),
        ..Run::default()
    };
    let bounded = upgrade
        .max_message_size(terminal::MESSAGE_BYTES_MAX)
        .max_frame_size(terminal::MESSAGE_BYTES_MAX);
    Ok(bounded.on_upgrade(move |socket| terminal::attend(socket, state, asker, run, size)))
}
