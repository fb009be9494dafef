//! Init: pid 1 inside. Builds, starts the program, reaps, reports.

use super::freeze::{freeze, thaw};
use super::program::program;
use super::{Held, Prepared, usage_cpu_us};
use crate::step::{Slots, Step};
use crate::sys::{Errno, Sys, fd, process, security};
use crate::wire::{self, Fence, Message};
use std::os::fd::RawFd;

/// Pid 1 of the sandbox.
pub(super) fn init(prepared: &Prepared<'_>, user_namespace: RawFd, living: Held) -> ! {
    fd::close(prepared.sync.0);
    // A terminal of the host, which nobody inside may ever hold.
    prepared.screen.into_iter().for_each(fd::close);
    if prepared.ready.network >= 0 {
        // It comes again with the monitor's message.
        fd::close(prepared.ready.network);
    }
    security::set_name(c"fractal-init");
    let rootless = user_namespace == -1;
    let _ = security::die_with_parent();
    if let Err(errno) = join_groups(prepared) {
        give_up(prepared, Message::with(wire::FENCE_FAILED, Fence::Cgroup as i32, errno));
    }
    if rootless {
        // The id maps must be there before the first step.
        let _ = meet(prepared);
    }
    // The caller's keyring stays outside; a kernel without keyrings is fine.
    let _ = security::new_keyring();
    let mask = fd::set_mask(0);
    let mut slots = Slots::new(user_namespace, prepared.control, living);
    for (index, step) in prepared.plan.steps.iter().enumerate() {
        let done = match step {
            Step::Meet => meet(prepared),
            step => step.execute(&mut slots),
        };
        if let Err(errno) = done {
            give_up(prepared, Message::with(wire::STEP_FAILED, index as i32, errno));
        }
    }
    fd::set_mask(mask);
    if prepared.living_file.is_some() {
        let _ = Message::of(wire::READY).send(prepared.sync.1, None);
    }
    if !rootless {
        // Only now does our own group lie at the root of what we may see.
        let _ = process::unshare(libc::CLONE_NEWCGROUP);
        if let Err(errno) = enter_user(user_namespace) {
            give_up(prepared, Message::with(wire::FENCE_FAILED, Fence::Identity as i32, errno));
        }
    }
    security::hide_memory();
    // A change of user clears the wish to die with the parent: last of all.
    let _ = security::die_with_parent();
    if let Err(errno) = super::copied::prepare_init(prepared) {
        give_up(prepared, Message::with(wire::FENCE_FAILED, Fence::Capabilities as i32, errno));
    }
    let stdio = open_stdio(prepared);
    let child_signals = process::child_signal_fd().unwrap_or(-1);
    if let Some(gate) = prepared.gate {
        // Closed without a message: the caller cannot go on, or died.
        if !matches!(Message::receive(gate), Ok(Some(_))) {
            process::exit_now(125);
        }
        fd::close(gate);
    }
    let _ = Message::of(wire::STARTED).send(prepared.control, slots.top);
    slots.top.into_iter().for_each(fd::close);
    let mut become_it = || -> i32 { program(prepared, stdio) };
    match process::start_sharing_memory(&mut become_it, libc::SIGCHLD) {
        Ok(child) => {
            stdio.iter().for_each(|fd| fd::close(*fd));
            match prepared.door {
                Some(door) => super::copied::attend(prepared, child, child_signals, door),
                None => reap(prepared, child, child_signals),
            }
        }
        Err(errno) => {
            give_up(prepared, Message::with(wire::FENCE_FAILED, Fence::Fork as i32, errno))
        }
    }
}

pub(super) fn give_up(prepared: &Prepared<'_>, message: Message) -> ! {
    let _ = message.send(prepared.control, None);
    process::exit_now(125)
}

/// Joins the groups that the monitor made. A thread that moves itself is a
/// matter of microseconds; moving another process makes the kernel wait for
/// every processor.
fn join_groups(prepared: &Prepared<'_>) -> Sys<()> {
    prepared.plan.cgroup.procs.iter().try_for_each(|file| fd::write_file(file.as_c(), b"0"))
}

/// Waits until the monitor has done its part, and moves into the network
/// namespace it made. Without a monitor nobody supervises us.
fn meet(prepared: &Prepared<'_>) -> Sys<()> {
    match Message::receive(prepared.sync.1) {
        Ok(Some((message, network))) if message.kind == wire::GO => match network {
            Some(network) => {
                let entered = process::enter_namespace(network, libc::CLONE_NEWNET);
                fd::close(network);
                entered
            }
            None => Ok(()),
        },
        _ => process::exit_now(125),
    }
}

fn enter_user(user_namespace: RawFd) -> Sys<()> {
    process::enter_namespace(user_namespace, libc::CLONE_NEWUSER)?;
    fd::close(user_namespace);
    process::become_user(0, 0, false)
}

