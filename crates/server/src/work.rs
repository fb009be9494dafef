//! Carrying out what was asked: a place is waited for, the engine works on a
//! thread of its own, and what came out is counted.

use crate::admission;
use crate::asker::Asker;
use crate::failure::Failure;
use crate::metrics;
use crate::otlp::{Attribute, Open};
use crate::state::Shared;
use fractal::model::{Run, ToolReply, Verb};
use fractal::{Action, Caller, Cancel, Engine, Error, Reply, RunIo};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Carries out an action.
pub async fn apply(state: &Shared, asker: &Asker, mut action: Action) -> Result<Reply, Failure> {
    bound_jobs(&mut action, state.admission.at_once());
    let need = Need {
        verb: action.verb(),
        told: action.verb(),
        makes: admission::makes(&action),
        needs_settings: action.needs_settings(),
    };
    // Behind a door nobody else would come back for a run, and it takes of
    // what others behind the door share.
    if let (Action::Run(run), Some(_)) = (&action, &state.inside) {
        return attended(state, asker, run.clone()).await;
    }
    let tool = match &action {
        Action::Tool(call) => Some(call.tool.clone()),
        _ => None,
    };
    let asked = metrics::Asked::by(&action);
    let shared = state.clone();
    let job = move |engine: &Engine, caller: &Caller| {
        let done = engine.apply(caller, action);
        if let (Some(asked), Err(error)) = (asked, &done) {
            shared.metrics.refused(asked, error.code);
        }
        // One call that fails has no reply to read its kind from.
        if let (Some(name), Err(error)) = (tool, &done) {
            let tool = engine.tools_for(caller).0.get(&name);
            shared.metrics.call(tool.map(|tool| tool.kind.name()), Some(error.code));
        }
        done
    };
    replying(state, asker, need, job).await
}

/// One request is one place. What it does side by side is bounded as requests
/// are, or asking for it would be a way past the bound.
fn bound_jobs(action: &mut Action, most: usize) {
    let jobs = match action {
        Action::Calls(asked) => &mut asked.jobs,
        Action::Try(asked) => &mut asked.jobs,
        _ => return,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    match jobs {
        Some(asked) => *asked = (*asked).min(most),
        None if cores as u64 > u64::from(most) => *jobs = Some(most),
        None => {}
    }
}

/// A run that ends when whoever asked for it goes away.
pub async fn attended(state: &Shared, asker: &Asker, run: Run) -> Result<Reply, Failure> {
    let lost = |error| Error::internal(format!("cannot follow the caller: {error}"));
    // Dropped with this future, which goes with its connection.
    let (_asked, watched) = UnixStream::pair().map_err(lost)?;
    let need = Need::run(run.sandbox.is_none());
    let job = move |engine: &Engine, caller: &Caller| {
        let io = RunIo::told(run.stdin.as_deref()).ending_with(watched.into());
        Ok(Reply::Run(Box::new(engine.run(caller, run, io)?)))
    };
    replying(state, asker, need, job).await
}

/// What a call needs room for.
#[derive(Clone, Copy)]
pub struct Need {
    verb: Verb,
    /// Under which verb it is told of.
    told: Verb,
    /// Whether a sandbox may be made.
    makes: bool,
    /// Whether it acts on settings, and so not without them.
    needs_settings: bool,
}

impl From<Verb> for Need {
    fn from(verb: Verb) -> Need {
        Need { verb, told: verb, makes: false, needs_settings: verb.needs_settings() }
    }
}

impl Need {
    /// For a sandbox that is made by this verb. Its template and bounds are
    /// settings, whatever the verb does without.
    pub fn making(verb: Verb) -> Need {
        Need { verb, told: verb, makes: true, needs_settings: true }
    }

    /// For a run that makes its sandbox, or works in one.
    pub fn run(makes: bool) -> Need {
        Need { makes, ..Need::from(Verb::Run) }
    }
}

/// Carries out what has a reply; that is counted, and told in its span.
pub async fn replying(
    state: &Shared,
    asker: &Asker,
    need: impl Into<Need>,
    job: impl FnOnce(&Engine, &Caller) -> fractal::Result<Reply> + Send + 'static,
) -> Result<Reply, Failure> {
    let shared = state.clone();
    let need = need.into();
    let job = move |engine: &Engine, caller: &Caller| {
        let started = Instant::now();
        let reply = job(engine, caller)?;
        shared.metrics.reply(need.verb, &reply, started.elapsed());
        Ok(reply)
    };
    carry_out(state, asker, need, job, told).await
}

/// Carries out a call of a tool. Tools may run programs, so it takes the
/// place of a run.
pub async fn calling(
    state: &Shared,
    asker: &Asker,
    job: impl FnOnce(&Engine, &Caller) -> fractal::Result<ToolReply> + Send + 'static,
) -> Result<ToolReply, Failure> {
    let shared = state.clone();
    let job = move |engine: &Engine, caller: &Caller| {
        let reply = job(engine, caller)?;
        shared.metrics.tool(&reply);
        Ok(reply)
    };
    let need = Need { told: Verb::Tool, ..Need::from(Verb::Run) };
    carry_out(state, asker, need, job, told_of_call).await
}

/// Calls the engine where it may block. A client that goes away stops what
/// only reads; anything else that has begun goes on, and its place is taken
/// until it ends.
pub async fn blocking<R: Send + 'static>(
    state: &Shared,
    asker: &Asker,
    need: impl Into<Need>,
    job: impl FnOnce(&Engine, &Caller) -> fractal::Result<R> + Send + 'static,
) -> Result<R, Failure> {
    carry_out(state, asker, need.into(), job, |_| Vec::new()).await
}

