//! Doors of runs: the same interface, for the program in a sandbox.
//!
//! The engine makes the key and the bounds; here they get a socket that was
//! made inside, a router, and a thread that lives as long as the program. What
//! the kernel says of who is at the other end counts for nothing: in a rootless
//! sandbox that is our own user. Only the door's own key opens it.

use crate::admission::{Admission, Budget};
use crate::asker::Doorkeeper;
use crate::limits::Gauges;
use crate::otlp::Spans;
use crate::state::{Project, Shared, State};
use crate::{listen, serve};
use axum::Router;
use fractal::{Engine, Error, Grant, OpenDoor, Result};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Heavy verbs at once behind one door.
const AT_ONCE: usize = 16;
const WAITING: usize = 64;
/// Bytes of one file or archive.
const BODY_BYTES: u64 = 64 << 20;
/// How long answers may take once nothing runs behind the door any more.
const CLOSING: Duration = Duration::from_secs(5);

/// Has runs of this engine that ask for a door get one.
pub fn open_doors(engine: &Arc<Engine>) {
    open_traced_doors(engine, None);
}

/// The same for a server, which tells its collector what happens behind them.
pub(crate) fn open_traced_doors(engine: &Arc<Engine>, spans: Option<Spans>) {
    // The engine holds this, so this must not hold the engine.
    let engine_of = Arc::downgrade(engine);
    engine.set_doors(Arc::new(move |grant| {
        let engine = engine_of.upgrade();
        let engine = engine.ok_or_else(|| Error::internal("the engine is gone"))?;
        prepare(engine, grant, spans.clone())
    }));
}

/// All that can fail, before the program starts.
fn prepare(engine: Arc<Engine>, grant: Grant, spans: Option<Spans>) -> Result<OpenDoor> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("no thread to serve a door with: {error}")))?;
    let state = state(engine, grant.clone(), spans);
    let router = serve::router(state.clone())?;
    Ok(Box::new(move |listener| Box::new(Served::start(runtime, state, router, grant, listener))))
}

fn state(engine: Arc<Engine>, grant: Grant, spans: Option<Spans>) -> Shared {
    let doorkeeper = Doorkeeper {
        hosts: BTreeSet::new(),
        origins: BTreeSet::new(),
        providers: Vec::new(),
        gauges: Gauges::default(),
    };
    let project =
        Project { directory: grant.directory.clone(), environment: Vec::new(), user_file: None };
    let budget = Budget {
        at_once: AT_ONCE,
        waiting: WAITING,
        body_bytes: BODY_BYTES,
        ..Budget::for_cores(1)
    };
    let mut state = State::new(engine, project, doorkeeper, Admission::new(budget));
    state.inside = Some(grant);
    state.spans = spans;
    Arc::new(state)
}

/// A door that is served until this is dropped; then nothing runs behind it.
struct Served {
    state: Shared,
    grant: Grant,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start(
        runtime: Runtime,
        state: Shared,
        router: Router,
        grant: Grant,
        listener: OwnedFd,
    ) -> Served {
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::spawn(move || {
            let listener = UnixListener::from(listener);
            let serving = async {
                let ready = listener.set_nonblocking(true);
                match ready.and_then(|()| tokio::net::UnixListener::from_std(listener)) {
                    Ok(listener) => listen::accept_inside(listener, router, stopped, CLOSING).await,
                    // Who connects finds nobody, and says so.
                    Err(error) => tracing::warn!("a door is not served: {error}"),
                }
            };
            runtime.block_on(serving);
            runtime.shutdown_timeout(CLOSING);
        });
        Served { state, grant, stop, thread: Some(thread) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.state.end();
        self.grant.close(&self.state.engine);
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
