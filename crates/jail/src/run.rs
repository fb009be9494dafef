//! The caller's side of a run: prepare, split off the monitor, follow along.

use crate::JailError;
use crate::cgroup::{CgroupPlan, Controllers};
use crate::child::{self, WHY_ASKED, WHY_TIME};
use crate::host::Facts;
use crate::plan::Plan;
use crate::pump::{Captured, OpenDoor, Pump, Streams};
use crate::request::{Descriptors, Request, raise_all};
use crate::spawner::Monitor;
use crate::spec::Spec;
use crate::sys::{fd, socket};
use crate::wire::{self, Fence, Message};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

/// Why the supervisor stopped a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It ended by itself.
    Ended,
    /// The time limit.
    Time,
    /// The memory limit.
    Memory,
    /// The disk limit.
    Disk,
    /// The output limit.
    Output,
    /// Somebody asked.
    Asked,
}

/// How the program itself ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It returned a status.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It was not found or could not be executed.
    NotStarted(i32),
}

/// Limits that were felt inside, whether or not the run ended of them: the
/// kernel may kill a child only, and its parent go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Somebody was killed, or was denied memory and failed.
    pub memory: bool,
    /// There was no room left for files.
    pub disk: bool,
}

/// Everything known after a run.
#[derive(Debug)]
pub struct Report {
    /// How the program ended.
    pub ended: Ended,
    /// Why the run was stopped, or what made the program fail.
    pub why: Why,
    /// Limits that were felt.
    pub reached: Reached,
    /// Wall-clock time from start to end.
    pub wall_ms: u64,
    /// Processor time.
    pub cpu_ms: u64,
    /// Highest memory.
    pub memory_peak_bytes: u64,
    /// Bytes read from disks.
    pub io_read_bytes: u64,
    /// Bytes written to disks.
    pub io_write_bytes: u64,
    /// Captured output and errors.
    pub output: Captured,
    /// Captured errors.
    pub errors: Captured,
    /// Why output could not be passed on to the caller's descriptors.
    pub write_errno: Option<i32>,
    /// The memory top's directory, readable until it is closed.
    pub top: Option<OwnedFd>,
    /// Fences that this machine cannot put up.
    pub missing: Vec<String>,
}

/// A run under way. Dropping it stops the run.
#[derive(Debug)]
pub struct Running {
    pub(crate) control: OwnedFd,
    monitor: Monitor,
    pub(crate) state: State,
    cwd: PathBuf,
    started: Instant,
    request: Request,
    pub(crate) allowed: std::collections::BTreeSet<String>,
}

/// What the messages so far said.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub top: Option<OwnedFd>,
    pub proxy: Option<OwnedFd>,
    pub door: Option<OwnedFd>,
    pub terminal: Option<OwnedFd>,
    pub started: bool,
    pub memory: Option<u64>,
    pub exec_errno: Option<i32>,
    pub ended: Option<(i32, [u64; 6])>,
    /// The program was the last process inside.
    pub alone: bool,
    pub over: Option<(i32, [u64; 6])>,
    pub failure: Option<Message>,
}

/// The plan for a run, as text lines, without running it.
pub fn explain(spec: &Spec) -> Result<Vec<String>, JailError> {
    Ok(plan(spec)?.explain())
}

fn plan(spec: &Spec) -> Result<Plan, JailError> {
    let facts = Facts::gather(spec);
    let needed = CgroupPlan::is_needed(&spec.limits, facts.namespaces_limit_pids);
    let controllers = if needed { Controllers::find() } else { Controllers::default() };
    Plan::new(spec, &facts, &controllers)
}

/// Runs to the end, moving input and output along.
pub fn run(spec: &Spec, streams: Streams) -> Result<Report, JailError> {
    let (mut pump, ends) = Pump::new(streams, spec)?;
    let mut running = start(spec, ends, None, pump.screen())?;
    pump.follow(&mut running)?;
    running.report(pump)
}

/// The same with a door: `open` gets its socket before the program starts, and
/// what it returns is dropped when the program has ended.
pub fn run_with_door(spec: &Spec, streams: Streams, open: OpenDoor) -> Result<Report, JailError> {
    let (mut pump, ends) = Pump::new(streams, spec)?;
    pump.door = Some(open);
    let mut running = start(spec, ends, None, pump.screen())?;
    pump.follow(&mut running)?;
    running.report(pump)
}

/// The same, but the program starts only when `ready` has succeeded, which
/// runs while the sandbox is built.
pub fn run_when<E: From<JailError>>(
    spec: &Spec,
    streams: Streams,
    ready: impl FnOnce() -> Result<(), E>,
) -> Result<Report, E> {
    let (mut pump, ends) = Pump::new(streams, spec)?;
    let (gate, opener) = channel()?;
    let mut running = start(spec, ends, Some(gate), pump.screen())?;
    ready()?;
    // Should init be gone already, its own message tells why.
    let _ = Message::of(wire::GO).send(opener.as_raw_fd(), None);
    pump.follow(&mut running)?;
    Ok(running.report(pump)?)
}

