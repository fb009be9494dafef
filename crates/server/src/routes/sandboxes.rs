//! Sandboxes: making, looking, forking, going back, dropping.

use super::{reply, unexpected};
use crate::api::{Answer, Api, Operation};
use crate::asker::Asker;
use crate::extract::{Json, Path, Query};
use crate::failure::Failure;
use crate::reply::{RunUsage, SandboxPage, UsageReply};
use crate::state::Shared;
use crate::work::{self, Need};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fractal::model::{
    BaseKind, DiffReply, LogReply, Network, Policy, Record, Run, SandboxInfo, ShowReply,
    SnapshotInfo, Verb, World,
};
use fractal::{Action, DiffFormat, Error, Reply};
use schemars::JsonSchema;
use serde::Deserialize;

const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;
const RUNS_MAX: u64 = 1000;

/// A new sandbox that stands on reality.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Make {
    /// Its name; one is found without.
    #[serde(default)]
    name: Option<String>,
    /// Its template; `clone` by default.
    #[serde(default)]
    template: Option<String>,
    /// What it may do, within what the key may.
    #[serde(default)]
    ask: Policy,
    /// What it may reach; nothing by default.
    #[serde(default)]
    network: Option<Network>,
    /// How long it may be forgotten before it expires.
    #[serde(default)]
    ttl_ms: Option<u64>,
    /// Whether it sees the project as it is or as it was.
    #[serde(default)]
    base: BaseKind,
    /// How runs in it happen.
    #[serde(default)]
    world: Option<World>,
}

