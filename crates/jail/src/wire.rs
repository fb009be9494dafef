//! Messages between the caller, the monitor and the init of a run.
//!
//! One fixed-size packet each way, so that both sides of `clone` can handle
//! it without allocating.

use crate::sys::socket;
use crate::sys::{Errno, Sys};
use std::os::fd::RawFd;

/// init → caller: the proxy's listening socket.
pub const PROXY: u32 = 2;
/// init → caller: the door's listening socket.
pub const DOOR: u32 = 14;
/// init → caller: the terminal's master.
pub const TERMINAL: u32 = 3;
/// init → caller: a step failed; a = index, b = errno.
pub const STEP_FAILED: u32 = 4;
/// init → caller: a fence failed; a = which ([`Fence`]), b = errno.
pub const FENCE_FAILED: u32 = 5;
/// program → caller: `exec` failed; b = errno.
pub const EXEC_FAILED: u32 = 6;
/// init → caller: the program ended; a = wait status, b = 1 when it was the
/// last process inside, values = usage.
pub const ENDED: u32 = 7;
/// monitor → caller: all is over; a = wait status of init, b = why,
/// values = cgroup figures.
pub const OVER: u32 = 8;
/// monitor → caller: the run could not be set up; a = stage, b = errno.
pub const SETUP_FAILED: u32 = 9;
/// init → caller: the program is about to start; with the directory of a
/// memory top, if there is one.
pub const STARTED: u32 = 10;
/// init → caller: the memory watch stopped the run.
pub const MEMORY: u32 = 11;
/// init → monitor: the sandbox is built, others may join.
pub const READY: u32 = 12;
/// program → init: where system calls that need an answer are heard.
pub const LISTENER: u32 = 13;
/// caller → monitor: send signal a to the program.
pub const SIGNAL: u32 = 20;
/// caller → monitor: stop the run.
pub const STOP: u32 = 21;
/// caller → monitor: I leave. Who dies cannot say so.
pub const LEAVE: u32 = 22;
/// monitor → init: end everything, and report what it used.
pub const FINISH: u32 = 31;
/// monitor → init: go on.
pub const GO: u32 = 30;
/// somebody → monitor: hand me the namespaces. Answered by the same with the
/// descriptors.
pub const JOIN: u32 = 40;
/// somebody → monitor → init: stop all processes until further notice.
pub const FREEZE: u32 = 41;
/// init → monitor → somebody: they stand still, or b = errno and they go on.
pub const FROZEN: u32 = 42;
/// somebody → monitor → init: let them go on.
pub const THAW: u32 = 43;
/// init → monitor → somebody: they go on; b = errno if one did so before.
pub const THAWED: u32 = 44;
/// somebody → monitor: end the run.
pub const END: u32 = 45;

/// Which part of the set-up a failure message speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Fence {
    UserNamespace = 1,
    Maps = 2,
    Namespaces = 3,
    Cgroup = 4,
    Identity = 5,
    Limits = 6,
    Capabilities = 7,
    Landlock = 8,
    Seccomp = 9,
    WorkingDirectory = 10,
    Terminal = 11,
    Fork = 12,
}

impl Fence {
    /// The word for an error message.
    pub fn word(number: i32) -> &'static str {
        match number {
            1 => "create the user namespace",
            2 => "map user ids",
            3 => "create namespaces",
            4 => "set cgroup limits",
            5 => "switch user",
            6 => "set resource limits",
            7 => "drop capabilities",
            8 => "apply landlock rules",
            9 => "install the seccomp filter",
            10 => "enter the working directory",
            11 => "open a terminal",
            12 => "start a process",
            _ => "start the init process",
        }
    }
}

/// One packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    /// One of the constants above.
    pub kind: u32,
    /// First argument.
    pub a: i32,
    /// Second argument.
    pub b: i32,
    /// Figures.
    pub values: [u64; 6],
}

/// Bytes of a packet.
pub const SIZE: usize = 12 + 6 * 8;

impl Message {
    /// A message without arguments.
    pub fn of(kind: u32) -> Message {
        Message { kind, ..Message::default() }
    }

    /// A message with two arguments.
    pub fn with(kind: u32, a: i32, b: i32) -> Message {
        Message { kind, a, b, ..Message::default() }
    }

    /// Sends it, with a descriptor if there is one.
    pub fn send(&self, socket: RawFd, descriptor: Option<RawFd>) -> Sys<()> {
        socket::send(socket, &self.bytes(), descriptor.as_slice(), 0)
    }

    /// As it travels.
    pub fn bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0u8; SIZE];
        bytes[0..4].copy_from_slice(&self.kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.a.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.b.to_ne_bytes());
        for (slot, value) in bytes[12..].chunks_exact_mut(8).zip(self.values) {
            slot.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    /// Receives one; `None` when the other side is gone.
    pub fn receive(socket: RawFd) -> Result<Option<(Message, Option<RawFd>)>, Errno> {
        let mut bytes = [0u8; SIZE];
        let (count, carried) = socket::receive(socket, &mut bytes, 0)?;
        Ok((count == SIZE).then(|| (Message::from_bytes(&bytes), carried[0])))
    }

    /// What arrived.
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Message {
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let mut message = Message {
            kind: u32::from_ne_bytes(word(0)),
            a: i32::from_ne_bytes(word(4)),
            b: i32::from_ne_bytes(word(8)),
            values: [0; 6],
        };
        for (slot, chunk) in message.values.iter_mut().zip(bytes[12..].chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(chunk);
            *slot = u64::from_ne_bytes(eight);
        }
        message
    }
}
