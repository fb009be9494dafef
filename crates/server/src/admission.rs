//! How much happens at once, and how much may exist.
//!
//! Heavy verbs (those that run programs or move whole trees) have places, and
//! a bounded number may wait for one. Who finds neither is told the numbers
//! and when to come again, before anything has happened.

use crate::asker::Asker;
use crate::failure::Failure;
use fractal::model::{SkunkVerb, Verb, format_bytes};
use fractal::{Action, Code, Engine, Error};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a request waits for a place before it is sent away.
const WAIT: Duration = Duration::from_secs(20);
/// Light verbs are short; this bounds threads, not work.
const LIGHT: usize = 32;
/// Those of one key: a copy of a large sandbox that runs takes its time, and
/// others go on looking meanwhile.
const LIGHT_OF_ONE: usize = 16;
/// Bodies that lie on disk at once, on their way in or out.
const BODIES: usize = 32;
/// Those of one key. Who sends slowly keeps a place for long, and must not keep
/// all of them.
const BODIES_OF_ONE: usize = 8;

/// Patches that are being written: each holds two files in memory, and all
/// that was written so far.
const PATCHES: usize = 4;

/// What the server as a whole may use.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Runs and other heavy verbs at once.
    pub at_once: usize,
    /// Requests that may wait for a place.
    pub waiting: usize,
    /// Sandboxes that may exist.
    pub sandboxes: u64,
    /// Bytes that layers may take.
    pub disk_bytes: Option<u64>,
    /// Bytes of a file or an archive that is sent, or of an archive that is
    /// fetched.
    pub body_bytes: u64,
    /// Memory of the machine that stays free.
    pub memory_free_bytes: u64,
}

impl Budget {
    /// For a machine with so many processors.
    pub fn for_cores(cores: usize) -> Budget {
        Budget {
            at_once: (cores * 4).max(8),
            waiting: 1000,
            sandboxes: 100_000,
            disk_bytes: None,
            body_bytes: 1 << 30,
            memory_free_bytes: 256 << 20,
        }
    }
}

/// The places and who waits for them.
pub struct Admission {
    budget: Budget,
    heavy: Arc<Semaphore>,
    light: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    bodies_of: Shares,
    light_of: Shares,
    patches: Arc<Semaphore>,
    waiting: AtomicUsize,
    active: Arc<AtomicUsize>,
    layer_bytes: Mutex<Option<u64>>,
}

/// What there is of that which is bounded.
#[derive(Clone, Copy)]
struct Used {
    /// `None` while there is room for more; nobody counts them then.
    sandboxes: Option<u64>,
    /// `None` while nobody has measured it.
    layer_bytes: Option<u64>,
    /// `None` where the machine does not tell.
    memory_free_bytes: Option<u64>,
}

/// How many places of one kind each key may have. The owner may have all.
struct Shares {
    most: usize,
    of: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Shares {
    fn new(most: usize) -> Shares {
        Shares { most, of: Mutex::default() }
    }

    /// A key's own places, which are there as long as somebody uses one.
    fn of(&self, asker: &Asker) -> Option<Arc<Semaphore>> {
        asker.key.as_ref()?;
        let mut all = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, places| places.strong_count() > 0);
        if let Some(places) = all.get(&asker.id()).and_then(Weak::upgrade) {
            return Some(places);
        }
        let places = Arc::new(Semaphore::new(self.most));
        all.insert(asker.id(), Arc::downgrade(&places));
        Some(places)
    }
}

/// A place, until dropped.
pub struct Place {
    _own: Option<OwnedSemaphorePermit>,
    _permit: OwnedSemaphorePermit,
    active: Arc<AtomicUsize>,
}

/// Room for a body on disk, until dropped.
pub struct Room {
    _own: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.active.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Admission {
    pub fn new(budget: Budget) -> Admission {
        Admission {
            heavy: Arc::new(Semaphore::new(budget.at_once)),
            light: Arc::new(Semaphore::new(LIGHT)),
            bodies: Arc::new(Semaphore::new(BODIES)),
            bodies_of: Shares::new(BODIES_OF_ONE),
            light_of: Shares::new(LIGHT_OF_ONE),
            patches: Arc::new(Semaphore::new(PATCHES)),
            waiting: AtomicUsize::new(0),
            active: Arc::default(),
            layer_bytes: Mutex::new(None),
            budget,
        }
    }

    /// Requests that are being carried out.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::SeqCst)
    }

    /// Requests that wait for a place.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Somebody measured all layers.
    pub fn measured(&self, bytes: u64) {
        *self.layer_bytes.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
    }