/// A child that sees what its parent sees.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fork {
    /// The child's name; one is found without.
    #[serde(default)]
    name: Option<String>,
    /// What it may do, within what its parent may.
    #[serde(default)]
    ask: Policy,
    /// What it may reach, within what its parent may.
    #[serde(default)]
    network: Option<Network>,
    /// How long it may be forgotten before it expires.
    #[serde(default)]
    ttl_ms: Option<u64>,
    /// How runs in it happen.
    #[serde(default)]
    world: Option<World>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    /// Its name; one is found without.
    #[serde(default)]
    name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rollback {
    /// The snapshot to go back to.
    to: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Page {
    /// At most so many.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
    /// `next` of the page before.
    #[serde(default)]
    #[schemars(length(min = 26, max = 26), regex(pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"))]
    after: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Since {
    /// A snapshot of the sandbox to compare with; its base by default.
    #[serde(default)]
    since: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Force {
    /// Also when something runs in it or others stand on it.
    #[serde(default)]
    force: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Few {
    /// At most so many, newest first.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u64>,
}

pub fn routes(api: Api) -> Api {
    let api = api
        .with(
            Operation::get("/v1/sandboxes", "list")
                .says("All sandboxes that you can see, oldest first.")
                .verb(Verb::List)
                .asks::<Page>()
                .gives::<SandboxPage>(),
            list,
        )
        .with(
            Operation::post("/v1/sandboxes", "make")
                .says("A new sandbox on top of reality.")
                .verb(Verb::Run)
                .takes::<Make>()
                .makes::<SandboxInfo>(),
            make,
        )
        .with(
            Operation::get("/v1/sandboxes/{sandbox}", "show")
                .says("One sandbox, with its snapshots, mounts and how far reality moved.")
                .verb(Verb::Show)
                .gives::<ShowReply>(),
            show,
        )
        .with(
            Operation::delete("/v1/sandboxes/{sandbox}", "drop")
                .says("Forget a sandbox; its records stay.")
                .verb(Verb::Drop)
                .asks::<Force>()
                .gives::<Dropped>(),
            drop_one,
        )
        .with(
            Operation::post("/v1/sandboxes/{sandbox}/fork", "fork")
                .says("A child that sees exactly what its parent sees now.")
                .verb(Verb::Fork)
                .takes::<Fork>()
                .makes::<SandboxInfo>(),
            fork,
        );
    history(api)
}

/// What is asked about one sandbox's past.
fn history(api: Api) -> Api {
    api.with(
        Operation::post("/v1/sandboxes/{sandbox}/snapshot", "snapshot")
            .says("Seal what is there now under a name.")
            .verb(Verb::Snapshot)
            .takes::<Snapshot>()
            .makes::<SnapshotInfo>(),
        snapshot,
    )
    .with(
        Operation::post("/v1/sandboxes/{sandbox}/rollback", "rollback")
            .says("Go back to a snapshot.")
            .verb(Verb::Rollback)
            .takes::<Rollback>()
            .gives::<SandboxInfo>(),
        rollback,
    )
    .with(
        Operation::get("/v1/sandboxes/{sandbox}/diff", "diff")
            .says("What differs from its base, or from a snapshot.")
            .verb(Verb::Diff)
            .asks::<Since>()
            .gives::<DiffReply>(),
        diff,
    )
    .with(
        Operation::get("/v1/sandboxes/{sandbox}/patch", "patch")
            .says("The same as a patch for `git apply`.")
            .verb(Verb::Diff)
            .asks::<Since>()
            .answers(Answer::Text("text/x-diff")),
        patch,
    )
    .with(
        Operation::get("/v1/sandboxes/{sandbox}/log", "log")
            .says("What happened to it, newest first; also after it was dropped.")
            .verb(Verb::Log)
            .asks::<Few>()
            .gives::<LogReply>(),
        log,
    )
    .with(
        Operation::get("/v1/sandboxes/{sandbox}/usage", "usage")
            .says("What its runs have used, over time.")
            .verb(Verb::Log)
            .gives::<UsageReply>(),
        usage,
    )
}

/// What was dropped.
#[derive(serde::Serialize, JsonSchema)]
struct Dropped {
    #[allow(dead_code)]
    dropped: Vec<String>,
}

async fn list(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(page): Query<Page>,
) -> Result<axum::Json<SandboxPage>, Failure> {
    let limit = page.limit.unwrap_or(PAGE);
    if limit == 0 || limit > PAGE_MAX {
        return Err(Error::invalid(format!("`limit` is 1 to {PAGE_MAX}")).into());
    }
    let after = page.after.map(|after| fractal::model::Id::parse(&after)).transpose()?;
    let job = move |engine: &fractal::Engine, caller: &fractal::Caller| {
        engine.list_page(caller, after, limit)
    };
    let (sandboxes, next) = work::blocking(&state, &asker, Verb::List, job).await?;
    let next = next.map(|id| id.to_string());
    Ok(axum::Json(SandboxPage { sandboxes, next }))
}

/// A sandbox is what a run leaves, so one that does nothing makes it.
async fn make(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Json(asked): Json<Make>,
) -> Result<Response, Failure> {
    let run = Run {
        command: vec!["true".to_owned()],
        name: asked.name,
        template: asked.template,
        ask: asked.ask,
        network: asked.network,
        ttl_ms: asked.ttl_ms,
        base: asked.base,
        world: asked.world,
        ..Run::default()
    };
    let job = move |engine: &fractal::Engine, caller: &fractal::Caller| engine.make(caller, &run);
    let made = work::blocking(&state, &asker, Need::making(Verb::Fork), job).await?;
    Ok((StatusCode::CREATED, axum::Json(made)).into_response())
}

async fn show(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Show { sandbox: Some(sandbox) }).await
}

async fn drop_one(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Query(Force { force }): Query<Force>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Drop { sandboxes: vec![sandbox], force }).await
}

async fn fork(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Json(Fork { name, ask, network, ttl_ms, world }): Json<Fork>,
) -> Result<(StatusCode, Response), Failure> {
    let action = Action::Fork { sandbox: Some(sandbox), name, ask, network, ttl_ms, world };
    Ok((StatusCode::CREATED, reply(&state, &asker, action).await?))
}

async fn snapshot(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Json(Snapshot { name }): Json<Snapshot>,
) -> Result<(StatusCode, Response), Failure> {
    let action = Action::Snapshot { sandbox: Some(sandbox), name };
    Ok((StatusCode::CREATED, reply(&state, &asker, action).await?))
}

async fn rollback(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Json(Rollback { to }): Json<Rollback>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Rollback { sandbox: Some(sandbox), to }).await
}

async fn diff(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Query(Since { since }): Query<Since>,
) -> Result<Response, Failure> {
    reply(&state, &asker, Action::Diff { sandbox: Some(sandbox), since }).await
}

async fn patch(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Query(Since { since }): Query<Since>,
) -> Result<Response, Failure> {
    let room = state.admission.patch().await?;
    let job = move |engine: &fractal::Engine, caller: &fractal::Caller| {
        let _until_written = room;
        let mut out = Bounded::default();
        let form = DiffFormat::Patch;
        let told = engine.write_diff(caller, Some(&sandbox), since.as_deref(), form, &mut out)?;
        let mut text = left_out(&told.skipped);
        text.append(&mut out.0);
        Ok(text)
    };
    let text = work::blocking(&state, &asker, Verb::Diff, job).await?;
    let kind = [(axum::http::header::CONTENT_TYPE, "text/x-diff")];
    Ok((kind, text).into_response())
}

/// What a patch does not hold, in lines at its head that `git apply` passes over.
fn left_out(skipped: &[String]) -> Vec<u8> {
    let line = |path: &String| {
        format!("# left out, too large or unreadable: {}\n", path.escape_debug()).into_bytes()
    };
    skipped.iter().flat_map(line).collect()
}

/// A patch that is held in memory must end somewhere.
#[derive(Default)]
struct Bounded(Vec<u8>);

const PATCH_BYTES_MAX: usize = 64 << 20;

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > PATCH_BYTES_MAX {
            return Err(std::io::Error::other("the patch is longer than 64 MiB"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn log(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Query(Few { limit }): Query<Few>,
) -> Result<Response, Failure> {
    let limit = limit.map(|limit| limit.clamp(1, PAGE_MAX as u64));
    let action = Action::Log { sandbox: Some(sandbox), limit, here: false, whole: false };
    reply(&state, &asker, action).await
}

async fn usage(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
) -> Result<axum::Json<UsageReply>, Failure> {
    let action = Action::Log {
        sandbox: Some(sandbox.clone()),
        limit: Some(RUNS_MAX),
        here: false,
        whole: false,
    };
    let Reply::Log(log) = work::apply(&state, &asker, action).await? else {
        return Err(unexpected());
    };
    let runs = log.records.iter().rev().filter(|record| record.body.action == "run");
    let latest: Vec<RunUsage> = runs.map(run_usage).collect();
    let sum = |of: fn(&RunUsage) -> u64| latest.iter().map(of).fold(0, u64::saturating_add);
    Ok(axum::Json(UsageReply {
        sandbox,
        runs: latest.len() as u64,
        wall_ms: sum(|run| run.wall_ms),
        cpu_ms: sum(|run| run.cpu_ms),
        memory_peak_bytes: latest.iter().map(|run| run.memory_peak_bytes).max().unwrap_or(0),
        latest,
    }))
}

fn run_usage(record: &Record) -> RunUsage {
    let detail = &record.body.detail;
    let number = |name: &str| detail[name].as_u64().unwrap_or(0);
    RunUsage {
        time_ms: record.body.time_ms,
        outcome: serde_json::from_value(detail["outcome"].clone()).ok(),
        wall_ms: number("wall_ms"),
        cpu_ms: number("cpu_ms"),
        memory_peak_bytes: number("memory_peak_bytes"),
    }
}
