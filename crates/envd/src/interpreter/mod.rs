//! Code that is run piece by piece and shares its names: contexts, each a
//! Python process of the sandbox that runs [`KERNEL`].
//!
//! Who goes away while code runs has interrupted it; the context lives on.

mod kernel;

use crate::Shared;
use crate::connect::{Code, Failure};
use crate::files::Refused;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State as Here};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::StreamExt;
use kernel::Kernel;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

/// Contexts at once.
const CONTEXTS_MAX: usize = 64;
const PYTHON: &str = "python";
/// The context of those who name none.
const USUAL: &str = "default-python";

/// One context; its process starts with its first piece of code.
struct Context {
    id: String,
    cwd: String,
    kernel: Arc<Mutex<Option<Kernel>>>,
}

/// All of them.
#[derive(Default)]
pub struct Contexts {
    all: Mutex<BTreeMap<String, Arc<Context>>>,
    made: std::sync::atomic::AtomicU64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<BTreeMap<String, String>>,
    cwd: Option<String>,
}

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/execute", post(execute))
        .route("/contexts", get(list).post(make))
        .route("/contexts/{context}", axum::routing::delete(remove))
        .route("/contexts/{context}/restart", post(restart))
}

impl Context {
    fn told(&self) -> Value {
        json!({ "id": self.id, "language": PYTHON, "cwd": self.cwd })
    }
}

impl Contexts {
    async fn find(&self, id: &str) -> Result<Arc<Context>, Failure> {
        let gone = || Failure::not_found(format!("context {} was not found", id.escape_debug()));
        self.all.lock().await.get(id).cloned().ok_or_else(gone)
    }

    async fn add(&self, id: String, cwd: String) -> Result<Arc<Context>, Failure> {
        let mut all = self.all.lock().await;
        if let Some(there) = all.get(&id) {
            return Ok(there.clone());
        }
        if all.len() >= CONTEXTS_MAX {
            let why = format!("there are {CONTEXTS_MAX} contexts already: remove some");
            return Err(Failure::new(Code::Precondition, why));
        }
        let context = Arc::new(Context { id: id.clone(), cwd, kernel: Arc::default() });
        all.insert(id, context.clone());
        Ok(context)
    }
}

fn check_language(asked: &Asked) -> Result<(), Failure> {
    match asked.language.as_deref() {
        None | Some("" | PYTHON | "python3") => Ok(()),
        Some(other) => {
            let other = other.escape_debug();
            Err(Failure::invalid(format!("code in `{other}` is not run here: use python")))
        }
    }
}

async fn execute(Here(state): Here<Shared>, body: Bytes) -> Result<Response, Refused> {
    let asked: Asked = crate::connect::read(&body)?;
    check_language(&asked)?;
    let context = match asked.context_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => state.contexts.find(id).await?,
        None => {
            let home = state.users.find(None)?.home.to_string_lossy().into_owned();
            state.contexts.add(USUAL.to_owned(), home).await?
        }
    };
    let (send, lines) = mpsc::channel::<Bytes>(16);
    let request = json!({ "code": asked.code, "env": asked.env_vars.unwrap_or_default() });
    tokio::spawn(async move {
        let mut kernel = context.kernel.lock().await;
        kernel::carry_out(&state, &context.cwd, &mut kernel, &request, &send).await;
    });
    let next = |mut lines: mpsc::Receiver<Bytes>| async move {
        let line = lines.recv().await?;
        Some((line, lines))
    };
    let lines = futures_util::stream::unfold(lines, next).map(Ok::<_, Infallible>);
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

async fn list(Here(state): Here<Shared>) -> axum::Json<Value> {
    let all = state.contexts.all.lock().await;
    axum::Json(Value::Array(all.values().map(|context| context.told()).collect()))
}

async fn make(Here(state): Here<Shared>, body: Bytes) -> Result<axum::Json<Value>, Refused> {
    use std::sync::atomic::Ordering;
    let asked: Asked = crate::connect::read(&body)?;
    check_language(&asked)?;
    let user = state.users.find(None)?;
    let cwd = user.path(asked.cwd.as_deref().unwrap_or("~"))?;
    if !cwd.is_dir() {
        let why = format!("cwd '{}' does not exist", cwd.display());
        return Err(Failure::invalid(why).into());
    }
    let number = state.contexts.made.fetch_add(1, Ordering::Relaxed);
    let cwd = cwd.to_string_lossy().into_owned();
    let context = state.contexts.add(format!("python-{number}"), cwd).await?;
    Ok(axum::Json(context.told()))
}

async fn remove(
    Here(state): Here<Shared>,
    Path(context): Path<String>,
) -> Result<StatusCode, Refused> {
    let found = state.contexts.find(&context).await?;
    state.contexts.all.lock().await.remove(&context);
    kernel::end(&found.kernel).await;
    Ok(StatusCode::NO_CONTENT)
}

async fn restart(
    Here(state): Here<Shared>,
    Path(context): Path<String>,
) -> Result<StatusCode, Refused> {
    let found = state.contexts.find(&context).await?;
    kernel::end(&found.kernel).await;
    Ok(StatusCode::NO_CONTENT)
}
