//! The journal as it grows.

use crate::api::{Answer, Api, Operation};
use crate::asker::{Asker, KEY_ENDED};
use crate::extract::Query;
use crate::failure::Failure;
use crate::state::Shared;
use crate::{stream, work};
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::response::sse::Event;
use fractal::model::Verb;
use fractal::{Action, Reply};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::mpsc;

/// How soon a record is told of. Other processes write records too, so there
/// is nothing to wait for but the database.
const LOOK: Duration = Duration::from_millis(200);
const AT_ONCE: u64 = 200;
const QUEUED: usize = 256;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct From {
    /// Records that follow this number; those from now on by default.
    #[serde(default)]
    after: Option<u64>,
}

pub fn routes(api: Api) -> Api {
    api.with(
        Operation::get("/v1/events", "events")
            .says("Every record as it is written; `id` is its number, to go on from.")
            .verb(Verb::Audit)
            .asks::<From>()
            .answers(Answer::Events),
        follow,
    )
}

async fn follow(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(from): Query<From>,
) -> Result<Response, Failure> {
    let mut after = match from.after {
        Some(after) => after,
        None => {
            let census = state.engine.census();
            census.map_err(|error| asker.may_read(&state, error))?.records
        }
    };
    // The first look decides whether this asker may.
    let mut records = look(&state, &asker, after).await?;
    let (events, queue) = mpsc::channel(QUEUED);
    tokio::spawn(async move {
        loop {
            for record in records {
                after = record.seq;
                let event = Event::default().id(after.to_string()).event("record");
                let Ok(event) = event.json_data(record) else { continue };
                if events.send(event).await.is_err() {
                    return;
                }
            }
            tokio::time::sleep(LOOK).await;
            if state.is_ending() || events.is_closed() {
                return;
            }
            match look(&state, &asker, after).await {
                Ok(found) => records = found,
                Err(_) => return,
            }
        }
    });
    Ok(stream::answer(queue, std::future::pending()))
}

async fn look(
    state: &Shared,
    asker: &Asker,
    after: u64,
) -> Result<Vec<fractal::model::Record>, Failure> {
    let action = Action::Audit {
        since_ms: None,
        until_ms: None,
        key: None,
        action: None,
        sandbox: None,
        denied: false,
        limit: Some(AT_ONCE),
        after: Some(after),
    };
    // Who has ended since they came in hears no more.
    if asker.has_ended(state).await {
        return Err(Failure::unknown_asker(KEY_ENDED));
    }
    match work::apply(state, asker, action).await? {
        Reply::Audit(audit) => Ok(audit.records),
        _ => Err(super::unexpected()),
    }
}
