//! The spawner: a process of ours that splits off monitors on our behalf.
//!
//! Splitting copies the page tables of whoever does it, and afterwards every
//! page that either side writes is copied too. For a long-lived caller with a
//! large memory or many threads that is most of the cost of a start, and each
//! supervisor would keep old pages of the caller's alive. So from its second
//! run on, a process asks its spawner, which was split off once and changes
//! little. A single run, as of a command line, is split off directly.
//!
//! The spawner ends when its caller does: its socket closes. It holds nothing
//! that a run needs, so runs do not mind.

use crate::child::{self, Ready};
use crate::pool::Pool;
use crate::request::{Descriptors, Request, usual_filter};
use crate::run::own;
use crate::sys::{Errno, Sys, fd, process, security, socket};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests that are larger, with a huge environment, are split off directly.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Length, shape and count of descriptors.
const HEADER_BYTES: usize = 6;
/// Pid, errno, and whether something was ready.
const REPLY_BYTES: usize = 9;

/// The supervisor of a run, as we know it.
#[derive(Debug)]
pub enum Monitor {
    /// Our own child.
    Child { pid: i32 },
    /// A child of the spawner's, which reaps it.
    Spawned { pid: i32, pidfd: OwnedFd },
    /// Handed on.
    Gone,
}

impl Monitor {
    pub fn pid(&self) -> i32 {
        match self {
            Monitor::Child { pid } | Monitor::Spawned { pid, .. } => *pid,
            Monitor::Gone => 0,
        }
    }

    /// Whether it has ended, and leaves nothing behind; or waits until then.
    pub fn is_over(&self, wait: bool) -> bool {
        match self {
            Monitor::Child { pid } => !matches!(process::wait(*pid, wait), Ok(None)),
            Monitor::Spawned { pidfd, .. } => {
                let mut ended =
                    [libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
                fd::poll(&mut ended, if wait { -1 } else { 0 }) != Ok(0)
            }
            Monitor::Gone => true,
        }
    }
}

/// Runs of this process that could have had namespaces that were made ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// Those that had.
    pub ready: u64,
    /// Those that had to make them.
    pub fresh: u64,
}

static READY: AtomicU64 = AtomicU64::new(0);
static FRESH: AtomicU64 = AtomicU64::new(0);

/// How often the pool of namespaces had what was wanted.
pub fn starts() -> Starts {
    Starts { ready: READY.load(Ordering::Relaxed), fresh: FRESH.load(Ordering::Relaxed) }
}

/// Lets the first run find a spawner, and its namespaces ready. For processes
/// that will run many things; without it, the second run makes the spawner.
pub fn warm() {
    let Ok(mut state) = SPAWNER.lock() else { return };
    if !matches!(&*state, State::Warm(Some(spawner)) if spawner.maker == maker()) {
        let made = make().ok().map(|socket| Spawner { socket, maker: maker() });
        *state = State::Warm(made);
    }
}

/// Starts the monitor of a run.
pub fn launch(request: &Request, descriptors: &Descriptors) -> Sys<Monitor> {
    let asked = ask(request, descriptors);
    if Pool::serves(&request.plan, descriptors.join.is_some()) {
        let ready = matches!(asked, Some(Ok((_, true))));
        (if ready { &READY } else { &FRESH }).fetch_add(1, Ordering::Relaxed);
    }
    if let Some(asked) = asked {
        return asked.map(|(monitor, _)| monitor);
    }
    request.with_prepared(descriptors, Ready::NOTHING, |prepared| {
        // Nothing may be allocated or freed between the split and the child's
        // function: another thread may hold the allocator's lock at that
        // moment, and the child would wait for ever.
        match process::split(0, 0) {
            Ok(Some(child)) => {
                fd::close(child.pidfd);
                Ok(Monitor::Child { pid: child.pid })
            }
            Ok(None) => child::monitor(prepared),
            Err(errno) => Err(errno),
        }
    })
}

/// Our spawner, and who made it: a process that was forked from the maker, or
/// took on another identity, makes its own.
struct Spawner {
    socket: OwnedFd,
    maker: (u32, u32, u32),
}

fn maker() -> (u32, u32, u32) {
    let (uid, gid) = process::effective_ids();
    (std::process::id(), uid, gid)
}

enum State {
    /// Nothing has run in this process.
    Cold,
    /// Something has.
    Warm(Option<Spawner>),
}

static SPAWNER: Mutex<State> = Mutex::new(State::Cold);

/// Asks the spawner; `None` when the caller must split by itself, and nothing
/// has been started.
fn ask(request: &Request, descriptors: &Descriptors) -> Option<Sys<(Monitor, bool)>> {
    let mut state = SPAWNER.lock().ok()?;
    let State::Warm(spawner) = &mut *state else {
        *state = State::Warm(None);
        return None;
    };
    let body =
        postcard::to_allocvec(request).ok().filter(|body| body.len() <= REQUEST_BYTES_MAX)?;
    if spawner.as_ref().is_none_or(|spawner| spawner.maker != maker()) {
        *spawner = Some(Spawner { socket: make().ok()?, maker: maker() });
    }
    let socket = spawner.as_ref()?.socket.as_raw_fd();
    if send(socket, &body, descriptors).is_err() {
        // Half a request starts nothing.
        *spawner = None;
        return None;
    }
    let answer = receive_reply(socket);
    if answer.is_err() {
        *spawner = None;
    }
    Some(answer)
}

