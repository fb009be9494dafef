//! What clients of a sandbox ask of it from inside: processes, files, watches
//! and connections to its ports, as E2B's clients speak of them; shells, programs
//! and files, as those of SWE-ReX do ([`rex`]).
//!
//! It is a program like any other in the sandbox, under the sandbox's fences,
//! and knows nothing of fractal: neither engine, keys nor host. Whoever started
//! it hands it connections over its standard input and is its only listener;
//! when that ends, so does it, and with it the run. Processes are its children,
//! so that they see and outlive each other as on a machine.

mod arrivals;
mod connect;
mod entries;
mod files;
mod filesystem;
mod interpreter;
mod metrics;
mod process;
pub mod rex;
mod users;
mod watch;

pub use arrivals::{Arrival, hand_over};
pub use process::terminal::TAKE_TERMINAL;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use std::io;
use std::sync::Arc;

/// What every request sees.
struct State {
    users: users::Users,
    processes: process::Table,
    watchers: watch::Watchers,
    contexts: interpreter::Contexts,
    /// Uploads that are being written: each has a thread for so long.
    uploads: tokio::sync::Semaphore,
}

type Shared = Arc<State>;

/// Serves whoever holds the other end of standard input, until it is closed.
pub fn serve() -> io::Result<()> {
    let users = users::Users::prepare();
    let state = Arc::new(State {
        users,
        processes: process::Table::default(),
        watchers: watch::Watchers::default(),
        contexts: interpreter::Contexts::default(),
        uploads: tokio::sync::Semaphore::new(files::UPLOADS_MAX),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(arrivals::take(router(state)))
}

/// Makes the terminal on standard input this process's own and becomes the
/// program: the part of a process on a terminal that only it can do.
pub fn take_terminal(words: Vec<std::ffi::OsString>) -> io::Error {
    process::terminal::take(words)
}

fn router(state: Shared) -> Router {
    let api = process::routes().merge(filesystem::routes()).merge(watch::routes());
    let api = api.merge(files::routes()).merge(interpreter::routes());
    api.route("/health", get(|| async { StatusCode::NO_CONTENT }))
        .route("/metrics", get(metrics::metrics))
        .fallback(connect::nowhere)
        .with_state(state)
}
