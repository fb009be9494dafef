//! The programs inside: one in each sandbox that somebody works in through a
//! door for other clients, each door with its own.
//!
//! Each is a run like any other, started when it is first needed; it ends when
//! its sandbox is paused or dropped, or this process ends. Connections are
//! handed to it; nothing is read from it but a sign that it takes them. It may
//! do what it likes: whoever waits for it does so without a thread, for a
//! bounded time, and together with all others who do.

use crate::asker::Asker;
use crate::failure::Failure;
use crate::state::Shared;
use fractal::model::{Id, Run, World};
use fractal::{Code, Error, RunIo};
use fractal_envd::{Arrival, hand_over};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long one may take until it takes connections.
const START: Duration = Duration::from_secs(15);
/// How long nobody tries again after one did not start.
const PAUSE: Duration = Duration::from_secs(3);
/// How long the end of one is waited for.
const END: Duration = Duration::from_secs(10);
/// Programs inside at once.
const AGENTS_MAX: usize = 1024;
/// Connections to one of them at once.
const CONNECTIONS_MAX: usize = 256;

/// What is started inside.
pub struct Program {
    /// The word of our command line that it is.
    pub word: &'static str,
    /// Variables of its own.
    pub env: BTreeMap<String, String>,
}

/// One that is at work.
pub struct Agent {
    /// What it takes connections from.
    hand: OwnedFd,
    /// The run ends with it.
    connection: Mutex<Option<UnixStream>>,
    over: Arc<Over>,
    room: Arc<Semaphore>,
}

/// How its run ended, once it has.
#[derive(Default)]
struct Over {
    ended: Mutex<Option<Result<String, Error>>>,
    told: Condvar,
}

impl Over {
    fn lock(&self) -> MutexGuard<'_, Option<Result<String, Error>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, time: Duration) -> bool {
        let waited = self.told.wait_timeout_while(self.lock(), time, |ended| ended.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }
}

/// Where one works, and for whom. A program may do what whoever started it may,
/// so that it is nobody else's unless its door says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    pub sandbox: Id,
    /// The key that alone may use it.
    pub key: Option<Id>,
}

/// Those at work.
#[derive(Default)]
pub struct Agents {
    all: Mutex<HashMap<Slot, Arc<Place>>>,
}

/// Where one is, or is being started.
#[derive(Default)]
struct Place {
    /// Held by who starts one; the others wait, and then have it.
    turn: tokio::sync::Mutex<()>,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    agent: Option<Arc<Agent>>,
    failed: Option<(Instant, Error)>,
    /// Grows with every end: one that was being started then is not wanted.
    ends: u64,
}

impl Place {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what is here, or about to be; gives what must be waited for.
    fn end(&self) -> Option<Arc<Agent>> {
        let mut now = self.now();
        now.ends += 1;
        now.failed = None;
        let agent = now.agent.take()?;
        agent.let_go();
        Some(agent)
    }
}

impl Agents {
    fn lock(&self) -> MutexGuard<'_, HashMap<Slot, Arc<Place>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, slot: Slot) -> Result<Arc<Place>, Failure> {
        let mut all = self.lock();
        if all.len() >= AGENTS_MAX && !all.contains_key(&slot) {
            all.retain(|_, place| Arc::strong_count(place) > 1 || place.now().agent.is_some());
        }
        if all.len() >= AGENTS_MAX && !all.contains_key(&slot) {
            let error = Error::new(
                Code::Busy,
                format!("{AGENTS_MAX} sandboxes are being worked in, which are all there may be"),
            );
            return Err(Failure::busy(error.hint("pause or kill some"), 5));
        }
        Ok(all.entry(slot).or_default().clone())
    }

    /// The one in this sandbox, started if need be. What is to be started is
    /// asked when it is about to be, and may be refused then.
    pub async fn at(
        &self,
        state: &Shared,
        asker: &Asker,
        slot: Slot,
        program: impl FnOnce() -> Result<Program, Failure> + Send + 'static,
    ) -> Result<Arc<Agent>, Failure> {
        let place = self.place(slot)?;
        if let Some(agent) = alive(&place) {
            return Ok(agent);
        }
        // By itself, so that a client who goes away does not lose what was
        // begun for others.
        let (state, asker) = (state.clone(), asker.clone());
        let starting =
            tokio::spawn(async move { start(&state, &asker, &place, slot.sandbox, program).await });
        starting.await.map_err(|_| Error::internal("starting the sandbox broke off"))?
    }

    /// Ends the one in this sandbox, with all that it has started. Blocks.
    pub fn end(&self, slot: Slot) {
        let place = self.lock().get(&slot).cloned();
        if let Some(agent) = place.and_then(|place| place.end()) {
            agent.over.wait(END);
        }
    }

    /// Nobody will ask for this sandbox again.
    pub fn forget(&self, slot: Slot) {
        let place = self.lock().remove(&slot);
        let _ = place.and_then(|place| place.end());
    }

    /// Ends all of them, each while the others do.
    pub fn end_all(&self) {
        let places: Vec<Arc<Place>> = self.lock().drain().map(|(_, place)| place).collect();
        let agents: Vec<Arc<Agent>> = places.iter().filter_map(|place| place.end()).collect();
        for agent in agents {
            agent.over.wait(END);
        }
    }
}

fn alive(place: &Place) -> Option<Arc<Agent>> {
    place.now().agent.clone().filter(|agent| agent.over.lock().is_none())
}

