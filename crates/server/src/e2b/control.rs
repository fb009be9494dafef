//! What clients ask about sandboxes: making, looking, ending, timing.

use super::asked::{ForkAsked, New, Time, time_ms};
use super::book::{Entry, OnEnd, Phase, now_ms, private, public};
use super::filter::{self, Wanted};
use super::{ENVD_VERSION, Refused, lifecycle, not_found, once, snapshots, whole};
use crate::asker::Asker;
use crate::extract::Query;
use crate::failure::Failure;
use crate::state::Shared;
use crate::work::{self, Need};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use fractal::model::{Id, Network, Run, Verb};
use fractal::{Action, Caller, Code, Engine, Error, Reply};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::HashSet;

const FORKS_MAX: i64 = 20;
/// Names under which clients ask for what there is without asking.
pub const USUAL: [&str; 4] = ["", "base", "code-interpreter-v1", "code-interpreter-beta"];

pub fn routes() -> Router<Shared> {
    let router = Router::new()
        .route("/sandboxes", get(list).post(make))
        .route("/v2/sandboxes", get(list).post(make))
        .route("/sandboxes/{sandbox}", get(show).delete(kill))
        .route("/sandboxes/{sandbox}/timeout", post(set_time))
        .route("/sandboxes/{sandbox}/refreshes", post(set_time))
        .route("/sandboxes/{sandbox}/pause", post(pause))
        .route("/sandboxes/{sandbox}/fork", post(fork))
        .route("/sandboxes/{sandbox}/network", put(set_network))
        .route("/sandboxes/{sandbox}/metrics", get(metrics))
        .route("/sandboxes/{sandbox}/logs", get(logs))
        .route("/v2/sandboxes/{sandbox}/logs", get(logs));
    ["", "/v2"].into_iter().fold(router, |router, version| {
        router
            .route(&format!("{version}/sandboxes/{{sandbox}}/connect"), post(connect))
            .route(&format!("{version}/sandboxes/{{sandbox}}/resume"), post(resume))
    })
}

/// The JSON of a body; none is an empty object.
pub fn read<T: DeserializeOwned + Default>(bytes: &Bytes) -> Result<T, Refused> {
    if bytes.is_empty() {
        return Ok(T::default());
    }
    // Through a map, since a list would be taken for fields in their order.
    serde_json::from_slice::<serde_json::Map<String, Value>>(bytes)
        .and_then(|fields| T::deserialize(Value::Object(fields)))
        .map_err(|error| Error::invalid(format!("the body does not read: {error}")).into())
}

/// What a client needs to work in a sandbox.
pub fn told(state: &Shared, entry: &Entry) -> Result<Value, Failure> {
    let token = state.e2b.tokens.of(entry.id)?;
    Ok(json!({
        "sandboxID": entry.public_id(),
        "templateID": entry.template,
        "alias": entry.template,
        "clientID": "fractal",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": token,
        "domain": null,
        "trafficAccessToken": token,
    }))
}

/// The entry of a sandbox that whoever asks may see.
pub async fn find(state: &Shared, asker: &Asker, text: &str, verb: Verb) -> Result<Entry, Failure> {
    let id = private(text).ok_or_else(|| not_found(text))?;
    let entry = state.e2b.book.get(id).ok_or_else(|| not_found(text))?;
    let job =
        move |engine: &Engine, caller: &Caller| engine.require_reach(caller, verb, &id.to_string());
    let reached = work::blocking(state, asker, Verb::List, job).await;
    match reached {
        Ok(()) => Ok(entry),
        // In our own words, whatever the reason: it says nothing.
        Err(failure) if failure.error().code == Code::NotFound => Err(not_found(text).into()),
        Err(failure) => Err(failure),
    }
}

/// The same for one that runs or is paused.
async fn find_sandbox(
    state: &Shared,
    asker: &Asker,
    text: &str,
    verb: Verb,
) -> Result<Entry, Failure> {
    let entry = find(state, asker, text, verb).await?;
    match entry.phase {
        Phase::Snapshot => Err(not_found(text).into()),
        _ => Ok(entry),
    }
}

