//! Carrying out what was asked: a place is waited for, the engine works on a
//! thread of its own, and what came out is counted.

use crate::admission;
use crate::asker::Asker;
use crate::failure::Failure;
use crate::state::Shared;
use fractal::model::Verb;
use fractal::{Action, Caller, Engine, Error, Reply};
use std::time::Instant;

/// Carries out an action.
pub async fn apply(state: &Shared, asker: &Asker, action: Action) -> Result<Reply, Failure> {
    let need = Need {
        verb: action.verb(),
        makes: admission::makes(&action),
        needs_settings: action.needs_settings(),
    };
    let metrics = state.clone();
    let job = move |engine: &Engine, caller: &Caller| {
        let started = Instant::now();
        let reply = engine.apply(caller, action)?;
        metrics.metrics.reply(&reply, started.elapsed());
        Ok(reply)
    };
    blocking(state, asker, need, job).await
}

/// What a call needs room for.
#[derive(Clone, Copy)]
pub struct Need {
    verb: Verb,
    /// Whether a sandbox may be made.
    makes: bool,
    /// Whether it acts on settings, and so not without them.
    needs_settings: bool,
}

impl From<Verb> for Need {
    fn from(verb: Verb) -> Need {
        Need { verb, makes: false, needs_settings: verb.needs_settings() }
    }
}

impl Need {
    /// For a sandbox in which nothing runs yet.
    pub fn new_sandbox() -> Need {
        Need { verb: Verb::Fork, makes: true, needs_settings: true }
    }

    /// For a run that makes its sandbox, or works in one.
    pub fn run(makes: bool) -> Need {
        Need { makes, ..Need::from(Verb::Run) }
    }

    /// For an archive that becomes a sandbox.
    pub fn import() -> Need {
        Need { verb: Verb::Import, makes: true, needs_settings: true }
    }
}

/// Calls the engine where it may block. A client that goes away does not stop
/// what has begun; its place is taken until it ends.
pub async fn blocking<R: Send + 'static>(
    state: &Shared,
    asker: &Asker,
    need: impl Into<Need>,
    job: impl FnOnce(&Engine, &Caller) -> fractal::Result<R> + Send + 'static,
) -> Result<R, Failure> {
    if state.is_ending() {
        return Err(Failure::ending());
    }
    let Need { verb, makes, needs_settings } = need.into();
    let at_work = state.doorkeeper.gauges.work(asker)?;
    let place = state.admission.enter(verb).await?;
    let (shared, asker) = (state.clone(), asker.clone());
    let task = tokio::task::spawn_blocking(move || {
        let _until_done = (at_work, place);
        let caller = asker.caller(&shared, needs_settings)?;
        if makes {
            shared.admission.room(&shared.engine)?;
        }
        job(&shared.engine, &caller)
    });
    let done = task.await.map_err(|_| Error::internal("the engine broke off"))?;
    Ok(done?)
}