async fn carry_out<R: Send + 'static>(
    state: &Shared,
    asker: &Asker,
    need: Need,
    job: impl FnOnce(&Engine, &Caller) -> fractal::Result<R> + Send + 'static,
    told: fn(&R) -> Vec<Attribute>,
) -> Result<R, Failure> {
    if state.is_ending() {
        return Err(Failure::ending());
    }
    let Need { verb, told: name, makes, needs_settings } = need;
    let at_work = state.doorkeeper.gauges.work(asker)?;
    let place = state.admission.enter(asker, verb).await?;
    let (shared, asker) = (state.clone(), asker.clone());
    let waiting = Waiting::default();
    let cancel = waiting.0.clone();
    let task = tokio::task::spawn_blocking(move || {
        let _until_done = (at_work, place);
        // Here, so that it lasts as long as the work, whoever goes away.
        let span = begin(&shared, &asker, name);
        let work = || {
            let caller = Caller { cancel, ..asker.caller(&shared, needs_settings)? };
            if makes {
                shared.admission.room(&shared.engine)?;
            }
            job(&shared.engine, &caller)
        };
        let done = work().map_err(|error| asker.may_read(&shared, error));
        if let Some(span) = span {
            let error = done.as_ref().err().map(|error| error.code.name());
            span.end(done.as_ref().map_or_else(|_| Vec::new(), told), error);
        }
        done
    });
    let done = task.await.map_err(|_| Error::internal("the engine broke off"))?;
    Ok(done?)
}

/// Somebody who waits for an answer, until dropped: with the request, which
/// goes with its connection.
#[derive(Default)]
struct Waiting(Cancel);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Begins the span of what the engine does for a request.
fn begin(state: &Shared, asker: &Asker, verb: Verb) -> Option<Open> {
    // As it is written everywhere else.
    let name = format!("{verb:?}").to_lowercase();
    state.spans.as_ref()?.within(asker.span?, name.clone(), vec![("fractal.verb", name.into())])
}

/// What a reply says that may leave the machine: numbers, names of sandboxes,
/// words from closed lists.
fn told(reply: &Reply) -> Vec<Attribute> {
    match reply {
        Reply::Run(run) => vec![
            ("fractal.sandbox", run.sandbox.as_str().into()),
            ("fractal.outcome", metrics::word(run.outcome).into()),
            ("fractal.exit", run.exit.into()),
            ("fractal.wall_ms", run.usage.wall_ms.into()),
            ("fractal.cpu_ms", run.usage.cpu_ms.into()),
            ("fractal.memory_peak_bytes", run.usage.memory_peak_bytes.into()),
        ],
        Reply::Promote(promote) => {
            vec![("fractal.verdict", metrics::verdict(promote.verdict).into())]
        }
        Reply::Tool(call) => told_of_call(call),
        Reply::Sandbox(sandbox) => vec![("fractal.sandbox", sandbox.name.as_str().into())],
        _ => Vec::new(),
    }
}

fn told_of_call(call: &ToolReply) -> Vec<Attribute> {
    let outcome = call.error().map_or("ok", |error| error.code.name());
    let kind = call.kind.unwrap_or("unknown");
    vec![("fractal.tool_kind", kind.into()), ("fractal.outcome", outcome.into())]
}
