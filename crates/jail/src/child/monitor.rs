//! The monitor: on the host, from start to clean-up.

use super::init::init;
use super::namespaces::{map_users, new_network, write_maps};
use super::screen::Screen;
use super::text::PathBuffer;
use super::visitors::{VISITORS_MAX, Visitors};
use super::{Failure, Held, Prepared, WHY_ASKED, WHY_ENDED, WHY_TIME, usage_cpu_us};
use crate::plan::Mapping;
use crate::sys::{Errno, Sys, fd, process, security};
use crate::wire::{self, Fence, Message};
use std::ffi::CStr;
use std::os::fd::RawFd;

/// Runs in the caller's first child and never returns.
pub fn monitor(prepared: &Prepared<'_>) -> ! {
    process::block_signals();
    let _ = process::new_session();
    security::set_name(c"fractal-monitor");
    fd::close_all_except(prepared.keep);
    super::copied::prepare_monitor(prepared);
    let mut screen = Screen::remember(prepared);
    match start_init(prepared) {
        Err((fence, errno)) => {
            let message = Message::with(wire::SETUP_FAILED, fence as i32, errno);
            let _ = message.send(prepared.control, None);
            remove_groups(prepared);
            process::exit_now(125)
        }
        Ok((init, held)) => {
            if let Some(stdio) = prepared.stdio {
                stdio.iter().for_each(|fd| fd::close(*fd));
            }
            prepared.gate.into_iter().for_each(fd::close);
            let why = supervise(prepared, &init, &held, &screen);
            screen.close();
            if let Some(path) = prepared.living_file {
                let _ = fd::unlink(path);
            }
            report_over(prepared, init.pid, why);
            // Dropping the last reference tears the mounts down, which takes
            // longer than the whole start: the caller does not wait for it.
            held.iter().for_each(|fd| fd::close(*fd));
            remove_groups(prepared);
            for dir in prepared.locked_dirs {
                let _ = fd::chmod(dir, 0o700);
            }
            settle_layer(prepared);
            process::exit_now(0)
        }
    }
}

fn start_init(prepared: &Prepared<'_>) -> Result<(process::Child, Held), Failure> {
    let at = |fence: Fence| move |errno: Errno| (fence, errno);
    make_groups(prepared).map_err(at(Fence::Cgroup))?;
    if is_rootless(prepared) {
        if let Some(living) = prepared.join {
            let entered = process::enter_namespace(living[0], libc::CLONE_NEWUSER);
            entered.map_err(at(Fence::UserNamespace))?;
        }
        return split_init(prepared, -1);
    }
    if prepared.ready.user >= 0 {
        return split_init(prepared, prepared.ready.user);
    }
    // A user namespace needs a process in it while its maps are written. That
    // one is not waited for before init is on its way: its last moments would
    // be a good part of the whole start.
    let started = process::with_sleeper(libc::CLONE_NEWUSER, |pid| {
        let user_namespace = map_users(pid, prepared.plan.mapping)?;
        let _ = process::kill(pid, libc::SIGKILL);
        split_init(prepared, user_namespace)
    });
    started.map_err(at(Fence::UserNamespace))?
}

fn is_rootless(prepared: &Prepared<'_>) -> bool {
    matches!(prepared.plan.mapping, Mapping::Own { .. } | Mapping::None)
}

/// Starts init and gives it what only we can.
fn split_init(
    prepared: &Prepared<'_>,
    user_namespace: RawFd,
) -> Result<(process::Child, Held), Failure> {
    let (namespaces, joined) = (prepared.plan.namespaces, prepared.join);
    let split = process::split(namespaces, 0).map_err(|errno| (Fence::Namespaces, errno))?;
    let Some(child) = split else { init(prepared, user_namespace, joined.unwrap_or([-1; 5])) };
    fd::close(prepared.sync.1);
    let held = joined.unwrap_or_else(|| hold(child.pid));
    let maps = prepared.plan.mapping != Mapping::None && is_rootless(prepared) && joined.is_none();
    match equip(prepared, &child, held, maps) {
        Ok(held) => Ok((child, held)),
        Err(failure) => {
            let _ = process::kill_pidfd(child.pidfd, libc::SIGKILL);
            let _ = process::wait(child.pid, true);
            Err(failure)
        }
    }
}