fn channel() -> Result<(OwnedFd, OwnedFd), JailError> {
    let failed = |errno| JailError::System { what: "make a control channel".into(), errno };
    socket::pair().map(|(a, b)| (own(a), own(b))).map_err(failed)
}

/// Starts a run with the given descriptors 0, 1 and 2 (none: a terminal).
pub fn spawn(spec: &Spec, stdio: Option<[OwnedFd; 3]>) -> Result<Running, JailError> {
    start(spec, stdio, None, None)
}

/// Starts a run whose program waits for a message from `gate`. `screen` is a
/// terminal that the caller is about to change.
fn start(
    spec: &Spec,
    stdio: Option<[OwnedFd; 3]>,
    gate: Option<OwnedFd>,
    screen: Option<OwnedFd>,
) -> Result<Running, JailError> {
    reap_monitors();
    let started = Instant::now();
    let plan = plan(spec)?;
    let spec = &*crate::copied::translate(spec);
    let request = Request::new(spec, plan)?;
    let (control, theirs) = channel()?;
    let copied = request.plan.copied.is_some();
    let descriptors = Descriptors {
        control: theirs,
        sync: channel()?,
        stdio: stdio.as_ref().map(raise_all).transpose()?,
        gate,
        door: if copied { Some(channel()?) } else { None },
        // Without namespaces there is nothing to join.
        join: spec.join.clone().filter(|_| !copied),
        screen,
    };
    let monitor = crate::spawner::launch(&request, &descriptors)
        .map_err(|errno| JailError::System { what: "start the supervisor".into(), errno })?;
    Ok(Running {
        control,
        monitor,
        state: State::default(),
        cwd: spec.cwd.clone(),
        started,
        request,
        allowed: match &spec.network {
            fractal_model::Network::Allow(hosts) => hosts.clone(),
            _ => std::collections::BTreeSet::new(),
        },
    })
}

impl Running {
    /// The supervisor's pid: it lives at least as long as the run.
    pub fn monitor_pid(&self) -> i32 {
        self.monitor.pid()
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: i32) {
        let _ = Message::with(wire::SIGNAL, signal, 0).send(self.control.as_raw_fd(), None);
    }

    /// Ends the run at once.
    pub fn stop(&self, why: Why) {
        let _ = Message::with(wire::STOP, why as i32, 0).send(self.control.as_raw_fd(), None);
    }

    /// Takes in the next message. False when there will be no more.
    pub(crate) fn absorb(&mut self) -> bool {
        let mut received = Message::receive(self.control.as_raw_fd());
        if matches!(received, Err(libc::ECONNRESET)) {
            // The monitor left a request of ours unread because the run was
            // over already; what it said last is still to be read.
            received = Message::receive(self.control.as_raw_fd());
        }
        match received {
            Ok(Some((message, descriptor))) => {
                self.state.take(message, descriptor.map(own));
                !self.is_over()
            }
            _ => false,
        }
    }

    /// A program that was alone has left nobody to wait for: what init and
    /// the monitor still do is their own affair.
    fn is_over(&self) -> bool {
        // Figures of groups are the monitor's to read.
        let has_groups = !self.request.plan.cgroup.dirs.is_empty();
        self.state.over.is_some() || (self.state.alone && !has_groups)
    }

    /// Waits until the program is about to start, or could not be.
    pub fn wait_started(&mut self) -> Result<(), JailError> {
        while !self.state.started && self.state.failure.is_none() && self.absorb() {}
        self.check()
    }

    /// Waits for the end without moving any data.
    pub fn wait(mut self) -> Result<Report, JailError> {
        while self.absorb() {}
        self.report(Pump::idle())
    }

