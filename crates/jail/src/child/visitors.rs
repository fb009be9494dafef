//! The monitor's socket in the layer's directory, through which other
//! processes reach a living run: to join it, to freeze it, to end it.
//!
//! Whoever may open the state directory may do all three anyway; a caller of
//! another user is sent away. Nothing here ever waits for a visitor: their
//! sockets do not block, there is a fixed number of them, and each has a
//! deadline. One at a time holds the processes frozen; when that visitor goes,
//! in whatever way, they go on.

use super::{Held, Prepared};
use crate::sys::{Sys, fd, local, process, socket};
use crate::wire::{self, Message, SIZE};
use std::ffi::CStr;
use std::os::fd::RawFd;

/// Visitors at once; more wait in the queue of the socket.
pub(super) const VISITORS_MAX: usize = 8;

/// How long a visitor may take to say what they want.
const GREETING_MS_MAX: u64 = 1000;

/// How long it may take to serve them.
const SERVICE_MS_MAX: u64 = 10_000;

/// How long processes are held frozen for a visitor.
const HOLD_MS_MAX: u64 = 120_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// Not said yet.
    Unknown,
    /// Wants the processes frozen.
    Freeze,
    /// Has them frozen, or is just getting it.
    Hold,
    /// Waits to hear that they go on.
    Thaw,
}

#[derive(Clone, Copy)]
struct Visitor {
    fd: RawFd,
    wish: Wish,
    until_ms: u64,
}

const NOBODY: Visitor = Visitor { fd: -1, wish: Wish::Unknown, until_ms: u64::MAX };

/// What init was told last. It gets no second order before it has answered
/// the first, so the channel to it never fills.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Moving,
    Freezing,
    Frozen,
    Thawing,
}

pub(super) struct Visitors {
    listener: RawFd,
    list: [Visitor; VISITORS_MAX],
    phase: Phase,
    /// The channel to init.
    init: RawFd,
}

impl Visitors {
    pub fn new(init: RawFd) -> Visitors {
        Visitors { listener: -1, list: [NOBODY; VISITORS_MAX], phase: Phase::Moving, init }
    }

    /// Opens the door, once there is something behind it.
    pub fn open(&mut self, prepared: &Prepared<'_>) {
        let (Some(dir), Some(path)) = (prepared.sync_dir, prepared.living_file) else { return };
        let Ok(dir) = fd::open(dir, libc::O_PATH | libc::O_DIRECTORY, 0) else { return };
        let mask = fd::set_mask(0o177);
        self.listener = local::listen_in(dir, last_part(path)).unwrap_or(-1);
        fd::set_mask(mask);
        fd::close(dir);
    }

    /// The run is over: nobody has to wait until all is cleaned up.
    pub fn close(&mut self) {
        fd::close(self.listener);
        self.list.iter().for_each(|visitor| fd::close(visitor.fd));
    }

    /// What to wait for: the socket if there is room, then the visitors.
    pub fn polled(&self) -> [libc::pollfd; VISITORS_MAX + 1] {
        let wait = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let room = self.list.iter().any(|visitor| visitor.fd < 0);
        let mut polled = [wait(if room { self.listener } else { -1 }); VISITORS_MAX + 1];
        for (slot, visitor) in polled[1..].iter_mut().zip(&self.list) {
            slot.fd = visitor.fd;
        }
        polled
    }

