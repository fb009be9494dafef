//! Snapshots: sandboxes that never run, from which others start.

use super::asked::Named;
use super::book::{Entry, Phase, now_ms, private};
use super::control::{USUAL, find, read, seen};
use super::filter::{self, Wanted};
use super::{Refused, lifecycle, not_found, whole};
use crate::asker::Asker;
use crate::extract::Query;
use crate::failure::Failure;
use crate::state::Shared;
use crate::work;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use fractal::model::{Id, Verb};
use fractal::{Caller, Code, Engine, Error, Template};
use serde_json::{Value, json};

const NAME_BYTES_MAX: usize = 128;
/// A snapshot waits for as long as somebody wants it.
const FOR_EVER: u64 = u64::MAX;

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/sandboxes/{sandbox}/snapshots", post(take))
        .route("/snapshots", get(list))
        .route("/templates/{template}", delete(forget))
        .route("/templates/aliases/{template}", get(exists))
}

fn told(entry: &Entry) -> Value {
    json!({ "snapshotID": entry.public_id(), "names": entry.names })
}

async fn take(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let asked: Named = read(&body)?;
    let name = asked.name.filter(|name| !name.is_empty());
    if name.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX || private(name).is_some()) {
        let why = format!("a snapshot's name has at most {NAME_BYTES_MAX} bytes and is no id");
        return Err(Error::invalid(why).into());
    }
    let entry = find(&state, &asker, &sandbox, Verb::Snapshot).await?;
    if entry.phase == Phase::Snapshot {
        return Err(not_found(&sandbox).into());
    }
    let shared = state.clone();
    let taken = whole(async move { take_one(&shared, &asker, entry, name).await }).await?;
    Ok((StatusCode::CREATED, axum::Json(told(&taken))).into_response())
}

async fn take_one(
    state: &Shared,
    asker: &Asker,
    entry: Entry,
    name: Option<String>,
) -> Result<Entry, Failure> {
    let id = lifecycle::fork_of(state, asker, entry.id, None).await?;
    let snapshot = Entry {
        id,
        phase: Phase::Snapshot,
        of: Some(entry.id),
        names: name.into_iter().collect(),
        started_ms: now_ms(),
        ends_ms: FOR_EVER,
        once: None,
        ..entry
    };
    if let Err(failure) = state.e2b.book.put(snapshot.clone()) {
        let _ = lifecycle::kill(state, asker, id).await;
        return Err(failure);
    }
    Ok(snapshot)
}

async fn list(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refused> {
    let seen = seen(&state, &asker).await?;
    let of = wanted.sandbox_id.as_deref().map(|text| private(text).ok_or_else(|| not_found(text)));
    let of = of.transpose()?;
    let fits = |entry: &Entry| {
        entry.phase == Phase::Snapshot
            && seen.contains(&entry.id)
            && (of.is_none() || entry.of == of)
            && wanted.name.as_deref().is_none_or(|name| is_called(entry, name))
    };
    let all: Vec<Entry> = state.e2b.book.all().into_iter().filter(fits).collect();
    let (page, next) = filter::cut(all, &wanted, |entry| entry.started_ms)?;
    Ok(filter::answer(page.iter().map(told).collect(), next))
}

fn is_called(entry: &Entry, name: &str) -> bool {
    entry.public_id() == name || entry.names.iter().any(|other| other == name)
}

async fn forget(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(template): Path<String>,
) -> Result<StatusCode, Refused> {
    let none = || Error::not_found(format!("snapshot {} was not found", template.escape_debug()));
    let id = named(&state, &asker, &template).await?.ok_or_else(none)?;
    lifecycle::kill(&state, &asker, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whether a sandbox could start from what is called so.
async fn exists(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(template): Path<String>,
) -> Result<axum::Json<Value>, Refused> {
    let name = template.clone();
    let is_ours = move |_: &Engine, caller: &Caller| match Template::find(caller, &name) {
        Ok(_) => Ok(true),
        Err(error) if error.code == Code::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    if USUAL.contains(&template.as_str())
        || named(&state, &asker, &template).await?.is_some()
        || work::blocking(&state, &asker, Verb::List, is_ours).await?
    {
        return Ok(axum::Json(json!({ "templateID": template, "public": false })));
    }
    Err(Error::not_found(format!("template {} was not found", template.escape_debug())).into())
}

/// The snapshot of this id or name that whoever asks can see; the newest, if
/// there are several.
pub async fn named(state: &Shared, asker: &Asker, text: &str) -> Result<Option<Id>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let fits = |entry: &Entry| entry.phase == Phase::Snapshot && is_called(entry, text);
    let mut found: Vec<Entry> = state.e2b.book.all().into_iter().filter(fits).collect();
    found.sort_by_key(|entry| std::cmp::Reverse(entry.started_ms));
    for entry in found {
        match find(state, asker, &entry.public_id(), Verb::Fork).await {
            Ok(entry) => return Ok(Some(entry.id)),
            Err(failure) if failure.error().code == Code::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(None)
}
