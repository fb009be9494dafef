//! What differs without namespaces: who adopts orphans, and how all of a run
//! comes to an end.
//!
//! No pid namespace ends with init. Monitor and init are both subreapers, so
//! whatever a program starts, in whatever session, stays below one of them.
//! Each notices the other's end: the monitor by init's pidfd, init by the
//! closed channel. Whoever is left kills all that descends from it.

use super::Prepared;
use super::deputy::Deputy;
use super::init::{give_up, obey, report_ended};
use crate::sys::{Sys, fd, notify, process, security};
use crate::watch;
use crate::wire::{self, Message};
use std::os::fd::RawFd;

/// The monitor inherits what init leaves.
pub(super) fn prepare_monitor(prepared: &Prepared<'_>) {
    if prepared.door.is_some() {
        let _ = security::adopt_orphans();
    }
}

/// Init inherits what the program leaves, and outlives the monitor for as long
/// as it takes to end it. It acts for the program, so it keeps no privileges
/// that the program has not.
pub(super) fn prepare_init(prepared: &Prepared<'_>) -> Sys<()> {
    if prepared.door.is_none() {
        return Ok(());
    }
    security::adopt_orphans()?;
    security::outlive_parent();
    security::keep_capabilities(0)
}

/// The program's filter; calls that init answers are heard at the door.
pub(super) fn install_filter(prepared: &Prepared<'_>) -> Sys<()> {
    let Some((_, door)) = prepared.door else {
        return security::install_filter(prepared.filter);
    };
    let listener = notify::install_listening(prepared.filter)?;
    Message::of(wire::LISTENER).send(door, Some(listener))
}

/// Init's work while the program runs: answers its calls, reaps, forwards
/// signals, and reports when the program ends.
pub(super) fn attend(
    prepared: &Prepared<'_>,
    program: i32,
    child_signals: RawFd,
    (door, program_end): (RawFd, RawFd),
) -> ! {
    fd::close(program_end);
    let listener = match Message::receive(door) {
        Ok(Some((message, Some(listener)))) if message.kind == wire::LISTENER => listener,
        // It did not come as far as the filter and says so itself.
        _ => -1,
    };
    fd::close(door);
    let mut deputy = Deputy::new(listener, &prepared.plan.landlock);
    let mut watch = MemoryWatch { next_ms: 0, peak_bytes: 0 };
    let mut frozen = false;
    loop {
        let mut polled = [
            libc::pollfd { fd: child_signals, events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: prepared.sync.1, events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: deputy.listener, events: libc::POLLIN, revents: 0 },
        ];
        let wait_ms =
            if prepared.memory_watch.is_some() { MemoryWatch::PAUSE_MS as i32 } else { -1 };
        let _ = fd::poll(&mut polled, wait_ms);
        if polled[2].revents != 0 {
            deputy.answer_one(polled[2].revents);
        }
        if polled[1].revents != 0 {
            match Message::receive(prepared.sync.1) {
                Ok(Some((message, _))) => obey(prepared, &message, program, &mut frozen),
                // The monitor is gone, and nobody else ends what is left.
                _ => {
                    end_descendants(prepared);
                    process::exit_now(125)
                }
            }
        }
        if polled[0].revents != 0 {
            let _ = fd::read(child_signals, &mut [0u8; 128]);
        }
        while !frozen && let Ok(Some((ended, _))) = process::wait(-1, false) {
            if let Some(stop) = process::stop_of(ended.status) {
                let _ = process::untrace(ended.pid, stop);
            } else if ended.pid == program {
                // Whoever is left is ended by the monitor, who tells.
                report_ended(prepared, ended.status, false, watch.peak_bytes);
                process::exit_now(0);
            }
        }
        watch.look(prepared);
    }
}

/// Adds up the memory of the family, which means a look at every process of
/// the machine: never for more than a small share of the time.
struct MemoryWatch {
    next_ms: u64,
    peak_bytes: u64,
}

impl MemoryWatch {
    const PAUSE_MS: u64 = 20;

    fn look(&mut self, prepared: &Prepared<'_>) {
        let start = process::monotonic_ms();
        let Some(limit) = prepared.memory_watch.filter(|_| start >= self.next_ms) else { return };
        let used = watch::memory_below(process::own_pid());
        self.peak_bytes = used.max(self.peak_bytes);
        if used > limit {
            let mut message = Message::of(wire::MEMORY);
            message.values[0] = used;
            give_up(prepared, message);
        }
        let end = process::monotonic_ms();
        self.next_ms = end + Self::PAUSE_MS.max((end - start) * 4);
    }
}

/// Kills everything that descends from this process until nothing is left.
pub(super) fn end_descendants(prepared: &Prepared<'_>) {
    let own = process::own_pid();
    loop {
        loop {
            match process::wait(-1, false) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                // No children, so no descendants either.
                Err(_) => return,
            }
        }
        if let Some(kill) = &prepared.plan.cgroup.kill {
            let _ = fd::write_file(kill.as_c(), b"1");
        }
        watch::each_process(&mut |_, _, pid| kill_descendant(pid, own));
        process::sleep_ms(1);
    }
}

/// The descriptor pins the process: what is found out about the number while
/// the process lives is true of the process.
fn kill_descendant(pid: i32, own: i32) {
    if !watch::descends(pid, own) {
        return;
    }
    let Ok(pidfd) = process::open_pidfd(pid) else { return };
    if watch::descends(pid, own) {
        let _ = process::kill_pidfd(pidfd, libc::SIGKILL);
    }
    fd::close(pidfd);
}