    /// When the next visitor's patience or ours ends.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.list.iter().map(|visitor| visitor.until_ms).min().filter(|ms| *ms != u64::MAX)
    }

    /// Serves whoever has something to say; true when the run is to end.
    pub fn serve(&mut self, polled: &[libc::pollfd], held: &Held) -> bool {
        let now = process::monotonic_ms();
        let mut end = false;
        for (index, poll) in polled[1..].iter().enumerate() {
            if poll.revents != 0 && self.list[index].fd >= 0 {
                end |= self.hear(index, now, held);
            }
            if self.list[index].until_ms <= now {
                self.see_off(index);
            }
        }
        if polled[0].revents != 0 {
            self.greet(now);
        }
        end
    }

    /// Takes init's answer.
    pub fn answered(&mut self, message: &Message) {
        match (message.kind, self.phase) {
            (wire::FROZEN, Phase::Freezing) => {
                self.phase = if message.b == 0 { Phase::Frozen } else { Phase::Moving };
                let holder = self.find(Wish::Hold);
                if let Some(index) = holder {
                    self.list[index].until_ms = process::monotonic_ms() + HOLD_MS_MAX;
                    if message.send(self.list[index].fd, None).is_err() || message.b != 0 {
                        self.see_off(index);
                    }
                }
                if holder.is_none() {
                    self.release();
                }
            }
            (wire::THAWED, Phase::Thawing) => {
                self.phase = Phase::Moving;
                if let Some(index) = self.find(Wish::Thaw) {
                    let _ = message.send(self.list[index].fd, None);
                    self.see_off(index);
                }
            }
            _ => {}
        }
        self.freeze_next();
    }

    fn greet(&mut self, now: u64) {
        let Some(index) = self.list.iter().position(|visitor| visitor.fd < 0) else { return };
        let Ok(fd) = local::accept(self.listener) else { return };
        let (own, _) = process::effective_ids();
        if !local::peer_uid(fd).is_ok_and(|peer| peer == own || peer == 0) {
            return fd::close(fd);
        }
        self.list[index] = Visitor { fd, wish: Wish::Unknown, until_ms: now + GREETING_MS_MAX };
    }

    fn hear(&mut self, index: usize, now: u64, held: &Held) -> bool {
        let mut bytes = [0u8; SIZE];
        let Visitor { fd, wish, .. } = self.list[index];
        let whole = local::receive_plain(fd, &mut bytes) == Ok(SIZE);
        let kind = if whole { Message::from_bytes(&bytes).kind } else { 0 };
        match (kind, wish) {
            (wire::JOIN, Wish::Unknown) => {
                let _ = hand_over(fd, held);
                self.see_off(index);
            }
            (wire::FREEZE, Wish::Unknown) => {
                let until_ms = now + SERVICE_MS_MAX;
                self.list[index] = Visitor { fd, wish: Wish::Freeze, until_ms };
                self.freeze_next();
            }
            (wire::THAW, Wish::Hold) if self.phase == Phase::Frozen => {
                let until_ms = now + SERVICE_MS_MAX;
                self.list[index] = Visitor { fd, wish: Wish::Thaw, until_ms };
                self.release();
            }
            (wire::END, Wish::Unknown) => {
                self.see_off(index);
                return true;
            }
            _ => self.see_off(index),
        }
        false
    }

    /// Closes a visitor's socket; what they held frozen goes on.
    fn see_off(&mut self, index: usize) {
        let Visitor { fd, wish, .. } = self.list[index];
        fd::close(fd);
        self.list[index] = NOBODY;
        if wish == Wish::Hold {
            self.release();
        }
    }

    fn release(&mut self) {
        // While it is freezing, the answer finds nobody who holds and comes
        // back here.
        if self.phase == Phase::Frozen && self.tell(wire::THAW) {
            self.phase = Phase::Thawing;
        }
    }

    fn freeze_next(&mut self) {
        let Some(index) = self.find(Wish::Freeze).filter(|_| self.phase == Phase::Moving) else {
            return;
        };
        if self.tell(wire::FREEZE) {
            self.list[index].wish = Wish::Hold;
            self.phase = Phase::Freezing;
        }
    }

    fn find(&self, wish: Wish) -> Option<usize> {
        self.list.iter().position(|visitor| visitor.fd >= 0 && visitor.wish == wish)
    }

    fn tell(&self, order: u32) -> bool {
        Message::of(order).send(self.init, None).is_ok()
    }
}

/// Hands out the namespaces. One that could not be opened cannot be shared.
fn hand_over(visitor: RawFd, held: &Held) -> Sys<()> {
    if held.contains(&-1) {
        return Err(libc::EBADF);
    }
    socket::send(visitor, &Message::of(wire::JOIN).bytes(), held, libc::MSG_DONTWAIT)
}

fn last_part(path: &CStr) -> &CStr {
    let bytes = path.to_bytes_with_nul();
    let start = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    CStr::from_bytes_with_nul(&bytes[start..]).unwrap_or(path)
}