async fn make(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refused> {
    let new: New = read(&body)?;
    new.check()?;
    let once = once::name(&asker, &headers)?;
    let shared = state.clone();
    let made = whole(async move { make_one(&shared, &asker, new, once).await }).await?;
    Ok((StatusCode::CREATED, axum::Json(told(&state, &made)?)).into_response())
}

async fn make_one(
    state: &Shared,
    asker: &Asker,
    new: New,
    once: Option<String>,
) -> Result<Entry, Failure> {
    let _turn = once.clone().map(|name| state.e2b.making.begin(name)).transpose()?;
    if let Some(made) = once.as_deref().and_then(|name| state.e2b.book.made_by(name)) {
        return Ok(made);
    }
    let time = time_ms(new.timeout)?;
    let (network, was_said) = new.network()?;
    let id = match snapshots::named(state, asker, &new.template_id).await? {
        Some(snapshot) => {
            let network = was_said.then_some(network);
            lifecycle::fork_of(state, asker, snapshot, network).await?
        }
        None => make_fresh(state, asker, &new.template_id, network, was_said).await?,
    };
    let now = now_ms();
    let template = match new.template_id.as_str() {
        "" => "base".to_owned(),
        name => name.to_owned(),
    };
    let entry = Entry {
        id,
        template,
        metadata: new.metadata.unwrap_or_default(),
        envs: new.env_vars.unwrap_or_default(),
        started_ms: now,
        ends_ms: now.saturating_add(time),
        on_end: if new.auto_pause == Some(true) { OnEnd::Pause } else { OnEnd::Kill },
        auto_resume: new.auto_resume.is_some_and(|asked| asked.is_on()),
        phase: Phase::Running,
        of: None,
        names: Vec::new(),
        allow_internet: new.allow_internet_access,
        once,
        key: asker.key.clone(),
    };
    lifecycle::begin(state, asker, entry.clone()).await?;
    Ok(entry)
}

/// A sandbox on top of reality, or of one of our templates. Who does not say
/// what it should reach gets what the key may reach of it.
async fn make_fresh(
    state: &Shared,
    asker: &Asker,
    template: &str,
    network: Network,
    was_said: bool,
) -> Result<Id, Failure> {
    let template = (!USUAL.contains(&template)).then(|| template.to_owned());
    let run = Run {
        command: vec!["true".to_owned()],
        template,
        network: Some(network),
        world: Some(fractal::model::World::Native),
        ..Run::default()
    };
    let job = move |engine: &Engine, caller: &Caller| {
        let made = engine.make(caller, &run);
        match made {
            Err(error) if error.code == Code::Denied && !was_said => {
                engine.make(caller, &Run { network: Some(Network::None), ..run.clone() })
            }
            made => made,
        }
    };
    Ok(work::blocking(state, asker, Need::making(Verb::Fork), job).await?.id)
}

async fn show(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
) -> Result<axum::Json<Value>, Refused> {
    let entry = find_sandbox(&state, &asker, &sandbox, Verb::Show).await?;
    let mut told = filter::listed(&entry);
    // Who may only look gets nothing to work with.
    if find(&state, &asker, &sandbox, Verb::Run).await.is_ok() {
        told["envdAccessToken"] = json!(state.e2b.tokens.of(entry.id)?);
    }
    told["domain"] = Value::Null;
    if let Some(allowed) = entry.allow_internet {
        told["allowInternetAccess"] = json!(allowed);
    }
    let on_end = if entry.on_end == OnEnd::Pause { "pause" } else { "kill" };
    told["lifecycle"] = json!({ "autoResume": entry.auto_resume, "onTimeout": on_end });
    Ok(axum::Json(told))
}

async fn list(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refused> {
    let seen = seen(&state, &asker).await?;
    let all = state.e2b.book.all().into_iter().filter(|entry| seen.contains(&entry.id));
    let (page, next) = filter::page(all.collect(), &wanted)?;
    Ok(filter::answer(page.iter().map(filter::listed).collect(), next))
}

/// Every sandbox that whoever asks can see.
pub async fn seen(state: &Shared, asker: &Asker) -> Result<HashSet<Id>, Failure> {
    let reply = work::apply(state, asker, Action::List).await?;
    let Reply::List(list) = reply else {
        return Err(Error::internal("the engine gave an answer of another verb").into());
    };
    Ok(list.sandboxes.iter().map(|sandbox| sandbox.id).collect())
}

async fn kill(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
) -> Result<StatusCode, Refused> {
    let entry = find_sandbox(&state, &asker, &sandbox, Verb::Drop).await?;
    lifecycle::kill(&state, &asker, entry.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn set_time(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Refused> {
    let asked: Time = read(&body)?;
    let time = time_ms(asked.timeout.or(asked.duration))?;
    let entry = find_sandbox(&state, &asker, &sandbox, Verb::Run).await?;
    let changed = state.e2b.book.change(entry.id, |entry| {
        if entry.phase != Phase::Running {
            return Err(not_found(&sandbox).into());
        }
        entry.ends_ms = now_ms().saturating_add(time);
        Ok(())
    });
    changed?.ok_or_else(|| not_found(&sandbox))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn pause(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
) -> Result<StatusCode, Refused> {
    let entry = find_sandbox(&state, &asker, &sandbox, Verb::Run).await?;
    match lifecycle::pause(&state, entry.id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => {
            let error = Error::new(Code::Conflict, format!("sandbox {sandbox} is paused already"));
            Err(Failure::with_status(StatusCode::CONFLICT, error).into())
        }
    }
}

/// Goes on with a sandbox, whether it was paused or not. One that runs gets
/// more time and never less.
async fn connect(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let asked: Time = read(&body)?;
    let time = time_ms(asked.timeout)?;
    let entry = find_sandbox(&state, &asker, &sandbox, Verb::Run).await?;
    let was_paused = lifecycle::resume(&state, &asker, entry.id, time).await?;
    let status = if was_paused { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(told(&state, &entry)?)).into_response())
}

async fn resume(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let asked: Time = read(&body)?;
    let time = time_ms(asked.timeout)?;
    let entry = find_sandbox(&state, &asker, &sandbox, Verb::Run).await?;
    if !lifecycle::resume(&state, &asker, entry.id, time).await? {
        let error = Error::new(Code::Conflict, format!("sandbox {sandbox} is running already"));
        return Err(Failure::with_status(StatusCode::CONFLICT, error).into());
    }
    Ok((StatusCode::CREATED, axum::Json(told(&state, &entry)?)).into_response())
}

/// Children that see what it sees now, each by itself.
async fn fork(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let asked: ForkAsked = read(&body)?;
    let time = time_ms(asked.timeout)?;
    let count = asked.count.unwrap_or(1);
    if !(1..=FORKS_MAX).contains(&count) {
        return Err(Error::invalid(format!("`count` is 1 to {FORKS_MAX}")).into());
    }
    let entry = find_sandbox(&state, &asker, &sandbox, Verb::Fork).await?;
    let mut made = Vec::new();
    for _ in 0..count {
        let (shared, asker, entry) = (state.clone(), asker.clone(), entry.clone());
        let forking = async move { fork_one(&shared, &asker, &entry, time).await };
        made.push(match whole(forking).await {
            Ok(child) => json!({ "sandbox": told(&state, &child)? }),
            Err(failure) => {
                let error = failure.error();
                json!({ "error": { "code": error.code.http_status(), "message": error.message } })
            }
        });
    }
    Ok((StatusCode::CREATED, axum::Json(made)).into_response())
}

async fn fork_one(
    state: &Shared,
    asker: &Asker,
    entry: &Entry,
    time: u64,
) -> Result<Entry, Failure> {
    let id = lifecycle::fork_of(state, asker, entry.id, None).await?;
    let now = now_ms();
    let child = Entry {
        id,
        started_ms: now,
        ends_ms: now.saturating_add(time),
        phase: Phase::Running,
        once: None,
        key: asker.key.clone(),
        ..entry.clone()
    };
    lifecycle::begin(state, asker, child.clone()).await?;
    Ok(child)
}

/// A sandbox is never widened, and who is inside has counted on what it has.
async fn set_network(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
) -> Result<StatusCode, Refused> {
    find_sandbox(&state, &asker, &sandbox, Verb::Run).await?;
    let error = Error::new(Code::Unsupported, "the network of a sandbox is set when it is made");
    Err(error.hint("make another one with `network`").into())
}

/// What it uses now, as the program inside sees it.
async fn metrics(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
) -> Result<axum::Json<Value>, Refused> {
    let entry = find_sandbox(&state, &asker, &sandbox, Verb::Show).await?;
    if entry.phase != Phase::Running {
        return Ok(axum::Json(json!([])));
    }
    let told = super::relay::ask(&state, &entry, "/metrics").await?;
    Ok(axum::Json(json!([told])))
}

/// The records of a sandbox, oldest first.
async fn logs(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
) -> Result<axum::Json<Value>, Refused> {
    let entry = find_sandbox(&state, &asker, &sandbox, Verb::Log).await?;
    let action = Action::Log {
        sandbox: Some(entry.id.to_string()),
        limit: Some(1000),
        here: false,
        whole: false,
    };
    let Reply::Log(log) = work::apply(&state, &asker, action).await? else {
        return Err(Error::internal("the engine gave an answer of another verb").into());
    };
    let lines = log.records.iter().rev().map(|record| {
        let body = &record.body;
        let failed = body.detail["error"].is_object();
        json!({
            "timestamp": filter::moment(body.time_ms),
            "message": format!("{} by {}", body.action, body.who),
            "level": if failed { "error" } else { "info" },
            "fields": { "sandbox": public(entry.id), "action": body.action },
        })
    });
    Ok(axum::Json(json!({ "logs": lines.collect::<Vec<_>>() })))
}
