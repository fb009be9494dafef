//! Files of a sandbox and whole sandboxes, by their content: what `cp`,
//! `export` and `import` do for those who may name paths of the host.

use crate::api::{Answer, Api, Operation};
use crate::asker::Asker;
use crate::body::{self, Bounded};
use crate::extract::{Path, Query};
use crate::failure::Failure;
use crate::idempotent;
use crate::state::Shared;
use crate::work::{self, Need};
use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use fractal::model::{FileList, FileReply, SandboxInfo, Verb, decode_percent};
use fractal::{Caller, Engine, Error};
use schemars::JsonSchema;
use serde::Deserialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Where archives are sent to.
pub const IMPORT: &str = "/v1/import";
const FILE: &str = "/v1/sandboxes/{sandbox}/files/{*path}";
const PAGE: usize = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Directory {
    /// The directory, absolute or from the project's; the project by default.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    path: Option<String>,
    /// At most so many.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
    /// `next` of the page before.
    #[serde(default)]
    after: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Put {
    /// Make it a program.
    #[serde(default)]
    executable: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Delete {
    /// Also a directory, with all that is in it.
    #[serde(default)]
    recursive: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Exported {
    /// With all snapshots.
    #[serde(default)]
    history: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Named {
    /// The sandbox's name; the one in the archive, if it is free, by default.
    #[serde(default)]
    name: Option<String>,
}

pub fn routes(api: Api) -> Api {
    let api = api
        .with(
            Operation::get("/v1/sandboxes/{sandbox}/files", "listFiles")
                .says("What a directory of a sandbox holds.")
                .verb(Verb::Diff)
                .asks::<Directory>()
                .gives::<FileList>(),
            list,
        )
        .with(
            Operation::get(FILE, "getFile")
                .says("The content of a file; the path is from the project, or absolute.")
                .verb(Verb::Diff)
                .answers(Answer::Bytes),
            get,
        )
        .with(
            Operation::put(FILE, "putFile")
                .says("Make a file, or replace its content; missing directories are made.")
                .verb(Verb::Copy)
                .asks::<Put>()
                .takes_bytes()
                .gives::<FileReply>(),
            put,
        )
        .with(
            Operation::delete(FILE, "deleteFile")
                .says("Delete a file; of a link, the link itself.")
                .verb(Verb::Copy)
                .asks::<Delete>()
                .gives::<FileReply>(),
            delete,
        );
    archives(api)
}

fn archives(api: Api) -> Api {
    api.with(
        Operation::get("/v1/sandboxes/{sandbox}/export", "export")
            .says("All changes of a sandbox as one archive.")
            .verb(Verb::Export)
            .asks::<Exported>()
            .answers(Answer::Bytes),
        export,
    )
    .with(
        Operation::post(IMPORT, "import")
            .says("A new sandbox from such an archive.")
            .verb(Verb::Import)
            .asks::<Named>()
            .takes_bytes()
            .makes::<SandboxInfo>(),
        import,
    )
}

async fn list(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Query(asked): Query<Directory>,
) -> Result<Json<FileList>, Failure> {
    let limit = asked.limit.unwrap_or(PAGE);
    if limit == 0 || limit > PAGE {
        return Err(Error::invalid(format!("`limit` is 1 to {PAGE}")).into());
    }
    let path = PathBuf::from(asked.path.unwrap_or_else(|| ".".to_owned()));
    let job = move |engine: &Engine, caller: &Caller| {
        engine.list_files(caller, &sandbox, &path, asked.after.as_deref(), limit)
    };
    Ok(Json(work::blocking(&state, &asker, Verb::Diff, job).await?))
}

async fn get(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    uri: Uri,
) -> Result<Response, Failure> {
    let (sandbox, path) = typed(&uri)?;
    let job = move |engine: &Engine, caller: &Caller| engine.open_file(caller, &sandbox, &path);
    let opened = work::blocking(&state, &asker, Verb::Diff, job).await?;
    Ok(body::send(opened.file, opened.size_bytes, None))
}

async fn put(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(Put { executable }): Query<Put>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<FileReply>, Failure> {
    let (sandbox, path) = typed(&uri)?;
    let name = sandbox.clone();
    let allowed =
        move |engine: &Engine, caller: &Caller| engine.require_reach(caller, Verb::Copy, &name);
    work::blocking(&state, &asker, Verb::Diff, allowed).await?;
    let received = body::receive(&state, &asker, &headers, body).await?;
    let job = move |engine: &Engine, caller: &Caller| {
        engine.put_file(
            caller,
            &sandbox,
            &path,
            received.file.try_clone().map_err(lost)?,
            executable,
        )
    };
    Ok(Json(work::blocking(&state, &asker, Verb::Copy, job).await?))
}

async fn delete(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(Delete { recursive }): Query<Delete>,
    uri: Uri,
) -> Result<Json<FileReply>, Failure> {
    let (sandbox, path) = typed(&uri)?;
    let job = move |engine: &Engine, caller: &Caller| {
        engine.delete_file(caller, &sandbox, &path, recursive)
    };
    Ok(Json(work::blocking(&state, &asker, Verb::Copy, job).await?))
}

async fn export(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Path(sandbox): Path<String>,
    Query(Exported { history }): Query<Exported>,
) -> Result<Response, Failure> {
    let room = state.admission.body(&asker).await?;
    let most = state.admission.body_bytes();
    let file = body::nameless(&state, &asker).await?;
    let job = move |engine: &Engine, caller: &Caller| {
        let mut out = Bounded { inner: file, left: most };
        engine.export_into(caller, &sandbox, history, &mut out)?;
        let mut file = out.inner;
        let length = file.metadata().map_err(lost)?.len();
        std::io::Seek::rewind(&mut file).map_err(lost)?;
        Ok((file, length))
    };
    let (file, length) = work::blocking(&state, &asker, Verb::Export, job).await?;
    Ok(body::send(file, length, Some(room)))
}

async fn import(
    State(state): State<Shared>,
    Extension(asker): Extension<Asker>,
    Query(Named { name }): Query<Named>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<SandboxInfo>), Failure> {
    if headers.contains_key(idempotent::HEADER) {
        return Err(Error::invalid("an import takes no `Idempotency-Key`")
            .hint("name the sandbox with `?name=`: it is made once")
            .into());
    }
    let allowed = move |engine: &Engine, caller: &Caller| engine.require_importer(caller);
    work::blocking(&state, &asker, Verb::Diff, allowed).await?;
    let received = body::receive(&state, &asker, &headers, body).await?;
    let most = state.admission.body_bytes();
    let job = move |engine: &Engine, caller: &Caller| {
        let archive = received.file.try_clone().map_err(lost)?;
        engine.import_file(caller, archive, name.as_deref(), most)
    };
    let made = work::blocking(&state, &asker, Need::making(Verb::Import), job).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

fn lost(error: std::io::Error) -> Error {
    Error::internal(format!("a body was lost: {error}"))
}

/// The sandbox and the path as they were typed, read from the address itself:
/// a name of bytes that are no text is a name, too.
fn typed(uri: &Uri) -> Result<(String, PathBuf), Failure> {
    let broken = || Error::invalid("the address breaks off within a %, or is no text");
    let mut parts = uri.path().splitn(6, '/').skip(3);
    let mut next =
        || parts.next().and_then(|part| decode_percent(part.as_bytes())).ok_or_else(broken);
    let sandbox = String::from_utf8(next()?).map_err(|_| broken())?;
    next()?;
    Ok((sandbox, PathBuf::from(OsString::from_vec(next()?))))
}
