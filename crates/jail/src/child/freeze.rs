//! Freezing: init lets every process inside stand still.
//!
//! Most runs have no cgroup of their own, and stopping with signals shows:
//! parents are told, and what was stopped before is started by the end. So
//! init traces all threads and interrupts them. Nobody inside can see that; a
//! job that a shell had stopped stays stopped; and if init ends, all is over
//! anyway, so nobody can be left frozen.
//!
//! A thread that stands still has finished its last system call, so what it
//! wrote is in the files, in the order in which it wrote.

use super::text::TextBuffer;
use crate::sys::{Sys, fd, process};
use crate::watch::{descends, each_number};
use std::ffi::CStr;
use std::os::fd::RawFd;

/// How long threads may take to stand still.
const WAIT_MS_MAX: u64 = 2000;

/// Lets everything stand still. After an error everything goes on.
pub(super) fn freeze() -> Sys<()> {
    let deadline = process::monotonic_ms() + WAIT_MS_MAX;
    // Twice in a row: a thread that was started behind our back, or woken by
    // one that was not still yet, is found by the second look.
    let mut quiet = 0;
    while quiet < 2 {
        quiet = if all_still(&mut halt) { quiet + 1 } else { 0 };
        if quiet == 0 {
            if process::monotonic_ms() >= deadline {
                let _ = thaw();
                return Err(libc::EBUSY);
            }
            process::sleep_ms(1);
        }
    }
    Ok(())
}

/// Lets everything go on. An error says that something did so before.
pub(super) fn thaw() -> Sys<()> {
    let still = all_still(&mut is_still);
    each_thread(&mut |_, thread| {
        // One that is not there yet comes to a stop later, which `wait` tells.
        if let Ok(Some(stop)) = process::stopped(thread) {
            let _ = process::untrace(thread, stop);
        }
    });
    if still { Ok(()) } else { Err(libc::EINTR) }
}

/// Asks a thread to stand still; true when it does.
fn halt(threads: RawFd, thread: i32) -> bool {
    if is_still(threads, thread) && state_of(threads, thread) != b'D' {
        return true;
    }
    // Refused where it is traced already: by us, then the next call works; or
    // by a debugger inside, then it is not still in time.
    let _ = process::trace(thread);
    process::interrupt(thread).is_ok() && is_still(threads, thread)
}

fn is_still(threads: RawFd, thread: i32) -> bool {
    match state_of(threads, thread) {
        // Stopped, traced and still, dead in three ways, or gone.
        b'T' | b't' | b'Z' | b'X' | b'x' | 0 => true,
        // A parent after `vfork` cannot stand still before its child is done,
        // which is still. It will do so on its way out of the call, and the
        // call writes no file.
        b'D' => is_cloning(threads, thread),
        _ => false,
    }
}

/// Whether `is_still` holds for all threads of all processes but our own. All
/// are asked, since asking may be what brings them to it.
fn all_still(is_still: &mut dyn FnMut(RawFd, i32) -> bool) -> bool {
    let mut all = true;
    each_thread(&mut |threads, thread| all &= is_still(threads, thread));
    all
}

/// Calls `job` with every thread of all processes but our own, and with the
/// open directory in which it is listed.
fn each_thread(job: &mut dyn FnMut(RawFd, i32)) {
    let own = process::own_pid();
    let Ok(proc) = fd::open(c"/proc", libc::O_RDONLY | libc::O_DIRECTORY, 0) else { return };
    each_number(proc, &mut |name| {
        let Some(pid) = number(name).filter(|pid| is_inside(*pid, own)) else { return };
        let mut path = TextBuffer::<32>::new();
        path.push_number(pid as u64);
        path.push(b"/task\0");
        let Ok(path) = CStr::from_bytes_until_nul(path.bytes()) else { return };
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        // Gone since it was listed.
        let Ok(threads) = fd::openat(proc, path, flags, 0) else { return };
        each_number(threads, &mut |name| {
            number(name).into_iter().for_each(|thread| job(threads, thread));
        });
        fd::close(threads);
    });
    fd::close(proc);
}

/// Pid 1 of a namespace sees nobody else. Without one, in the tier `copied`,
/// our family is what descends from us.
fn is_inside(pid: i32, own: i32) -> bool {
    pid != own && (own == 1 || descends(pid, own))
}

/// The letter of a thread's state; 0 when it is gone.
fn state_of(threads: RawFd, thread: i32) -> u8 {
    let mut text = [0u8; 128];
    let text = read_of(threads, thread, b"/stat\0", &mut text);
    // The program's name, in parentheses, may hold any byte but is short.
    let end = text.iter().rposition(|byte| *byte == b')');
    end.and_then(|end| text.get(end + 2)).copied().unwrap_or(0)
}

fn is_cloning(threads: RawFd, thread: i32) -> bool {
    #[cfg(target_arch = "x86_64")]
    let calls = [libc::SYS_clone, libc::SYS_clone3, libc::SYS_vfork];
    #[cfg(not(target_arch = "x86_64"))]
    let calls = [libc::SYS_clone, libc::SYS_clone3];
    let mut text = [0u8; 128];
    let text = read_of(threads, thread, b"/syscall\0", &mut text);
    number(text).is_some_and(|call| calls.contains(&libc::c_long::from(call)))
}

fn read_of<'a>(threads: RawFd, thread: i32, file: &[u8], buffer: &'a mut [u8]) -> &'a [u8] {
    let mut path = TextBuffer::<32>::new();
    path.push_number(thread as u64);
    path.push(file);
    let opened = CStr::from_bytes_until_nul(path.bytes())
        .map_err(|_| libc::EINVAL)
        .and_then(|path| fd::openat(threads, path, libc::O_RDONLY, 0));
    let Ok(file) = opened else { return &[] };
    let count = fd::read(file, buffer).unwrap_or(0);
    fd::close(file);
    &buffer[..count]
}

/// The number that a text starts with.
fn number(text: &[u8]) -> Option<i32> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits.fold(0i64, |sum, byte| (sum * 10 + i64::from(byte - b'0')).min(1 << 40));
    text.first()?.is_ascii_digit().then_some(())?;
    i32::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_past_any_name_of_a_program() {
        let own = std::process::id() as i32;
        let threads = fd::open(c"/proc/self/task", libc::O_RDONLY | libc::O_DIRECTORY, 0);
        let threads = threads.expect("a /proc");
        assert!(matches!(state_of(threads, own), b'R' | b'S'));
        assert_eq!(state_of(threads, 0), 0);
        fd::close(threads);
    }

    #[test]
    fn numbers_are_read_from_the_start_of_a_text() {
        for (text, expect) in [
            (b"56 0x1 0x2".as_slice(), Some(56)),
            (b"12\0", Some(12)),
            (b"running", None),
            (b"", None),
            (b"99999999999999999999", None),
        ] {
            assert_eq!(number(text), expect);
        }
    }
}
