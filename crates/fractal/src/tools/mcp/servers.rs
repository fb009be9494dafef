//! The servers that are at work: at most one per sandbox, caller and settings.
//!
//! They belong to a request and end with it, or to a process that lives long,
//! where they stay until nobody has asked them for a while. Either way they
//! are runs of this process: should it be killed, they end with it. For each
//! sandbox in which some are kept there is a file in the state directory's
//! cache; another process that needs the sandbox for itself deletes it, and
//! those that are idle are ended.

use super::may_keep;
use super::serving::{Failure, Serving, Start};
use super::wire::{Patience, Trouble};
use crate::config::Server;
use crate::tools::slots::Slots;
use crate::{Caller, Engine, fingerprint};
use fractal_model::{Code, Error, Id, Run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Servers at work at once; who is idle makes room.
const SERVERS_MAX: usize = 16;

/// How long one that is kept may be idle.
const IDLE: Duration = Duration::from_secs(300);

/// How often it is looked whether somebody wants a sandbox alone.
const LOOK: Duration = Duration::from_millis(200);

/// How long who wants one waits for that.
const PATIENCE: Duration = Duration::from_secs(4);

type Found = std::result::Result<Arc<Serving>, Failure>;

/// Those that are at work.
#[derive(Debug)]
pub struct Servers {
    starts: Mutex<Sender<Start>>,
    places: Mutex<BTreeMap<String, Arc<Place>>>,
    /// Where it is told of those that are kept.
    cache: Option<PathBuf>,
}

/// Where one is, or is being started.
#[derive(Debug)]
struct Place {
    sandbox: Id,
    turn: Arc<Slots>,
    serving: Mutex<Option<Arc<Serving>>>,
}

/// Has `work` use servers that end with it, or those that this process keeps.
pub fn with_servers<T>(engine: &Engine, caller: &Caller, work: impl FnOnce(&Servers) -> T) -> T {
    if let Some(kept) = engine.mcp.kept().filter(|_| may_keep(caller)) {
        return work(kept);
    }
    std::thread::scope(|scope| {
        let (send, starts) = channel::<Start>();
        scope.spawn(move || {
            for start in starts {
                scope.spawn(move || start.go(engine));
            }
        });
        let servers = Servers::new(send, None);
        work(&servers)
    })
}

/// Has this process keep servers from now on. The thread that begins their
/// runs goes when the engine does.
pub fn keep(engine: &Arc<Engine>) {
    let (send, starts) = channel::<Start>();
    if engine.mcp.keep(Servers::new(send, Some(engine.home().join("cache")))) {
        let engine = Arc::downgrade(engine);
        std::thread::spawn(move || attend(&engine, &starts));
    }
}

/// Begins runs, and looks after those at work while there are any. Nothing in
/// here waits for a server.
fn attend(engine: &Weak<Engine>, starts: &Receiver<Start>) {
    let mut has_some = false;
    loop {
        let start = match has_some {
            true => starts.recv_timeout(LOOK),
            false => starts.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let Some(engine) = engine.upgrade() else { return };
        match start {
            Ok(start) => {
                has_some = true;
                drop(std::thread::spawn(move || start.go(&engine)));
            }
            Err(RecvTimeoutError::Timeout) => {
                let Some(kept) = engine.mcp.kept() else { return };
                let over = kept.take_unwanted();
                if !over.is_empty() {
                    std::thread::spawn(move || drop(over));
                }
                has_some = !lock(&kept.places).is_empty();
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Has the servers in a sandbox end that another process keeps and nobody
/// uses; `is_running` says whether something is still at work there.
pub fn want_alone(cache: &Path, sandbox: Id, is_running: impl Fn() -> bool) {
    if std::fs::remove_file(mark(cache, sandbox)).is_err() {
        return;
    }
    let start = Instant::now();
    while is_running() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn mark(cache: &Path, sandbox: Id) -> PathBuf {
    cache.join(format!("mcp-kept-{sandbox}"))
}

impl Servers {
    fn new(starts: Sender<Start>, cache: Option<PathBuf>) -> Servers {
        Servers { starts: Mutex::new(starts), places: Mutex::default(), cache }
    }

    /// A server that nobody else uses.
    pub fn start(
        &self,
        server: &Server,
        caller: &Caller,
        run: Run,
        patience: Patience<'_>,
    ) -> Found {
        let starts = lock(&self.starts).clone();
        Serving::start(server, caller, run, &starts, patience).map(Arc::new)
    }

    /// The server of this caller in a sandbox, started if need be.
    pub fn at(
        &self,
        sandbox: Id,
        server: &Server,
        caller: &Caller,
        run: Run,
        patience: Patience<'_>,
    ) -> Found {
        let key = key(sandbox, server, caller);
        let place = Arc::clone(lock(&self.places).entry(key).or_insert_with(|| {
            Arc::new(Place { sandbox, turn: Slots::new(1), serving: Mutex::default() })
        }));
        let Some(_turn) = place.turn.take(patience.left(), patience.cancel) else {
            let trouble = match patience.cancel.is_cancelled() {
                true => Trouble::CalledOff,
                false => Trouble::Late,
            };
            return Err(Failure::Trouble(trouble, None));
        };
        let there = lock(&place.serving).clone();
        match there.filter(|serving| !serving.is_broken()) {
            Some(serving) => Ok(serving),
            None => {
                lock(&place.serving).take();
                self.make_room()?;
                let serving = self.start(server, caller, run, patience)?;
                *lock(&place.serving) = Some(Arc::clone(&serving));
                if let Some(cache) = &self.cache {
                    // Without it another process finds the sandbox busy, no more.
                    let _ = std::fs::write(mark(cache, sandbox), "");
                }
                Ok(serving)
            }
        }
    }

    /// Asks this one nothing more; it ends when nobody waits for it.
    pub fn retire(&self, serving: &Arc<Serving>) {
        for place in self.all() {
            let mut there = lock(&place.serving);
            let is_this = there.as_ref().is_some_and(|other| Arc::ptr_eq(other, serving));
            let gone = is_this.then(|| there.take()).flatten();
            drop(there);
            drop(gone);
        }
    }

    /// Ends the idle ones of a sandbox.
    pub fn rest(&self, sandbox: Id) {
        let of_sandbox = self.all().into_iter().filter(|place| place.sandbox == sandbox);
        of_sandbox.for_each(|place| drop(place.take_idle(Duration::ZERO)));
    }

    /// Those that were idle for long, or whose sandbox somebody wants alone.
    /// Where none is any more is forgotten.
    fn take_unwanted(&self) -> Vec<Arc<Serving>> {
        let Some(cache) = &self.cache else { return Vec::new() };
        let one = |place: Arc<Place>| {
            let is_wanted = !mark(cache, place.sandbox).exists();
            place.take_idle(if is_wanted { Duration::ZERO } else { IDLE })
        };
        let over = self.all().into_iter().filter_map(one).collect();
        let mut places = lock(&self.places);
        let is_used =
            |place: &Arc<Place>| Arc::strong_count(place) > 1 || lock(&place.serving).is_some();
        let (used, unused): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut *places).into_iter().partition(|(_, place)| is_used(place));
        for place in unused.values() {
            if used.values().all(|other| other.sandbox != place.sandbox) {
                let _ = std::fs::remove_file(mark(cache, place.sandbox));
            }
        }
        *places = used;
        over
    }

    /// Ends all, whoever waits for them.
    pub fn end_all(&self) {
        let all = std::mem::take(&mut *lock(&self.places));
        for place in all.values() {
            if let Some(serving) = lock(&place.serving).take() {
                serving.end();
            }
            if let Some(cache) = &self.cache {
                let _ = std::fs::remove_file(mark(cache, place.sandbox));
            }
        }
    }

    fn make_room(&self) -> std::result::Result<(), Failure> {
        loop {
            let all = self.all();
            let at_work = |place: &&Arc<Place>| lock(&place.serving).is_some();
            if all.iter().filter(at_work).count() < SERVERS_MAX {
                return Ok(());
            }
            let idle = all.iter().filter_map(|place| Some((place.idle_since()?, place)));
            let longest = idle.min_by_key(|(since, _)| *since);
            if longest.and_then(|(_, place)| place.take_idle(Duration::ZERO)).is_none() {
                let why = format!("{SERVERS_MAX} servers are at work, which are all there may be");
                let error = Error::new(Code::Busy, why).hint("try again in a moment");
                return Err(Failure::Refused(error));
            }
        }
    }

    fn all(&self) -> Vec<Arc<Place>> {
        lock(&self.places).values().cloned().collect()
    }
}

impl Place {
    /// Since when nobody uses the server that is here. Whoever uses it holds
    /// it, besides the place itself.
    fn idle_since(&self) -> Option<Instant> {
        let there = lock(&self.serving);
        let alone = there.as_ref().filter(|serving| Arc::strong_count(serving) == 1)?;
        Some(alone.used())
    }

    fn take_idle(&self, idle: Duration) -> Option<Arc<Serving>> {
        let mut there = lock(&self.serving);
        let serving = there.as_ref().filter(|serving| Arc::strong_count(serving) == 1)?;
        match serving.is_broken() || serving.used().elapsed() >= idle {
            true => there.take(),
            false => None,
        }
    }
}

/// Nobody meets a server that was started with other rights or settings.
fn key(sandbox: Id, server: &Server, caller: &Caller) -> String {
    let json = |value: serde_json::Result<Vec<u8>>| value.unwrap_or_default();
    fingerprint(&[
        sandbox.as_str().as_bytes(),
        &json(serde_json::to_vec(server)),
        &json(serde_json::to_vec(&caller.key)),
        &json(serde_json::to_vec(&caller.policy)),
        caller.who.as_bytes(),
    ])
}

/// Nothing that could panic happens under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
