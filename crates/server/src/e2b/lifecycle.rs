//! Beginning, pausing, going on and ending, as steps that others interleave
//! with: each looks at the book again and moves on only from where it stands.

use super::book::{Entry, OnEnd, Phase, now_ms, public};
use super::{ENVD, not_found};
use crate::agents::{Agent, Program, Slot};
use crate::asker::Asker;
use crate::failure::Failure;
use crate::state::Shared;
use crate::work::{self, Need};
use fractal::model::{Id, Key, Network, Policy, Verb};
use fractal::{Action, Code, Error, Reply};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Sandboxes that are ended at once.
const ENDING_MAX: usize = 64;
/// When it is tried again to end one that could not be.
const AGAIN: Duration = Duration::from_secs(5);

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

/// Whoever has the token of a sandbox may do what its maker may.
fn slot(sandbox: Id) -> Slot {
    Slot { sandbox, key: None }
}

/// Makes sure that the program inside is there.
pub async fn wake(state: &Shared, asker: &Asker, id: Id) -> Result<Arc<Agent>, Failure> {
    let shared = state.clone();
    let program = move || {
        let entry = shared.e2b.book.get(id).filter(|entry| entry.phase == Phase::Running);
        let mut env = entry.ok_or_else(|| not_found(&public(id)))?.envs;
        env.insert("E2B_SANDBOX".to_owned(), "true".to_owned());
        env.insert("E2B_SANDBOX_ID".to_owned(), public(id));
        Ok(Program { word: ENVD, env })
    };
    state.e2b.agents.at(state, asker, slot(id), program).await
}

/// A child of a sandbox that sees what it sees now, and reaches what it does
/// unless less is asked for.
pub async fn fork_of(
    state: &Shared,
    asker: &Asker,
    id: Id,
    network: Option<Network>,
) -> Result<Id, Failure> {
    let action = Action::Fork {
        sandbox: Some(id.to_string()),
        name: None,
        ask: Policy::default(),
        network,
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
        entry.phase = Phase::Paused;
        Ok(was_running)
    });
    // Also when the disk is too full to say so: nothing may go on for ever.
    end_program(state, id).await;
    moved?.ok_or_else(|| not_found(&public(id)).into())
}

/// Goes on with a sandbox for at least so long. True if it was paused.
pub async fn resume(state: &Shared, asker: &Asker, id: Id, time: u64) -> Result<bool, Failure> {
    let gone = || not_found(&public(id));
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
            // If it is there: somebody may have killed it meanwhile.
            state.e2b.book.change(id, |entry| {
                entry.phase = Phase::Paused;
                Ok(())
            })?;
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
    state.e2b.agents.forget(slot(id));
    Ok(())
}

async fn end_program(state: &Shared, id: Id) {
    let shared = state.clone();
    let _ = tokio::task::spawn_blocking(move || shared.e2b.agents.end(slot(id))).await;
}

/// Ends or pauses those whose time is over, as the owner: each by itself, so
/// that nobody's end waits for somebody else's.
pub fn end_due(state: &Shared, at_work: &Ending) {
    let now = now_ms();
    let is_due = |entry: &Entry| entry.is_due(now);
    for entry in state.e2b.book.all().into_iter().filter(is_due) {
        let Some(turn) = at_work.begin(entry.id) else { continue };
        let state = state.clone();
        tokio::spawn(async move {
            let _turn = turn;
            // Somebody may have given it more time since.
            if !state.e2b.book.get(entry.id).is_some_and(|entry| entry.is_due(now)) {
                return;
            }
            let asker = Asker::new(None, state.project.directory.clone());
            let done = match entry.on_end {
                OnEnd::Pause => pause(&state, entry.id).await.map(|_| ()),
                OnEnd::Kill => kill(&state, &asker, entry.id).await,
            };
            if let Err(failure) = done {
                tracing::warn!(sandbox = %entry.id, "not ended in time: {}", failure.error());
                // Not again at once: what is in the way stays for a while.
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
}

/// Ends the programs in sandboxes whose keys have ended. Their files stay.
pub async fn end_of_keys(state: &Shared) {
    let mut keys: BTreeMap<Id, (Key, Vec<Id>)> = BTreeMap::new();
    for entry in state.e2b.book.all() {
        if let (Phase::Running, Some(key)) = (entry.phase, entry.key) {
            keys.entry(key.id).or_insert_with(|| (key, Vec::new())).1.push(entry.id);
        }
    }
    let shared = state.clone();
    let looking = tokio::task::spawn_blocking(move || {
        for (key, sandboxes) in keys.into_values() {
            if shared.engine.has_ended(&key).unwrap_or(false) {
                sandboxes.into_iter().for_each(|sandbox| shared.e2b.agents.end(slot(sandbox)));
            }
        }
    });
    let _ = looking.await;
}

/// Sandboxes that are being ended.
#[derive(Clone, Default)]
pub struct Ending(Arc<Mutex<HashSet<Id>>>);

/// One of them, until dropped.
struct Turn(Ending, Id);

impl Ending {
    fn begin(&self, id: Id) -> Option<Turn> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (all.len() < ENDING_MAX && all.insert(id)).then(|| Turn(self.clone(), id))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}