fn send(socket: RawFd, body: &[u8], descriptors: &Descriptors) -> Sys<()> {
    let list = descriptors.list();
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    header[4] = descriptors.shape();
    header[5] = list.len() as u8;
    socket::send(socket, &header, &list, 0)?;
    socket::send_whole(socket, body)
}

/// The monitor, and whether its namespaces were ready.
fn receive_reply(socket: RawFd) -> Sys<(Monitor, bool)> {
    let mut reply = [0; REPLY_BYTES];
    let (count, list) = socket::receive(socket, &mut reply, libc::MSG_WAITALL)?;
    let pidfd = list.into_iter().flatten().next().map(own);
    let number =
        |at: usize| i32::from_le_bytes([reply[at], reply[at + 1], reply[at + 2], reply[at + 3]]);
    match (count, pidfd) {
        (REPLY_BYTES, Some(pidfd)) => {
            Ok((Monitor::Spawned { pid: number(0), pidfd }, reply[8] != 0))
        }
        (REPLY_BYTES, None) if number(4) != 0 => Err(number(4)),
        _ => Err(libc::EPIPE),
    }
}

/// Splits the spawner off, twice, so that it is nobody's child to wait for.
fn make() -> Sys<OwnedFd> {
    usual_filter();
    let (ours, theirs) = socket::stream_pair()?;
    let (ours, theirs) = (own(ours), own(theirs));
    process::fork_detached(|| serve(theirs.as_raw_fd()))?;
    Ok(ours)
}

/// The spawner itself. It may allocate: the C library's `fork` saw to that.
fn serve(socket: RawFd) -> ! {
    process::block_signals();
    let _ = process::new_session();
    let _ = fd::chdir(c"/");
    security::set_name(c"fractal-spawner");
    let Ok(socket) = fd::dup_above(socket, 10) else { process::exit_now(125) };
    fd::close_all_except(&[socket]);
    // Descriptors that arrive must not take the numbers of the standard ones,
    // which the program's are put on later.
    while fd::open(c"/dev/null", libc::O_RDWR, 0).is_ok_and(|fd| fd < 2) {}
    // Ended monitors vanish by themselves.
    process::ignore_children(true);
    let mut pool = Pool::new();
    loop {
        fill_while_idle(socket, &mut pool);
        let Some((request, descriptors)) = receive(socket) else { break };
        let joins = descriptors.join.is_some();
        let ready = pool.as_mut().map_or(Ready::NOTHING, |pool| pool.take(&request.plan, joins));
        let started = request.with_prepared(&descriptors, ready, |prepared| {
            match process::split(0, libc::SIGCHLD) {
                Ok(None) => {
                    process::ignore_children(false);
                    child::monitor(prepared)
                }
                other => other,
            }
        });
        ready.fds().for_each(fd::close);
        if reply(socket, started, ready != Ready::NOTHING).is_err() {
            break;
        }
    }
    process::exit_now(0)
}

/// Makes namespaces ahead until somebody asks for something. A run that was
/// just started has the processors first.
fn fill_while_idle(socket: RawFd, pool: &mut Option<Pool>) {
    const QUIET_MS: i32 = 4;
    let Some(pool) = pool else { return };
    let mut asked = [libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 }];
    while pool.wants_more() && fd::poll(&mut asked, QUIET_MS) == Ok(0) {
        pool.fill();
    }
}

fn receive(socket: RawFd) -> Option<(Request, Descriptors)> {
    let mut header = [0; HEADER_BYTES];
    let (count, list) = socket::receive(socket, &mut header, libc::MSG_WAITALL).ok()?;
    let list: Vec<OwnedFd> = list.into_iter().flatten().map(own).collect();
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let fits = length <= REQUEST_BYTES_MAX && list.len() == usize::from(header[5]);
    if count != HEADER_BYTES || !fits {
        return None;
    }
    let mut body = vec![0; length];
    fd::read_whole(socket, &mut body).ok()?;
    let request: Request = postcard::from_bytes(&body).ok()?;
    let descriptors = Descriptors::from_list(header[4], list)?;
    Some((request, descriptors))
}

fn reply(socket: RawFd, started: Sys<Option<process::Child>>, ready: bool) -> Sys<()> {
    let answer = |pid: i32, errno: Errno| {
        let mut bytes = [0; REPLY_BYTES];
        bytes[..4].copy_from_slice(&pid.to_le_bytes());
        bytes[4..8].copy_from_slice(&errno.to_le_bytes());
        bytes[8] = u8::from(ready);
        bytes
    };
    match started {
        Ok(Some(child)) => {
            let sent = socket::send(socket, &answer(child.pid, 0), &[child.pidfd], 0);
            fd::close(child.pidfd);
            sent
        }
        Ok(None) => Err(libc::EINVAL),
        Err(errno) => socket::send(socket, &answer(0, errno), &[], 0),
    }
}
