//! The caller's side of a run: prepare, split off the monitor, follow along.

use crate::cgroup::{CgroupPlan, Controllers};
use crate::child::{self, Prepared, WHY_ASKED, WHY_TIME};
use crate::host::Facts;
use crate::plan::Plan;
use crate::pump::{Captured, Pump, Streams};
use crate::spec::{Spec, Top};
use crate::step::Step;
use crate::sys::{fd, process, socket};
use crate::wire::{self, Fence, Message};
use crate::{JailError, seccomp};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
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

/// Everything known after a run.
#[derive(Debug)]
pub struct Report {
    /// How the program ended.
    pub ended: Ended,
    /// Why the run was stopped, if it was.
    pub why: Why,
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
    /// The memory top's directory, readable until it is closed.
    pub top: Option<OwnedFd>,
    /// Fences that this machine cannot put up.
    pub missing: Vec<String>,
}

/// A run under way. Dropping it stops the run.
#[derive(Debug)]
pub struct Running {
    pub(crate) control: OwnedFd,
    monitor: process::Child,
    pub(crate) state: State,
    cwd: String,
    missing: Vec<String>,
    started: Instant,
    steps: Vec<String>,
    memory_watch: Option<u64>,
    pub(crate) allowed: std::collections::BTreeSet<String>,
}

/// What the messages so far said.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub top: Option<OwnedFd>,
    pub proxy: Option<OwnedFd>,
    pub terminal: Option<OwnedFd>,
    pub started: bool,
    pub memory: Option<u64>,
    pub exec_errno: Option<i32>,
    pub ended: Option<(i32, [u64; 6])>,
    pub over: Option<(i32, i32, [u64; 6])>,
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
    let mut running = spawn(spec, ends)?;
    pump.follow(&mut running)?;
    running.report(pump)
}

/// Starts a run with the given descriptors 0, 1 and 2 (none: a terminal).
pub fn spawn(spec: &Spec, stdio: Option<[OwnedFd; 3]>) -> Result<Running, JailError> {
    reap_monitors();
    let started = Instant::now();
    let plan = plan(spec)?;
    let spec = &*crate::copied::translate(spec);
    let system = |what: &str| {
        let what = what.to_owned();
        move |errno: i32| JailError::System { what, errno }
    };
    let (ours, theirs) = socket::pair().map_err(system("make a control channel"))?;
    let (ours, theirs) = (own(ours), own(theirs));
    let (sync_a, sync_b) = socket::pair().map_err(system("make a control channel"))?;
    let (sync_a, sync_b) = (own(sync_a), own(sync_b));
    let stdio_raw =
        stdio.as_ref().map(raise_all).transpose().map_err(system("copy descriptors"))?;

    let argv_text =
        spec.command.iter().map(|word| c_string(word)).collect::<Result<Vec<_>, _>>()?;
    let env_text =
        spec.env.iter().map(|(key, value)| env_entry(key, value)).collect::<Result<Vec<_>, _>>()?;
    let programs = candidates(spec)?;
    let argv = pointers(&argv_text);
    let envp = pointers(&env_text);
    let shell = [c"sh".to_owned(), c"".to_owned()];
    let mut shell_argv: Vec<*const libc::c_char> = shell.iter().map(|text| text.as_ptr()).collect();
    shell_argv.extend(argv.iter().skip(1));
    let filter = seccomp::program(plan.copied);
    let door = plan.copied.map(|_| socket::pair()).transpose();
    let door = door.map_err(system("make a control channel"))?.map(|(a, b)| (own(a), own(b)));
    let cwd = c_string(spec.cwd.as_os_str())?;
    let marker = dirty_marker(spec)?;
    let locked_dirs = locked_dirs(spec, &plan)?;
    let living_file = spec.living_file().map(|path| c_string(path.as_os_str())).transpose()?;
    let mut keep: Vec<RawFd> = vec![theirs.as_raw_fd(), sync_a.as_raw_fd(), sync_b.as_raw_fd()];
    keep.extend(stdio_raw.iter().flatten().map(AsRawFd::as_raw_fd));
    keep.extend(plan.join.iter().flatten());
    keep.extend(door.iter().flat_map(|(a, b)| [a.as_raw_fd(), b.as_raw_fd()]));
    keep.sort_unstable();
    let prepared = Prepared {
        plan: &plan,
        filter: &filter,
        programs: &programs,
        argv: &argv,
        shell_argv: &shell_argv,
        envp: &envp,
        cwd: &cwd,
        control: theirs.as_raw_fd(),
        sync: (sync_a.as_raw_fd(), sync_b.as_raw_fd()),
        stdio: stdio_raw
            .as_ref()
            .map(|fds| [fds[0].as_raw_fd(), fds[1].as_raw_fd(), fds[2].as_raw_fd()]),
        door: door.as_ref().map(|(a, b)| (a.as_raw_fd(), b.as_raw_fd())),
        keep: &keep,
        deadline_ms: spec.limits.time_ms.map(|ms| process::monotonic_ms().saturating_add(ms)),
        memory_watch: spec.limits.memory_bytes.filter(|_| !plan.cgroup.limits_memory),
        locked_dirs: &locked_dirs,
        dirty_marker: marker.as_ref().map(|(marker, _)| marker.as_c_str()),
        living_file: living_file.as_deref(),
        sync_dir: marker.as_ref().map(|(_, dir)| dir.as_c_str()),
    };
    // Nothing may be allocated or freed between the split and the child's
    // function, not even a closure for an error: another thread may hold the
    // allocator's lock at that moment, and the child would wait for ever.
    let monitor = match process::split(0, 0) {
        Ok(Some(monitor)) => monitor,
        Ok(None) => child::monitor(&prepared),
        Err(errno) => return Err(system("start the supervisor")(errno)),
    };
    Ok(Running {
        control: ours,
        monitor,
        state: State::default(),
        cwd: spec.cwd.display().to_string(),
        missing: plan.missing.clone(),
        started,
        steps: plan.steps.iter().map(ToString::to_string).collect(),
        memory_watch: prepared.memory_watch,
        allowed: match &spec.network {
            fractal_model::Network::Allow(hosts) => hosts.clone(),
            _ => std::collections::BTreeSet::new(),
        },
    })
}

