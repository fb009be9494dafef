//! How much happens at once, and how much may exist.
//!
//! Heavy verbs (those that run programs or move whole trees) have places, and
//! a bounded number may wait for one. Who finds neither is told the numbers
//! and when to come again, before anything has happened.

use crate::failure::Failure;
use fractal::model::{Verb, format_bytes};
use fractal::{Action, Code, Engine, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a request waits for a place before it is sent away.
const WAIT: Duration = Duration::from_secs(20);
/// Light verbs are short; this bounds threads, not work.
const LIGHT: usize = 32;
/// Bodies that lie on disk at once, on their way in or out.
const BODIES: usize = 32;

/// What the server as a whole may use.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Runs and other heavy verbs at once.
    pub at_once: usize,
    /// Requests that may wait for a place.
    pub waiting: usize,
    /// Sandboxes that may exist.
    pub sandboxes: u64,
    /// Bytes that the state directory may hold.
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
    waiting: AtomicUsize,
    active: Arc<AtomicUsize>,
}

/// A place, until dropped.
pub struct Place {
    _permit: OwnedSemaphorePermit,
    active: Arc<AtomicUsize>,
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
            waiting: AtomicUsize::new(0),
            active: Arc::default(),
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

    /// Waits for a place for the verb.
    pub async fn enter(&self, verb: Verb) -> Result<Place, Failure> {
        let places = if is_heavy(verb) { &self.heavy } else { &self.light };
        let permit = match places.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(places).await?,
        };
        self.active.fetch_add(1, Ordering::SeqCst);
        Ok(Place { _permit: permit, active: self.active.clone() })
    }

    /// How long a body may be that lies on disk on its way.
    pub fn body_bytes(&self) -> u64 {
        self.budget.body_bytes
    }

    /// Waits for room for such a body.
    pub async fn body(&self) -> Result<OwnedSemaphorePermit, Failure> {
        match self.bodies.clone().try_acquire_owned() {
            Ok(permit) => Ok(permit),
            Err(_) => self.wait(&self.bodies).await,
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
        let census = engine.census()?;
        let busy = |text: String| {
            Err(Error::new(Code::Busy, text).hint("drop sandboxes, or `fractal gc`"))
        };
        if census.sandboxes >= self.budget.sandboxes {
            return busy(format!(
                "there are {} sandboxes, {} may be",
                census.sandboxes, self.budget.sandboxes
            ));
        }
        if let Some(most) = self.budget.disk_bytes
            && census.layer_bytes >= most
        {
            let (used, most) = (format_bytes(census.layer_bytes), format_bytes(most));
            return busy(format!("sandboxes take {used} of {most} on disk"));
        }
        match memory_free() {
            Some(free) if free < self.budget.memory_free_bytes => busy(format!(
                "{} of memory are free, {} are to stay so",
                format_bytes(free),
                format_bytes(self.budget.memory_free_bytes)
            )),
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
    )
}

/// Whether it may leave a sandbox behind that was not there before. Work in
/// one that exists goes on when there is no room for more.
pub fn makes(action: &Action) -> bool {
    match action {
        Action::Run(run) => run.sandbox.is_none(),
        Action::Guard(guard) => guard.run.sandbox.is_none(),
        Action::Tool(call) => call.sandbox.is_none(),
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