/// The program's descriptors: the caller's, or a terminal made in here.
fn open_stdio(prepared: &Prepared<'_>) -> [RawFd; 3] {
    if let Some(stdio) = prepared.stdio {
        return stdio;
    }
    let failed = |errno: Errno| -> ! {
        give_up(prepared, Message::with(wire::FENCE_FAILED, Fence::Terminal as i32, errno))
    };
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    // Without mounts of our own the host's terminals are the only ones.
    let maker = if prepared.door.is_some() { c"/dev/ptmx" } else { c"/dev/pts/ptmx" };
    let master = match fd::open(maker, flags, 0) {
        Ok(master) => master,
        Err(errno) => failed(errno),
    };
    let peer = match fd::pty_peer(master) {
        Ok(peer) => peer,
        Err(errno) => failed(errno),
    };
    let _ = Message::of(wire::TERMINAL).send(prepared.control, Some(master));
    fd::close(master);
    [peer; 3]
}

/// Reaps everything, forwards signals, and reports when the program ends.
/// Leaving this function ends the pid namespace and all that lives in it.
fn reap(prepared: &Prepared<'_>, program: i32, child_signals: RawFd) -> ! {
    let mut frozen = false;
    let mut peak_bytes = 0;
    loop {
        let mut polled = [
            libc::pollfd { fd: child_signals, events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: prepared.sync.1, events: libc::POLLIN, revents: 0 },
        ];
        let wait_ms = if prepared.memory_watch.is_some() { 20 } else { -1 };
        let _ = fd::poll(&mut polled, wait_ms);
        if polled[1].revents != 0 {
            match Message::receive(prepared.sync.1) {
                Ok(Some((message, _))) if message.kind == wire::FINISH => {
                    end_all(prepared, program, peak_bytes);
                    process::exit_now(0);
                }
                Ok(Some((message, _))) => obey(prepared, &message, program, &mut frozen),
                _ => process::exit_now(125),
            }
        }
        if polled[0].revents != 0 {
            let _ = fd::read(child_signals, &mut [0u8; 128]);
        }
        // Those that are frozen are waited for when they go on.
        while !frozen && let Ok(Some((ended, _))) = process::wait(-1, false) {
            if let Some(stop) = process::stop_of(ended.status) {
                // It could not stand still in time, and does now.
                let _ = process::untrace(ended.pid, stop);
            } else if ended.pid == program {
                // Whoever loses its parent becomes a child of ours, so
                // without children we are alone in here.
                let alone = matches!(process::wait(-1, false), Err(libc::ECHILD));
                report_ended(prepared, ended.status, alone, peak_bytes);
                process::exit_now(0);
            }
        }
        if let Some(limit) = prepared.memory_watch {
            let used = crate::watch::memory_of_all();
            peak_bytes = used.max(peak_bytes);
            if used > limit {
                let mut message = Message::of(wire::MEMORY);
                message.values[0] = used;
                let _ = message.send(prepared.control, None);
                end_all(prepared, program, peak_bytes);
                process::exit_now(125);
            }
        }
    }
}

/// Kills everything else in the pid namespace and reports what all of it used.
/// Never called without a namespace of our own.
fn end_all(prepared: &Prepared<'_>, program: i32, peak_bytes: u64) {
    let mut status = libc::SIGKILL;
    let _ = process::kill(-1, libc::SIGKILL);
    while let Ok(Some((ended, _))) = process::wait(-1, true) {
        if ended.pid == program && process::stop_of(ended.status).is_none() {
            status = ended.status;
        }
    }
    report_ended(prepared, status, false, peak_bytes);
}

/// Does what the monitor says.
pub(super) fn obey(prepared: &Prepared<'_>, message: &Message, program: i32, frozen: &mut bool) {
    let answer = match message.kind {
        wire::SIGNAL => {
            let _ = process::kill(-program, message.a);
            return;
        }
        wire::FREEZE => {
            let done = freeze();
            *frozen = done.is_ok();
            Message::with(wire::FROZEN, 0, done.err().unwrap_or(0))
        }
        wire::THAW => {
            *frozen = false;
            Message::with(wire::THAWED, 0, thaw().err().unwrap_or(0))
        }
        _ => return,
    };
    let _ = answer.send(prepared.sync.1, None);
}

/// `peak_bytes` is the highest sum that the memory watch saw, 0 without one.
pub(super) fn report_ended(prepared: &Prepared<'_>, status: i32, alone: bool, peak_bytes: u64) {
    let usage = process::children_usage();
    let mut message = Message::with(wire::ENDED, status, i32::from(alone));
    message.values = [
        usage_cpu_us(&usage),
        usage.ru_maxrss as u64 * 1024,
        usage.ru_inblock as u64 * 512,
        usage.ru_oublock as u64 * 512,
        peak_bytes,
        0,
    ];
    let _ = message.send(prepared.control, None);
}