impl Running {
    /// The supervisor's pid: it lives at least as long as the run.
    pub fn monitor_pid(&self) -> i32 {
        self.monitor.pid
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
                self.state.over.is_none()
            }
            _ => false,
        }
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

    fn check(&self) -> Result<(), JailError> {
        let Some(message) = &self.state.failure else { return Ok(()) };
        let what = match message.kind {
            wire::STEP_FAILED => self.steps.get(message.a as usize).cloned().unwrap_or_default(),
            _ if message.a == Fence::WorkingDirectory as i32 => {
                return Err(JailError::NoDirectory { path: self.cwd.clone() });
            }
            _ => Fence::word(message.a).to_owned(),
        };
        Err(JailError::System { what, errno: message.b })
    }

    pub(crate) fn report(mut self, pump: Pump) -> Result<Report, JailError> {
        let wall_ms = self.started.elapsed().as_millis() as u64;
        self.check()?;
        let (_, why, group) = self.state.over.ok_or(JailError::Lost)?;
        let (ended, usage) = match (self.state.exec_errno, self.state.ended) {
            (Some(errno), ended) => (Ended::NotStarted(errno), ended.map(|(_, usage)| usage)),
            (None, Some((status, usage))) => (decode(status), Some(usage)),
            (None, None) => (Ended::Signalled(libc::SIGKILL), None),
        };
        let usage = usage.unwrap_or_default();
        let cpu_us = if group[2] > 0 { group[2] } else { usage[0].max(group[3]) };
        let failed = ended != Ended::Exited(0);
        // Without a controller an allocation fails before anybody is killed.
        let starved = self.memory_watch.is_some_and(|limit| usage[1] >= limit / 10 * 9);
        let by_itself = why == child::WHY_ENDED;
        let why =
            if self.state.memory.is_some() || ((group[1] > 0 || starved) && failed && by_itself) {
                Why::Memory
            } else {
                pump.stopped.filter(|_| by_itself).unwrap_or_else(|| why_of(why))
            };
        let (output, errors) = pump.into_captured();
        Ok(Report {
            ended,
            why,
            wall_ms,
            cpu_ms: cpu_us / 1000,
            memory_peak_bytes: if group[0] > 0 {
                group[0]
            } else {
                usage[1].max(self.state.memory.unwrap_or(0))
            },
            io_read_bytes: usage[2],
            io_write_bytes: usage[3],
            output,
            errors,
            top: self.state.top.take(),
            missing: std::mem::take(&mut self.missing),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The monitor sees the channel close and ends the run; it is reaped
        // later, so that nobody waits for mounts to be torn down.
        fd::close(self.monitor.pidfd);
        if let Ok(mut waiting) = MONITORS.lock() {
            waiting.push(self.monitor.pid);
        }
    }
}

/// Monitors that were left to finish by themselves.
static MONITORS: std::sync::Mutex<Vec<i32>> = std::sync::Mutex::new(Vec::new());

fn reap_monitors() {
    if let Ok(mut waiting) = MONITORS.lock() {
        waiting.retain(|pid| matches!(process::wait(*pid, false), Ok(None)));
    }
}

/// Waits until every finished run of this process is cleaned up.
pub fn settle() {
    if let Ok(mut waiting) = MONITORS.lock() {
        for pid in waiting.drain(..) {
            let _ = process::wait(pid, true);
        }
    }
}

impl State {
    fn take(&mut self, message: Message, descriptor: Option<OwnedFd>) {
        match message.kind {
            wire::TOP => self.top = descriptor,
            wire::PROXY => self.proxy = descriptor,
            wire::TERMINAL => self.terminal = descriptor,
            wire::STARTED => self.started = true,
            wire::MEMORY => self.memory = Some(message.values[0]),
            wire::EXEC_FAILED => self.exec_errno = Some(message.b),
            wire::ENDED => self.ended = Some((message.a, message.values)),
            wire::OVER => self.over = Some((message.a, message.b, message.values)),
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

/// Copies of three descriptors with numbers above 2, so that putting them in
/// place cannot overwrite one that is still needed.
fn raise_all(fds: &[OwnedFd; 3]) -> Result<[OwnedFd; 3], i32> {
    let raise = |fd: &OwnedFd| fd::dup_above(fd.as_raw_fd(), 10).map(own);
    Ok([raise(&fds[0])?, raise(&fds[1])?, raise(&fds[2])?])
}

fn c_string(text: &OsStr) -> Result<CString, JailError> {
    CString::new(text.as_bytes()).map_err(|_| JailError::NulInPath)
}

fn env_entry(key: &OsStr, value: &OsStr) -> Result<CString, JailError> {
    CString::new([key.as_bytes(), b"=", value.as_bytes()].concat())
        .map_err(|_| JailError::NulInPath)
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Where the program may be: its own path, or each directory of `PATH`.
fn candidates(spec: &Spec) -> Result<Vec<CString>, JailError> {
    let Some(program) = spec.command.first().filter(|program| !program.is_empty()) else {
        return Ok(Vec::new());
    };
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    let default = OsStr::new("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let path = spec.env.iter().find(|(key, _)| key == "PATH").map_or(default, |(_, value)| value);
    let dirs = path.as_bytes().split(|byte| *byte == b':');
    dirs.map(|dir| c_string(Path::new(OsStr::from_bytes(dir)).join(program).as_os_str())).collect()
}

/// What a `volatile` overlay leaves in its work directory, with no rights for
/// anybody; outermost first.
pub const LOCKED_IN_WORK: [&str; 3] = ["work", "work/incompat", "work/incompat/volatile"];

/// The kernel's part of each overlay's work directory, outside the sandbox.
fn locked_dirs(spec: &Spec, plan: &Plan) -> Result<Vec<CString>, JailError> {
    let mut dirs = Vec::new();
    for step in &plan.steps {
        let Step::Overlay(overlay) = step else { continue };
        let work = overlay.upper.as_ref().map(|(_, work)| work.to_bytes());
        let Some(inside) = work.and_then(|work| work.strip_prefix(b"layers/")) else { continue };
        let work = spec.stack.layers_dir.join(OsStr::from_bytes(inside));
        for path in LOCKED_IN_WORK {
            dirs.push(c_string(work.join(path).as_os_str())?);
        }
    }
    Ok(dirs)
}

/// The marker that says "not yet on disk", and the directory to sync.
fn dirty_marker(spec: &Spec) -> Result<Option<(CString, CString)>, JailError> {
    let Top::Disk(name) = &spec.stack.top else { return Ok(None) };
    let layer = spec.stack.layers_dir.join(name);
    let marker = layer.join(format!("dirty-{}", spec.label));
    Ok(Some((c_string(marker.as_os_str())?, c_string(layer.as_os_str())?)))
}