    /// What the monitor does otherwise. A group is busy for a moment after its
    /// last process.
    fn remove_groups(&self) {
        use std::os::unix::ffi::OsStrExt;
        for dir in &self.request.plan.cgroup.dirs {
            let path = std::path::Path::new(std::ffi::OsStr::from_bytes(dir.as_c().to_bytes()));
            for _ in 0..100 {
                if std::fs::remove_dir(path).is_ok() || !path.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }

    fn check(&self) -> Result<(), JailError> {
        let Some(message) = &self.state.failure else { return Ok(()) };
        let what = match message.kind {
            wire::STEP_FAILED => {
                let step = self.request.plan.steps.get(message.a as usize);
                step.map(ToString::to_string).unwrap_or_default()
            }
            _ if message.a == Fence::WorkingDirectory as i32 => {
                return Err(JailError::NoDirectory { path: self.cwd.display().to_string() });
            }
            _ => Fence::word(message.a).to_owned(),
        };
        Err(JailError::System { what, errno: message.b })
    }

    pub(crate) fn report(mut self, pump: Pump) -> Result<Report, JailError> {
        let wall_ms = self.started.elapsed().as_millis() as u64;
        self.check()?;
        let alone = self.state.alone.then_some((child::WHY_ENDED, [0; 6]));
        let (why, group) = match self.state.over.or(alone) {
            Some(over) => over,
            None if self.state.started => {
                // Somebody killed the supervisor, and all inside with it. The
                // program has run, and what it did counts.
                self.remove_groups();
                (WHY_ASKED, [0; 6])
            }
            None => return Err(JailError::Lost),
        };
        let (ended, usage) = match (self.state.exec_errno, self.state.ended) {
            (Some(errno), ended) => (Ended::NotStarted(errno), ended.map(|(_, usage)| usage)),
            (None, Some((status, usage))) => (decode(status), Some(usage)),
            (None, None) => (Ended::Signalled(libc::SIGKILL), None),
        };
        let usage = usage.unwrap_or_default();
        let cpu_us = if group[2] > 0 { group[2] } else { usage[0].max(group[3]) };
        let reached = self.reached(ended, &usage, group[1], &pump);
        let why = match why_of(why) {
            // Init stopped it, whatever else was on its way.
            _ if self.state.memory.is_some() => Why::Memory,
            Why::Ended => pump.stopped.unwrap_or_else(|| blame(ended, reached)),
            why => why,
        };
        let write_errno = pump.write_errno();
        let (output, errors) = pump.into_captured();
        Ok(Report {
            ended,
            why,
            reached,
            wall_ms,
            cpu_ms: cpu_us / 1000,
            memory_peak_bytes: if group[0] > 0 {
                group[0]
            } else {
                usage[1].max(usage[4]).max(self.state.memory.unwrap_or(0))
            },
            io_read_bytes: usage[2],
            io_write_bytes: usage[3],
            output,
            errors,
            write_errno,
            top: self.state.top.take(),
            missing: std::mem::take(&mut self.request.plan.missing),
        })
    }

    fn reached(&self, ended: Ended, usage: &[u64; 6], kills: u64, pump: &Pump) -> Reached {
        // Without a controller an allocation fails before anybody is killed.
        let starved = self.request.memory_watch.is_some_and(|limit| usage[1] >= limit / 10 * 9);
        let failed = ended != Ended::Exited(0);
        Reached {
            memory: self.state.memory.is_some() || kills > 0 || (starved && failed),
            disk: pump.is_disk_full(self.state.top.as_ref()),
        }
    }
}

/// Why a program that nobody stopped ended as it did. One that copes with a
/// limit and succeeds has simply ended.
fn blame(ended: Ended, reached: Reached) -> Why {
    match (ended, reached) {
        (Ended::Exited(0) | Ended::NotStarted(_), _) => Why::Ended,
        (_, Reached { memory: true, .. }) => Why::Memory,
        (_, Reached { disk: true, .. }) => Why::Disk,
        _ => Why::Ended,
    }
}

/// Monitors that were left to finish by themselves: each sees its channel
/// close, ends the run if it still goes on, and cleans up.
static MONITORS: Mutex<Vec<Monitor>> = Mutex::new(Vec::new());

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Message::of(wire::LEAVE).send(self.control.as_raw_fd(), None);
        if let Ok(mut waiting) = MONITORS.lock() {
            waiting.push(std::mem::replace(&mut self.monitor, Monitor::Gone));
        }
    }
}

fn reap_monitors() {
    if let Ok(mut waiting) = MONITORS.lock() {
        waiting.retain(|monitor| !monitor.is_over(false));
    }
}

/// Waits until every finished run of this process is cleaned up.
pub fn settle() {
    let left = MONITORS.lock().map(|mut waiting| std::mem::take(&mut *waiting));
    for monitor in left.unwrap_or_default() {
        monitor.is_over(true);
    }
}

impl State {
    fn take(&mut self, message: Message, descriptor: Option<OwnedFd>) {
        match message.kind {
            wire::PROXY => self.proxy = descriptor,
            wire::DOOR => self.door = descriptor,
            wire::TERMINAL => self.terminal = descriptor,
            wire::STARTED => {
                self.started = true;
                self.top = descriptor;
            }
            wire::MEMORY => self.memory = Some(message.values[0]),
            wire::EXEC_FAILED => self.exec_errno = Some(message.b),
            wire::ENDED => {
                self.ended = Some((message.a, message.values));
                self.alone = message.b != 0;
            }
            wire::OVER => self.over = Some((message.b, message.values)),
            wire::STEP_FAILED | wire::FENCE_FAILED | wire::SETUP_FAILED => {
                self.failure.get_or_insert(message);
            }
            _ => {}
        }
    }
}

fn why_of(number: i32) -> Why {
    const ASKED: [Why; 4] = [Why::Memory, Why::Disk, Why::Output, Why::Time];
    match number {
        child::WHY_ENDED => Why::Ended,
        WHY_TIME => Why::Time,
        other => {
            ASKED.into_iter().find(|why| *why as i32 == other - WHY_ASKED).unwrap_or(Why::Asked)
        }
    }
}

fn decode(status: i32) -> Ended {
    if libc::WIFEXITED(status) {
        Ended::Exited(libc::WEXITSTATUS(status))
    } else {
        Ended::Signalled(libc::WTERMSIG(status))
    }
}

/// Takes ownership of a descriptor that we just received from the kernel.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    fd::own(fd)
}