/// What the monitor does while init builds: maps and network.
fn equip(
    prepared: &Prepared<'_>,
    child: &process::Child,
    mut held: Held,
    maps: bool,
) -> Result<Held, Failure> {
    let at = |fence: Fence| move |errno: Errno| (fence, errno);
    if maps {
        write_maps(child.pid, prepared.plan.mapping).map_err(at(Fence::Maps))?;
    }
    let mut network = None;
    if let Some(steps) = &prepared.plan.network {
        // The monitor has no use for a network, and may move into a new one.
        let made = match prepared.ready.network {
            -1 => new_network(steps).map_err(at(Fence::Namespaces))?,
            ready => ready,
        };
        fd::close(held[3]);
        held[3] = made;
        network = Some(made);
    }
    let _ = Message::of(wire::GO).send(prepared.sync.0, network);
    Ok(held)
}

/// The namespaces of a child, opened before it hides itself.
fn hold(pid: i32) -> Held {
    const FILES: [&[u8]; 5] = [b"ns/user", b"ns/ipc", b"ns/uts", b"ns/net", b"ns/mnt"];
    let mut path = PathBuffer::new();
    FILES.map(|file| fd::open(path.proc(pid, file), libc::O_RDONLY, 0).unwrap_or(-1))
}

/// Makes the groups with their limits; init joins them by itself.
fn make_groups(prepared: &Prepared<'_>) -> Sys<()> {
    let plan = &prepared.plan.cgroup;
    for dir in &plan.dirs {
        match fd::mkdir(dir.as_c(), 0o755) {
            Ok(()) | Err(libc::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    plan.writes
        .iter()
        .try_for_each(|(file, value)| fd::write_file(file.as_c(), value.as_c().to_bytes()))
}

/// A group can be removed once its last process is reaped; on version 1 that
/// takes the kernel a moment.
fn remove_groups(prepared: &Prepared<'_>) {
    for dir in &prepared.plan.cgroup.dirs {
        for _ in 0..200 {
            match fd::rmdir(dir.as_c()) {
                Err(libc::EBUSY) => process::sleep_ms(5),
                _ => break,
            }
        }
    }
}

fn settle_layer(prepared: &Prepared<'_>) {
    let (Some(dir), Some(marker)) = (prepared.sync_dir, prepared.dirty_marker) else { return };
    if let Ok(dir) = fd::open(dir, libc::O_RDONLY | libc::O_DIRECTORY, 0)
        && fd::syncfs(dir).is_ok()
    {
        let _ = fd::unlink(marker);
    }
}

/// Waits for init to end; enforces the deadline, the caller's wishes and those
/// of visitors.
fn supervise(prepared: &Prepared<'_>, init: &process::Child, held: &Held, screen: &Screen) -> i32 {
    let mut why = WHY_ENDED;
    let mut caller_alive = true;
    let mut sync = prepared.sync.0;
    let mut visitors = Visitors::new(sync);
    let mut kill_at_ms = None;
    let wait = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        let deadline = prepared.deadline_ms.filter(|_| why == WHY_ENDED);
        let control = if caller_alive { prepared.control } else { -1 };
        let mut polled = [wait(-1); 3 + VISITORS_MAX + 1];
        polled[..3].copy_from_slice(&[wait(init.pidfd), wait(control), wait(sync)]);
        polled[3..].copy_from_slice(&visitors.polled());
        let ready = fd::poll(&mut polled, wait_ms([deadline, visitors.deadline_ms(), kill_at_ms]));
        if polled[0].revents != 0 {
            visitors.close();
            // A terminal that dies with the caller ends the program, too.
            if caller_alive && has_died(prepared.control) {
                mourn(prepared, screen);
            }
            return why;
        }
        if polled[2].revents != 0 {
            match Message::receive(sync) {
                Ok(Some((message, _))) if message.kind == wire::READY => visitors.open(prepared),
                Ok(Some((message, _))) => visitors.answered(&message),
                // Init is about to end, which the pidfd tells next.
                _ => sync = -1,
            }
        }
        if polled[1].revents != 0 {
            match Message::receive(prepared.control) {
                Ok(Some((message, _))) if message.kind == wire::SIGNAL => {
                    let _ = message.send(prepared.sync.0, None);
                }
                Ok(Some((message, _))) if message.kind == wire::STOP => {
                    why = WHY_ASKED + message.a;
                    kill_at_ms = Some(finish(prepared, init));
                }
                Ok(Some((message, _))) if message.kind == wire::LEAVE => {
                    caller_alive = false;
                    let _ = process::kill_pidfd(init.pidfd, libc::SIGKILL);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    caller_alive = false;
                    let _ = process::kill_pidfd(init.pidfd, libc::SIGKILL);
                    mourn(prepared, screen);
                }
            }
        }
        if visitors.serve(&polled[3..], held) && why == WHY_ENDED {
            why = WHY_ASKED;
            kill_at_ms = Some(finish(prepared, init));
        }
        let late = deadline.is_some_and(|deadline| process::monotonic_ms() >= deadline);
        if late && why == WHY_ENDED && ready.is_ok() {
            why = WHY_TIME;
            kill_at_ms = Some(finish(prepared, init));
        }
        if kill_at_ms.is_some_and(|moment| process::monotonic_ms() >= moment) {
            kill_at_ms = None;
            let _ = process::kill_pidfd(init.pidfd, libc::SIGKILL);
        }
    }
}

/// Whether the caller is gone without having said so.
fn has_died(control: RawFd) -> bool {
    loop {
        let mut polled = [libc::pollfd { fd: control, events: libc::POLLIN, revents: 0 }];
        if fd::poll(&mut polled, 0) != Ok(1) {
            return false;
        }
        match Message::receive(control) {
            Ok(Some((message, _))) if message.kind == wire::LEAVE => return false,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return true,
        }
    }
}

/// Does what a caller that died cannot do any more.
fn mourn(prepared: &Prepared<'_>, screen: &Screen) {
    screen.restore();
    speak_last_words(prepared);
}

fn speak_last_words(prepared: &Prepared<'_>) {
    let Some(words) = prepared.last_words else { return };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    let Ok(file) = fd::open(&words.draft, flags, 0o600) else { return };
    let written = fd::write(file, &words.text);
    fd::close(file);
    let _ = match written {
        Ok(count) if count == words.text.len() => fd::rename(&words.draft, &words.path),
        _ => fd::unlink(&words.draft),
    };
}

/// Lets init end the run: what is killed by the end of init is counted by
/// nobody. Returns when init itself is to be killed, should it not get there.
fn finish(prepared: &Prepared<'_>, init: &process::Child) -> u64 {
    const FINISH_MS_MAX: u64 = 500;
    if prepared.door.is_some() {
        let _ = process::kill_pidfd(init.pidfd, libc::SIGKILL);
    }
    let _ = Message::of(wire::FINISH).send(prepared.sync.0, None);
    process::monotonic_ms() + FINISH_MS_MAX
}

/// Milliseconds until the first of some moments; -1 is for ever.
fn wait_ms(moments: [Option<u64>; 3]) -> i32 {
    let Some(first) = moments.into_iter().flatten().min() else { return -1 };
    first.saturating_sub(process::monotonic_ms()).min(i32::MAX as u64) as i32
}

fn report_over(prepared: &Prepared<'_>, pid: i32, why: i32) {
    let mut message = Message::with(wire::OVER, 0, why);
    if let Ok(Some((ended, usage))) = process::wait(pid, true) {
        message.a = ended.status;
        message.values[3] = usage_cpu_us(&usage);
    }
    if prepared.door.is_some() {
        super::copied::end_descendants(prepared);
    }
    let plan = &prepared.plan.cgroup;
    message.values[0] = read_number(plan.memory_peak.as_ref().map(|path| path.as_c()), b"");
    message.values[1] =
        read_number(plan.memory_events.as_ref().map(|path| path.as_c()), b"oom_kill ");
    message.values[2] =
        read_number(plan.cpu_usage.as_ref().map(|path| path.as_c()), b"usage_usec ");
    let _ = message.send(prepared.control, None);
    fd::close(prepared.control);
}

/// The first number after `key` in a small file; 0 when there is none.
fn read_number(path: Option<&CStr>, key: &[u8]) -> u64 {
    let mut buffer = [0u8; 1024];
    let Some(path) = path else { return 0 };
    let Ok(count) = fd::read_file(path, &mut buffer) else { return 0 };
    let text = &buffer[..count];
    let start = match key {
        b"" => 0,
        key => match text.windows(key.len()).position(|part| part == key) {
            Some(at) => at + key.len(),
            None => return 0,
        },
    };
    let digits = text[start..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0u64, |sum, byte| sum.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')))
}
