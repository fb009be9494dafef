//! The programs inside: one in each sandbox that somebody works in.
//!
//! Each is a run like any other, started when it is first needed; it ends when
//! its sandbox is paused or dropped, or this process ends. Connections are
//! handed to it; nothing is read from it but a sign that it takes them.

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

/// How long one may take until it takes connections.
const START: Duration = Duration::from_secs(30);
/// How long the end of one is waited for.
const END: Duration = Duration::from_secs(10);
/// Programs inside at once.
const AGENTS_MAX: usize = 1024;
/// The words of the command line that this is started with, inside.
pub const COMMAND: &str = "envd";

/// One that is at work.
pub struct Agent {
    /// What it takes connections from.
    hand: OwnedFd,
    /// The run ends with it.
    connection: Mutex<Option<UnixStream>>,
    over: Arc<Over>,
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

/// Those at work, by sandbox.
#[derive(Default)]
pub struct Agents {
    all: Mutex<HashMap<Id, Arc<Place>>>,
}

/// Where one is, or is being started.
#[derive(Default)]
struct Place(Mutex<Option<Arc<Agent>>>);

impl Agents {
    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Arc<Place>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one in this sandbox, started if need be. Blocks.
    pub fn at(
        &self,
        state: &Shared,
        asker: &Asker,
        sandbox: Id,
        envs: &BTreeMap<String, String>,
    ) -> Result<Arc<Agent>, Failure> {
        let place = {
            let mut all = self.lock();
            if all.len() >= AGENTS_MAX && !all.contains_key(&sandbox) {
                let error = Error::new(
                    Code::Busy,
                    format!(
                        "{AGENTS_MAX} sandboxes are being worked in, which are all there may be"
                    ),
                );
                return Err(Failure::busy(error.hint("pause or kill some"), 5));
            }
            all.entry(sandbox).or_default().clone()
        };
        let mut there = place.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = there.as_ref().filter(|agent| agent.over.lock().is_none()) {
            return Ok(agent.clone());
        }
        let agent = Arc::new(Agent::start(state, asker, sandbox, envs)?);
        *there = Some(agent.clone());
        Ok(agent)
    }

    /// Ends the one in this sandbox, with all that it has started.
    pub fn end(&self, sandbox: Id) {
        let place = self.lock().remove(&sandbox);
        let Some(place) = place else { return };
        let agent = place.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(agent) = agent {
            agent.end();
        }
    }

    /// Ends all of them, each while the others do.
    pub fn end_all(&self) {
        let places: Vec<Arc<Place>> = self.lock().drain().map(|(_, place)| place).collect();
        let take =
            |place: &Arc<Place>| place.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let agents: Vec<Arc<Agent>> = places.iter().filter_map(take).collect();
        agents.iter().for_each(|agent| agent.let_go());
        agents.iter().for_each(|agent| agent.end());
    }
}

impl Agent {
    fn start(
        state: &Shared,
        asker: &Asker,
        sandbox: Id,
        envs: &BTreeMap<String, String>,
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
        let mut env = envs.clone();
        env.insert("E2B_SANDBOX".to_owned(), "true".to_owned());
        env.insert("E2B_SANDBOX_ID".to_owned(), super::book::public(sandbox));
        env.insert(
            "FRACTAL_DIRECTORY".to_owned(),
            state.project.directory.to_string_lossy().into_owned(),
        );
        let run = Run {
            command: vec![program.to_string_lossy().into_owned(), COMMAND.to_owned()],
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
        let agent = Agent { hand, connection: Mutex::new(Some(connection)), over };
        agent.wait_ready()?;
        Ok(agent)
    }

    /// Waits for its first byte, or for the reason why there is none.
    fn wait_ready(&self) -> Result<(), Failure> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let until = Instant::now() + START;
        while Instant::now() < until {
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

    /// A new connection to it, or to a port of the sandbox.
    pub fn connect(&self, arrival: Arrival) -> Result<tokio::net::UnixStream, Failure> {
        let lost = |error: std::io::Error| {
            Failure::from(Error::internal(format!("the sandbox cannot be reached: {error}")))
        };
        let (ours, theirs) = UnixStream::pair().map_err(lost)?;
        hand_over(self.hand.as_fd(), arrival, theirs.as_fd()).map_err(lost)?;
        ours.set_nonblocking(true).map_err(lost)?;
        tokio::net::UnixStream::from_std(ours).map_err(lost)
    }

    fn let_go(&self) {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn end(&self) {
        self.let_go();
        self.over.wait(END);
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