async fn start(
    state: &Shared,
    asker: &Asker,
    place: &Arc<Place>,
    sandbox: Id,
    program: impl FnOnce() -> Result<Program, Failure>,
) -> Result<Arc<Agent>, Failure> {
    let _turn = place.turn.lock().await;
    if let Some(agent) = alive(place) {
        return Ok(agent);
    }
    let ends = {
        let now = place.now();
        if let Some((when, error)) = &now.failed
            && when.elapsed() < PAUSE
        {
            return Err(error.clone().into());
        }
        now.ends
    };
    // After `ends`: whoever pauses it now is seen by one or the other.
    let program = program()?;
    let (shared, asker, here) = (state.clone(), asker.clone(), place.clone());
    let job = move || Agent::start(&shared, &asker, sandbox, program, &here, ends);
    let started = tokio::task::spawn_blocking(job).await;
    let started = started.map_err(|_| Error::internal("starting the sandbox broke off"))?;
    let mut now = place.now();
    match started {
        Ok(agent) if now.ends == ends => {
            let agent = Arc::new(agent);
            now.agent = Some(agent.clone());
            Ok(agent)
        }
        Ok(_) => {
            let error = Error::new(Code::Busy, "the sandbox was ended while it started");
            Err(Failure::busy(error, 1))
        }
        Err(failure) => {
            if now.ends == ends {
                now.failed = Some((Instant::now(), failure.error().clone()));
            }
            Err(failure)
        }
    }
}

impl Agent {
    fn start(
        state: &Shared,
        asker: &Asker,
        sandbox: Id,
        inside: Program,
        place: &Place,
        ends: u64,
    ) -> Result<Agent, Failure> {
        let lost = |what: &str, error: &dyn std::fmt::Display| {
            Failure::from(Error::internal(format!("{what}: {error}")))
        };
        let program = std::env::current_exe()
            .map_err(|error| lost("this program does not know where it lies", &error))?;
        let caller = asker.caller(state, true)?;
        let kind = SocketType::SEQPACKET;
        let (hand, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .map_err(|error| lost("no socket for the program inside", &error))?;
        let (connection, watched) =
            UnixStream::pair().map_err(|error| lost("no socket for the program inside", &error))?;
        let mut env = inside.env;
        // Of the owner's variables this one alone: it says which Python code
        // runs with, and tells nothing that the clone does not show.
        if let Ok(path) = std::env::var("PATH") {
            env.entry("PATH".to_owned()).or_insert(path);
        }
        env.insert(
            "FRACTAL_DIRECTORY".to_owned(),
            state.project.directory.to_string_lossy().into_owned(),
        );
        let run = Run {
            command: vec![program.to_string_lossy().into_owned(), inside.word.to_owned()],
            sandbox: Some(sandbox.to_string()),
            env,
            world: Some(World::Native),
            ..Run::default()
        };
        let over = Arc::<Over>::default();
        let (engine, ending) = (state.engine.clone(), over.clone());
        std::thread::spawn(move || {
            let io = RunIo::attended(theirs, watched.into());
            let ended = engine.run(&caller, run, io).map(|reply| reply.stderr);
            *ending.lock() = Some(ended);
            ending.told.notify_all();
        });
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let agent = Agent { hand, connection: Mutex::new(Some(connection)), over, room };
        agent.wait_ready(place, ends)?;
        Ok(agent)
    }

    /// Waits for its first byte, or for the reason why there is none.
    fn wait_ready(&self, place: &Place, ends: u64) -> Result<(), Failure> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let until = Instant::now() + START;
        while Instant::now() < until && place.now().ends == ends {
            let mut ready = [PollFd::new(&self.hand, PollFlags::IN)];
            let polled = poll(&mut ready, Some(&LOOK));
            let mut byte = [0];
            if polled == Ok(1) && matches!(rustix::io::read(&self.hand, &mut byte), Ok(1)) {
                return Ok(());
            }
            if let Some(ended) = self.over.lock().clone() {
                return Err(why_not(ended).into());
            }
        }
        let error = Error::new(Code::Timeout, "the sandbox did not answer in time");
        Err(error.hint("`fractal log` tells what happened in it").into())
    }

    /// A new connection to it, or to a port of the sandbox; it counts as long
    /// as what comes with it lives.
    pub fn connect(
        &self,
        arrival: Arrival,
    ) -> std::io::Result<(tokio::net::UnixStream, OwnedSemaphorePermit)> {
        let full = || std::io::Error::from(std::io::ErrorKind::WouldBlock);
        let permit = self.room.clone().try_acquire_owned().map_err(|_| full())?;
        let (ours, theirs) = UnixStream::pair()?;
        hand_over(self.hand.as_fd(), arrival, theirs.as_fd())?;
        ours.set_nonblocking(true)?;
        Ok((tokio::net::UnixStream::from_std(ours)?, permit))
    }

    /// Waits a moment for its end, which somebody has noticed.
    pub async fn wait_over(self: Arc<Agent>) {
        const MOMENT: Duration = Duration::from_secs(5);
        let _ = tokio::task::spawn_blocking(move || self.over.wait(MOMENT)).await;
    }

    fn let_go(&self) {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn why_not(ended: Result<String, Error>) -> Error {
    match ended {
        Err(error) => error,
        Ok(said) => {
            let last = said.lines().last().unwrap_or_default().trim();
            let why = if last.is_empty() { "without a word" } else { last };
            Error::new(Code::Failed, format!("the program inside ended: {why}"))
                .hint("the sandbox must show this program at its own path, with execute rights")
        }
    }
}