    /// What all layers took when they were last measured.
    pub fn layer_bytes(&self) -> Option<u64> {
        *self.layer_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn has_disk_bound(&self) -> bool {
        self.budget.disk_bytes.is_some()
    }

    /// Waits for a place for the verb.
    pub async fn enter(&self, asker: &Asker, verb: Verb) -> Result<Place, Failure> {
        let (own, permit) = match is_heavy(verb) {
            true => (None, self.place(&self.heavy).await?),
            false => self.shared(&self.light_of, &self.light, asker).await?,
        };
        self.active.fetch_add(1, Ordering::SeqCst);
        Ok(Place { _own: own, _permit: permit, active: self.active.clone() })
    }

    /// A key waits for a place of its own first, and keeps nobody else's place
    /// meanwhile.
    async fn shared(
        &self,
        shares: &Shares,
        places: &Arc<Semaphore>,
        asker: &Asker,
    ) -> Result<(Option<OwnedSemaphorePermit>, OwnedSemaphorePermit), Failure> {
        let own = match shares.of(asker) {
            Some(own) => Some(self.place(&own).await?),
            None => None,
        };
        Ok((own, self.place(places).await?))
    }

    /// Heavy requests at once.
    pub fn at_once(&self) -> usize {
        self.budget.at_once
    }

    /// How long a body may be that lies on disk on its way.
    pub fn body_bytes(&self) -> u64 {
        self.budget.body_bytes
    }

    /// Waits for room for such a body.
    pub async fn body(&self, asker: &Asker) -> Result<Room, Failure> {
        let (own, of_all) = self.shared(&self.bodies_of, &self.bodies, asker).await?;
        Ok(Room { _own: own, _of_all: of_all })
    }

    /// Waits until a patch may be written; it may for as long as this is held.
    pub async fn patch(&self) -> Result<OwnedSemaphorePermit, Failure> {
        self.place(&self.patches).await
    }

    async fn place(&self, places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Failure> {
        match places.clone().try_acquire_owned() {
            Ok(permit) => Ok(permit),
            Err(_) => self.wait(places).await,
        }
    }

    async fn wait(&self, places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Failure> {
        let before = self.waiting.fetch_add(1, Ordering::SeqCst);
        let _counted = Counted(&self.waiting);
        if before >= self.budget.waiting {
            return Err(self.full(before));
        }
        let permit = tokio::time::timeout(WAIT, places.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| self.full(before))
    }

    fn full(&self, waiting: usize) -> Failure {
        let text = format!(
            "all {} places are taken and {waiting} requests wait (at most {})",
            self.budget.at_once, self.budget.waiting
        );
        Failure::busy(Error::new(Code::Busy, text), 2)
    }

    /// Refuses to have something new made when the whole is used up.
    pub fn room(&self, engine: &Engine) -> fractal::Result<()> {
        self.budget.check(Used {
            sandboxes: engine.sandboxes_beyond(self.budget.sandboxes)?,
            layer_bytes: self.layer_bytes(),
            memory_free_bytes: memory_free(),
        })
    }
}

impl Budget {
    fn check(&self, used: Used) -> fractal::Result<()> {
        let busy = |text: String, hint: &str| Err(Error::new(Code::Busy, text).hint(hint));
        if let Some(count) = used.sandboxes {
            let text = format!("there are {count} sandboxes, {} may be", self.sandboxes);
            return busy(text, "drop sandboxes");
        }
        if let (Some(taken), Some(most)) = (used.layer_bytes, self.disk_bytes)
            && taken >= most
        {
            let (taken, most) = (format_bytes(taken), format_bytes(most));
            let text = format!("sandboxes take {taken} on disk, {most} may be");
            return busy(text, "drop sandboxes, or `fractal gc`");
        }
        match used.memory_free_bytes {
            Some(free) if free < self.memory_free_bytes => {
                let (free, least) = (format_bytes(free), format_bytes(self.memory_free_bytes));
                let text = format!("{free} of memory are free, {least} are to stay so");
                busy(text, "come again when something has ended")
            }
            _ => Ok(()),
        }
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Verbs that run programs or read and write whole trees.
fn is_heavy(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::Run
            | Verb::Try
            | Verb::Compare
            | Verb::Guard
            | Verb::Promote
            | Verb::Undo
            | Verb::Update
            | Verb::Copy
            | Verb::Export
            | Verb::Import
            | Verb::Gc
            | Verb::Skunk
            | Verb::Index
    )
}

/// Whether it may leave a sandbox behind that was not there before. Work in
/// one that exists goes on when there is no room for more.
pub fn makes(action: &Action) -> bool {
    match action {
        Action::Run(run) => run.sandbox.is_none(),
        Action::Guard(guard) => guard.run.sandbox.is_none(),
        Action::Tool(call) => call.sandbox.is_none(),
        Action::Skunk(verb) => matches!(**verb, SkunkVerb::New(_)),
        Action::Fork { .. } | Action::Try(_) | Action::Import { .. } | Action::Calls(_) => true,
        _ => false,
    }
}

fn memory_free() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fractal::model::Key;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_budget_is_used_up_at_its_bounds_and_says_the_numbers() {
        let budget = Budget {
            sandboxes: 10,
            disk_bytes: Some(50 * MIB),
            memory_free_bytes: 256 * MIB,
            ..Budget::for_cores(1)
        };
        let little = Used {
            sandboxes: None,
            layer_bytes: Some(50 * MIB - 1),
            memory_free_bytes: Some(256 * MIB),
        };
        let check = |budget: &Budget, used: Used, expect: &str| match budget.check(used) {
            Ok(()) => assert_eq!(expect, ""),
            Err(error) => {
                assert_eq!((error.code, error.message.as_str()), (Code::Busy, expect));
                assert!(error.hint.is_some());
            }
        };
        check(&budget, little, "");
        check(&budget, Used { sandboxes: Some(10), ..little }, "there are 10 sandboxes, 10 may be");
        let full = Used { layer_bytes: Some(50 * MIB), ..little };
        check(&budget, full, "sandboxes take 50 MiB on disk, 50 MiB may be");
        check(&Budget { disk_bytes: None, ..budget.clone() }, full, "");
        let tight = Used { memory_free_bytes: Some(255 * MIB), ..little };
        check(&budget, tight, "255 MiB of memory are free, 256 MiB are to stay so");
        // What nobody knows stops nobody.
        check(&budget, Used { layer_bytes: None, memory_free_bytes: None, ..little }, "");
    }

    #[test]
    fn this_machine_tells_its_free_memory() {
        assert!(memory_free().is_some_and(|free| free > MIB));
    }

    #[tokio::test]
    async fn one_key_leaves_room_for_the_bodies_of_others() {
        let admission = Admission::new(Budget { waiting: 0, ..Budget::for_cores(1) });
        let asker = |key: Option<Key>| Asker::new(key, "/".into());
        let key = || Key { id: fractal::model::Id::from_parts(1, [1; 10]), ..crate::mcp::suite() };
        let mut rooms = Vec::new();
        while let Ok(room) = admission.body(&asker(Some(key()))).await {
            rooms.push(room);
        }
        assert_eq!(rooms.len(), BODIES_OF_ONE);
        let other = admission.body(&asker(Some(crate::mcp::suite()))).await;
        assert!(other.is_ok(), "there is room for others");
        drop(rooms.pop());
        assert!(admission.body(&asker(Some(key()))).await.is_ok(), "a place came free");
        // The owner has all that is left, and whoever comes then finds nothing.
        while let Ok(room) = admission.body(&asker(None)).await {
            rooms.push(room);
        }
        assert_eq!(rooms.len() + 1, BODIES);
        assert!(admission.body(&asker(Some(key()))).await.is_err());
    }

    #[tokio::test]
    async fn one_key_leaves_room_for_others_to_look() {
        let admission = Admission::new(Budget { waiting: 0, ..Budget::for_cores(1) });
        let key = Asker::new(Some(crate::mcp::suite()), "/".into());
        let mut places = Vec::new();
        while let Ok(place) = admission.enter(&key, Verb::Snapshot).await {
            places.push(place);
        }
        assert_eq!(places.len(), LIGHT_OF_ONE);
        assert!(admission.enter(&Asker::new(None, "/".into()), Verb::List).await.is_ok());
    }

    #[tokio::test]
    async fn few_patches_are_held_in_memory_at_once() {
        let admission = Admission::new(Budget { waiting: 0, ..Budget::for_cores(64) });
        let mut held = Vec::new();
        while let Ok(place) = admission.patch().await {
            held.push(place);
        }
        assert_eq!(held.len(), PATCHES);
        drop(held.pop());
        assert!(admission.patch().await.is_ok());
    }

    #[tokio::test]
    async fn who_waits_is_counted_and_who_is_too_many_is_sent_away() {
        let budget = Budget { at_once: 1, waiting: 1, ..Budget::for_cores(1) };
        let admission = Arc::new(Admission::new(budget));
        let owner = Asker::new(None, "/".into());
        let place = admission.enter(&owner, Verb::Run).await.expect("there is one");
        let other = admission.clone();
        let asker = owner.clone();
        let waiting = tokio::spawn(async move { other.enter(&asker, Verb::Run).await.is_ok() });
        while admission.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let refused = admission.enter(&owner, Verb::Run).await.err().expect("nobody else may wait");
        let text = "all 1 places are taken and 1 requests wait (at most 1)";
        assert_eq!(refused.error().message, text);
        // Looking has places of its own.
        assert!(admission.enter(&owner, Verb::List).await.is_ok());
        drop(place);
        assert!(waiting.await.expect("it goes on"));
        assert_eq!((admission.waiting(), admission.active()), (0, 0));
    }
}
