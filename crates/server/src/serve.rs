//! From settings to a server, and to its end.

use crate::admission::{Admission, Budget};
use crate::asker::{self, Asker, Authenticate, Doorkeeper};
use crate::handed;
use crate::limits::Gauges;
use crate::listen::{self, Listeners};
use crate::otlp::{self, Collector, Spans};
use crate::state::{Project, Shared, State};
use crate::tls::{Tls, TlsFiles};
use crate::{arrival, e2b, idempotent, inside, mcp, measure, routes, swerex};
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
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
    /// The socket for runs whose callers hand over their descriptors.
    pub run_socket: Option<PathBuf>,
    /// Ports for everybody who has a key.
    pub listen: Vec<SocketAddr>,
    /// What ports prove themselves with; without, they speak plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Further names by which the port may be called.
    pub hosts: BTreeSet<String>,
    /// Sites whose pages may ask.
    pub origins: BTreeSet<String>,
    /// What the server as a whole may use.
    pub budget: Budget,
    /// How long running work may go on after the server was told to stop.
    pub drain: Duration,
    /// Who is told what the server does.
    pub collector: Option<Collector>,
    /// Further ways to know who asks.
    pub providers: Vec<Arc<dyn Authenticate>>,
    /// Show agents what the protocol's conformance suite looks for; for tests.
    pub mcp_fixtures: bool,
}

impl Settings {
    /// For a directory, with nothing listened on.
    pub fn local(
        directory: PathBuf,
        environment: Vec<(OsString, OsString)>,
        user_file: Option<PathBuf>,
    ) -> Settings {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Settings {
            directory,
            environment,
            user_file,
            socket: None,
            run_socket: None,
            listen: Vec::new(),
            tls: None,
            hosts: BTreeSet::new(),
            origins: BTreeSet::new(),
            budget: Budget::for_cores(cores),
            drain: Duration::from_secs(30),
            collector: None,
            providers: Vec::new(),
            mcp_fixtures: false,
        }
    }
}

/// Serves one agent on standard input and output, by the Model Context
/// Protocol, as the owner or with a key.
pub fn serve_mcp(engine: Engine, settings: Settings, key: Option<&str>) -> Result<()> {
    let key = key.map(|secret| engine.authenticate(secret)).transpose()?;
    let asker = Asker::new(key, settings.directory.clone());
    let state = state(engine, settings, &[], None);
    let served = runtime()?.block_on(mcp::serve_stdio(state.clone(), asker));
    state.engine.end_servers();
    served
}

/// Serves until SIGTERM or SIGINT. Calls `ready` once with the addresses.
pub fn serve(engine: Engine, settings: Settings, ready: impl FnOnce(&[SocketAddr])) -> Result<()> {
    runtime()?.block_on(serve_on(engine, settings, ready))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("no threads to serve with: {error}")))
}

async fn serve_on(
    engine: Engine,
    mut settings: Settings,
    ready: impl FnOnce(&[SocketAddr]),
) -> Result<()> {
    let tls = settings.tls.clone().map(Tls::load).transpose()?;
    listen::raise_descriptors();
    engine.warm();
    let mut listeners = Listeners::open(settings.socket.as_deref(), &settings.listen).await?;
    let handed = settings.run_socket.as_deref().map(handed::Listener::open).transpose()?;
    let addresses = listeners.addresses();
    warn_of_plain_ports(&addresses, tls.is_some());
    listeners.tls = tls.map(Arc::new);
    let drain = settings.drain;
    let (spans, exporter) = settings.collector.take().map(otlp::prepare).unzip();
    let state = state(engine, settings, &addresses, spans);
    let (stop, stopped) = watch::channel(false);
    let asked_to_stop = stop_signal()?;
    let router = router(state.clone())?;
    measure::keep_measuring(&state);
    e2b::keep_time(&state);
    swerex::keep_time(&state);
    let exporting = exporter.map(|exporter| exporter.start(state.clone()));
    ready(&addresses);
    let running = handed.map(|handed| {
        let serving = handed.accept_all(state.clone(), stopped.clone());
        tokio::spawn(serving)
    });
    let serving = tokio::spawn(listen::accept_all(listeners, router, stopped));
    asked_to_stop.await;
    tracing::info!(active = state.admission.active(), "stopping");
    state.end();
    drain_work(&state, drain).await;
    // Connections end after the answer that they are waiting for.
    let _ = stop.send(true);
    let answered = async {
        let _ = serving.await;
        if let Some(running) = running {
            let _ = running.await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(5), answered).await;
    let ending = move || {
        state.e2b.close();
        state.swerex.close();
        state.engine.end_servers();
    };
    let _ = tokio::task::spawn_blocking(ending).await;
    // Last, so that it tells of everything that was answered.
    if let Some(exporting) = exporting {
        exporting.finish().await;
    }
    Ok(())
}

/// Keys and contents on a network that others can read.
fn warn_of_plain_ports(addresses: &[SocketAddr], is_safe: bool) {
    let open = addresses.iter().filter(|address| !is_safe && !address.ip().is_loopback());
    for address in open {
        tracing::warn!(
            "{address} speaks plain HTTP: put a proxy with TLS before it, or give              `--tls-cert` and `--tls-key`"
        );
    }
}

fn state(
    engine: Engine,
    settings: Settings,
    addresses: &[SocketAddr],
    spans: Option<Spans>,
) -> Shared {
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
    let admission = Admission::new(settings.budget);
    let engine = Arc::new(engine);
    inside::open_traced_doors(&engine, spans.clone());
    engine.keep_servers();
    let mut state = State::new(engine, project, doorkeeper, admission);
    state.mcp_fixtures = settings.mcp_fixtures;
    state.spans = spans;
    Arc::new(state)
}

/// Names are looked at first, then who asks; everybody may see `open`.
pub(crate) fn router(state: Shared) -> Result<Router> {
    let known = routes::known().router;
    let known = known
        .merge(mcp::router(state.clone())?)
        .layer(from_fn_with_state(state.clone(), idempotent::once))
        .layer(from_fn_with_state(state.clone(), asker::identify));
    let all = routes::open().router.merge(known);
    let all = match state.inside {
        // Behind a door there are sandboxes of one kind only.
        Some(_) => all,
        None => all.merge(e2b::router(state.clone())).merge(swerex::router(state.clone())),
    };
    Ok(all
        .fallback(routes::nowhere)
        .layer(from_fn_with_state(state.clone(), e2b::divert))
        .layer(from_fn_with_state(state.clone(), asker::check_names))
        .layer(from_fn(arrival::let_in))
        .layer(from_fn_with_state(state.clone(), routes::count))
        .with_state(state))
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
