//! What this door remembers of those who work here: which sandbox a name stood
//! for, by whose key, and when it was last used. All of it may be lost: a sandbox
//! is found again by its name.

use super::place::Place;
use crate::agents::{Agents, Slot};
use crate::asker::Asker;
use crate::failure::Failure;
use crate::state::Shared;
use fractal::model::{Id, Key};
use fractal::{Code, Error};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Names that are remembered.
const NAMES_MAX: usize = 4096;
/// What nobody asks for so long ends; its files stay.
const IDLE: Duration = Duration::from_secs(3600);
/// How often it is looked whose time has come, or whose key has ended.
const LOOK: Duration = Duration::from_secs(2);

/// Who asks, and the name they use.
type Known = (String, String);

/// What this door knows.
#[derive(Default)]
pub struct Desk {
    pub agents: Agents,
    used: Mutex<HashMap<Known, Arc<Used>>>,
}

/// A name in use. Every request that is under way holds it.
pub struct Used {
    /// The sandbox that it stood for when it was last found; held by who looks
    /// for it or makes it.
    id: tokio::sync::Mutex<Option<Id>>,
    /// The same, for those who only look.
    known: Mutex<(Option<Id>, Instant)>,
    key: Option<Key>,
}

impl Used {
    fn known(&self) -> MutexGuard<'_, (Option<Id>, Instant)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox, made if there was none. `None` when it is not there any more
    /// although somebody has worked in it: they must learn of it, once.
    pub async fn find(
        &self,
        state: &Shared,
        asker: &Asker,
        place: &Place,
    ) -> Result<Option<Id>, Failure> {
        let mut before = self.id.lock().await;
        let found = place.find(state, asker).await?;
        if before.is_some() && *before != found {
            *before = None;
            self.known().0 = None;
            return Ok(None);
        }
        let id = match found {
            Some(id) => id,
            None => place.make(state, asker).await?,
        };
        *before = Some(id);
        *self.known() = (Some(id), Instant::now());
        Ok(Some(id))
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, HashMap<Known, Arc<Used>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a name stands for, to be held as long as it is worked with.
    pub fn enter(&self, asker: &Asker, place: &Place) -> Result<Arc<Used>, Failure> {
        let mut all = self.lock();
        let known = (place.of.clone(), place.name.clone());
        if let Some(used) = all.get(&known) {
            return Ok(used.clone());
        }
        if all.len() >= NAMES_MAX {
            let error = Error::new(
                Code::Busy,
                format!("{NAMES_MAX} sandboxes are being worked in, which are all there may be"),
            );
            return Err(Failure::busy(error.hint("close some"), 5));
        }
        let used = Used {
            id: tokio::sync::Mutex::default(),
            known: Mutex::new((None, Instant::now())),
            key: asker.key.clone(),
        };
        Ok(all.entry(known).or_insert_with(|| Arc::new(used)).clone())
    }

    /// Nobody works there any more.
    pub fn forget(&self, place: &Place) {
        self.lock().remove(&(place.of.clone(), place.name.clone()));
    }

    /// Ends what one key runs in a sandbox. Blocks.
    pub fn end(&self, slot: Slot) {
        self.agents.end(slot);
        self.agents.forget(slot);
    }

    /// Ends every program inside; what they did stays.
    pub fn close(&self) {
        self.agents.end_all();
    }

    /// Takes out those that nobody has asked for in a long time.
    fn take_idle(&self) -> Vec<Slot> {
        self.take(|used| Arc::strong_count(used) == 1 && used.known().1.elapsed() >= IDLE)
    }

    /// Takes out those of a key.
    fn take_of(&self, key: Id) -> Vec<Slot> {
        self.take(|used| used.key.as_ref().is_some_and(|own| own.id == key))
    }

    fn take(&self, is_meant: impl Fn(&Arc<Used>) -> bool) -> Vec<Slot> {
        let mut taken = Vec::new();
        self.lock().retain(|_, used| {
            let is_meant = is_meant(used);
            if is_meant && let Some(sandbox) = used.known().0 {
                taken.push(Slot { sandbox, key: used.key.as_ref().map(|key| key.id) });
            }
            !is_meant
        });
        taken
    }

    fn keys(&self) -> HashMap<Id, Key> {
        let all = self.lock();
        all.values().filter_map(|used| used.key.clone()).map(|key| (key.id, key)).collect()
    }
}

/// Ends what nobody works in any more, and what was begun by keys that have
/// ended, as long as the server lives.
pub fn keep_time(state: &Shared) {
    let weak = Arc::downgrade(state);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(state) = weak.upgrade().filter(|state| !state.is_ending()) else { return };
            let looking = tokio::task::spawn_blocking(move || look(&state));
            let _ = looking.await;
        }
    });
}

fn look(state: &Shared) {
    let desk = &state.swerex;
    let mut ended = desk.take_idle();
    for key in desk.keys().into_values() {
        if state.engine.has_ended(&key).unwrap_or(false) {
            ended.extend(desk.take_of(key.id));
        }
    }
    ended.into_iter().for_each(|slot| desk.end(slot));
}
