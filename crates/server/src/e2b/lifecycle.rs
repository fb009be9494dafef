//! Beginning, pausing, going on and ending, as steps that others interleave
//! with: each looks at the book again and moves on only from where it stands.

use super::book::{Entry, OnEnd, Phase, now_ms};
use super::not_found;
use crate::asker::Asker;
use crate::failure::Failure;
use crate::state::Shared;
use crate::work::{self, Need};
use fractal::model::{Id, Policy, Verb};
use fractal::{Action, Code, Error, Reply};

/// Writes a sandbox down and starts the program inside. One that does not
/// start is gone again.
pub async fn begin(state: &Shared, asker: &Asker, entry: Entry) -> Result<(), Failure> {
    let id = entry.id;
    let begun = match state.e2b.book.put(entry) {
        Ok(()) => wake(state, asker, id).await,
        Err(failure) => Err(failure),
    };
    if let Err(failure) = begun {
        let _ = kill(state, asker, id).await;
        return Err(failure);
    }
    Ok(())
}

/// Makes sure that the program inside is there.
pub async fn wake(
    state: &Shared,
    asker: &Asker,
    id: Id,
) -> Result<std::sync::Arc<super::agents::Agent>, Failure> {
    let entry = state.e2b.book.get(id).ok_or_else(|| not_found(&super::book::public(id)))?;
    let (shared, asker) = (state.clone(), asker.clone());
    let waking =
        tokio::task::spawn_blocking(move || shared.e2b.agents.at(&shared, &asker, id, &entry.envs));
    waking.await.map_err(|_| Error::internal("starting the sandbox broke off"))?
}

/// A child of a sandbox that sees what it sees now.
pub async fn fork_of(state: &Shared, asker: &Asker, id: Id) -> Result<Id, Failure> {
    let action = Action::Fork {
        sandbox: Some(id.to_string()),
        name: None,
        ask: Policy::default(),
        network: None,
        ttl_ms: None,
        world: None,
    };
    let need = Need::making(Verb::Fork);
    let job =
        move |engine: &fractal::Engine, caller: &fractal::Caller| engine.apply(caller, action);
    match work::replying(state, asker, need, job).await? {
        Reply::Sandbox(made) => Ok(made.id),
        _ => Err(Error::internal("the engine gave an answer of another verb").into()),
    }
}

/// Stops all that runs in a sandbox and keeps its files. False if it was
/// paused already.
pub async fn pause(state: &Shared, id: Id) -> Result<bool, Failure> {
    let moved = state.e2b.book.change(id, |entry| {
        let was_running = entry.phase == Phase::Running;
        if was_running {
            entry.phase = Phase::Paused;
        }
        Ok(was_running)
    })?;
    let Some(was_running) = moved else { return Err(not_found(&super::book::public(id)).into()) };
    end_program(state, id).await;
    Ok(was_running)
}

/// Goes on with a sandbox for at least so long. True if it was paused.
pub async fn resume(state: &Shared, asker: &Asker, id: Id, time: u64) -> Result<bool, Failure> {
    let gone = || not_found(&super::book::public(id));
    let before = state.e2b.book.get(id).ok_or_else(gone)?;
    let moved = state.e2b.book.change(id, |entry| {
        let ends = now_ms().saturating_add(time);
        let was_paused = entry.phase == Phase::Paused;
        if was_paused {
            entry.phase = Phase::Running;
            entry.ends_ms = ends;
        } else {
            entry.ends_ms = entry.ends_ms.max(ends);
        }
        Ok(was_paused)
    });
    let was_paused = moved?.ok_or_else(gone)?;
    if let Err(failure) = wake(state, asker, id).await {
        if was_paused {
            state.e2b.book.put(before)?;
        }
        return Err(failure);
    }
    Ok(was_paused)
}

/// Ends a sandbox and forgets it.
pub async fn kill(state: &Shared, asker: &Asker, id: Id) -> Result<(), Failure> {
    end_program(state, id).await;
    let action = Action::Drop { sandboxes: vec![id.to_string()], force: true };
    match work::apply(state, asker, action).await {
        Err(failure) if failure.error().code != Code::NotFound => return Err(failure),
        _ => {}
    }
    state.e2b.book.forget(id);
    // It may have been woken once more in between.
    end_program(state, id).await;
    Ok(())
}

async fn end_program(state: &Shared, id: Id) {
    let shared = state.clone();
    let _ = tokio::task::spawn_blocking(move || shared.e2b.agents.end(id)).await;
}

/// Ends or pauses those whose time is over, as the owner.
pub async fn end_due(state: &Shared) {
    let now = now_ms();
    let due = state.e2b.book.all().into_iter().filter(|entry| entry.is_due(now));
    for entry in due.collect::<Vec<_>>() {
        let asker = Asker::new(None, state.project.directory.clone());
        let done = match entry.on_end {
            OnEnd::Pause => pause(state, entry.id).await.map(|_| ()),
            OnEnd::Kill => kill(state, &asker, entry.id).await,
        };
        if let Err(failure) = done {
            tracing::warn!(sandbox = %entry.id, "not ended in time: {}", failure.error());
        }
    }
}
