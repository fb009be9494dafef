//! From settings to a server, and to its end.

use crate::admission::{Admission, Budget};
use crate::asker::{self, Authenticate, Doorkeeper};
use crate::limits::Gauges;
use crate::listen::{self, Listeners};
use crate::state::{Project, Shared, State};
use crate::{idempotent, openapi, routes};
use axum::Router;
use axum::middleware::from_fn_with_state;
use fractal::{Engine, Error, Result};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Everything that is decided before a server starts.
pub struct Settings {
    /// The directory whose clones are handed out.
    pub directory: PathBuf,
    /// The environment of which runs get a filtered part.
    pub environment: Vec<(OsString, OsString)>,
    /// The user's own settings.
    pub user_file: Option<PathBuf>,
    /// The socket for programs of the same user.
    pub socket: Option<PathBuf>,
    /// Ports for everybody who has a key.
    pub listen: Vec<SocketAddr>,
    /// Further names by which the port may be called.
    pub hosts: BTreeSet<String>,
    /// Sites whose pages may ask.
    pub origins: BTreeSet<String>,
    /// What the server as a whole may use.
    pub budget: Budget,
    /// How long running work may go on after the server was told to stop.
    pub drain: Duration,
    /// Further ways to know who asks.
    pub providers: Vec<Arc<dyn Authenticate>>,
}

/// Serves until SIGTERM or SIGINT. Calls `ready` once with the addresses.
pub fn serve(engine: Engine, settings: Settings, ready: impl FnOnce(&[SocketAddr])) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("no threads to serve with: {error}")))?;
    runtime.block_on(serve_on(engine, settings, ready))
}

async fn serve_on(
    engine: Engine,
    settings: Settings,
    ready: impl FnOnce(&[SocketAddr]),
) -> Result<()> {
    let listeners = Listeners::open(settings.socket.as_deref(), &settings.listen).await?;
    let addresses = listeners.addresses();
    let drain = settings.drain;
    let state = state(engine, settings, &addresses);
    let (stop, stopped) = watch::channel(false);
    let asked_to_stop = stop_signal()?;
    ready(&addresses);
    let serving = tokio::spawn(listen::accept_all(listeners, router(state.clone()), stopped));
    asked_to_stop.await;
    tracing::info!(active = state.admission.active(), "stopping");
    state.end();
    drain_work(&state, drain).await;
    // Connections end after the answer that they are waiting for.
    let _ = stop.send(true);
    let _ = tokio::time::timeout(Duration::from_secs(5), serving).await;
    Ok(())
}

fn state(engine: Engine, settings: Settings, addresses: &[SocketAddr]) -> Shared {
    let mut hosts = settings.hosts;
    hosts.extend(addresses.iter().map(|address| address.ip().to_string()));
    if addresses.iter().any(|address| address.ip().is_loopback()) {
        hosts.insert("localhost".to_owned());
    }
    let doorkeeper = Doorkeeper {
        hosts,
        origins: settings.origins,
        providers: settings.providers,
        gauges: Gauges::default(),
    };
    let project = Project {
        directory: settings.directory,
        environment: settings.environment,
        user_file: settings.user_file,
    };
    let document = openapi::document(&routes::all().operations).to_string();
    let admission = Admission::new(settings.budget);
    Arc::new(State::new(Arc::new(engine), project, doorkeeper, admission, document))
}

/// Names are looked at first, then who asks; everybody may see `open`.
fn router(state: Shared) -> Router {
    let known = routes::known().router;
    let known = known
        .layer(from_fn_with_state(state.clone(), idempotent::once))
        .layer(from_fn_with_state(state.clone(), asker::identify));
    let all = routes::open().router.merge(known).fallback(routes::nowhere);
    all.layer(from_fn_with_state(state.clone(), asker::check_names))
        .layer(from_fn_with_state(state.clone(), routes::count))
        .with_state(state)
}

/// Lets work finish; what does not in time is stopped and recorded so.
async fn drain_work(state: &Shared, drain: Duration) {
    let until = tokio::time::Instant::now() + drain;
    while state.admission.active() > 0 && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if state.admission.active() == 0 {
        return;
    }
    let shared = state.clone();
    let _ = tokio::task::spawn_blocking(move || stop_runs(&shared)).await;
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    while state.admission.active() > 0 && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn stop_runs(state: &Shared) {
    let owner = fractal::Caller::owner(&state.project.directory);
    let Ok(fractal::Reply::List(list)) = state.engine.apply(&owner, fractal::Action::List) else {
        return;
    };
    for sandbox in list.sandboxes.iter().filter(|sandbox| sandbox.state == "running") {
        if let Err(error) = state.engine.stop(&owner, &sandbox.id.to_string()) {
            tracing::warn!(sandbox = %sandbox.name, "not stopped: {error}");
        }
    }
}

fn stop_signal() -> Result<impl Future<Output = ()>> {
    let cannot = |error| Error::internal(format!("cannot wait for signals: {error}"));
    let mut term = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => (),
            _ = interrupt.recv() => (),
        }
    })
}
