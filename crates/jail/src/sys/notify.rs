//! System calls of others that wait for our answer (seccomp notifications).

use super::{Sys, check, check_int};
use std::os::fd::RawFd;

/// A call that waits for an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Notice {
    /// Names the call in the answer.
    pub id: u64,
    /// The thread that made it.
    pub pid: u32,
    flags: u32,
    /// Number of the call.
    pub call: i32,
    arch: u32,
    instruction: u64,
    /// Its arguments.
    pub args: [u64; 6],
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const RECEIVE: u64 = 0xC050_2100;
const SEND: u64 = 0xC018_2101;
const IS_VALID: u64 = 0x4008_2102;

/// Installs a filter and returns the descriptor its notices come from.
pub fn install_listening(program: &[libc::sock_filter]) -> Sys<RawFd> {
    /// Only a deadly signal ends the wait for an answer (Linux 5.19).
    const WAIT_KILLABLE: u64 = 1 << 5;
    let new_listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as u64;
    let program =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let install = |flags: u64| {
        // SAFETY: `program` describes a live slice that the kernel copies.
        check(unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program)
        })
    };
    let listener = match install(new_listener | WAIT_KILLABLE) {
        Err(libc::EINVAL) => install(new_listener),
        other => other,
    };
    listener.map(|fd| fd as RawFd)
}

/// Takes the next notice.
pub fn receive(listener: RawFd) -> Sys<Notice> {
    let mut notice = Notice::default();
    // SAFETY: `notice` is a live `seccomp_notif`, all zero as the kernel wants.
    check_int(unsafe { libc::ioctl(listener, RECEIVE as _, std::ptr::from_mut(&mut notice)) })?;
    Ok(notice)
}

/// Whether the caller still waits: if so, its pid still names it.
pub fn is_valid(listener: RawFd, id: u64) -> bool {
    // SAFETY: the call reads one u64.
    unsafe { libc::ioctl(listener, IS_VALID as _, std::ptr::from_ref(&id)) == 0 }
}

/// Answers a call in the kernel's stead.
pub fn answer(listener: RawFd, id: u64, done: Sys<()>) {
    let error = done.err().map_or(0, |errno| -errno);
    send(listener, &Answer { id, value: 0, error, flags: 0 });
}

/// Lets the kernel carry the call out. Only for calls whose arguments are all
/// numbers: memory could change before the kernel looks.
pub fn let_pass(listener: RawFd, id: u64) {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    send(listener, &Answer { id, value: 0, error: 0, flags });
}

fn send(listener: RawFd, answer: &Answer) {
    // SAFETY: `answer` is a live `seccomp_notif_resp`. An error means that the
    // caller is gone.
    unsafe { libc::ioctl(listener, SEND as _, std::ptr::from_ref(answer)) };
}

/// Reads another process's memory; returns how many bytes there were.
pub fn read_memory(pid: i32, address: u64, buffer: &mut [u8]) -> Sys<usize> {
    let ours = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let theirs = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: `ours` describes a live, writable slice; the kernel checks
    // `theirs` against the other process.
    check(unsafe { libc::process_vm_readv(pid, &ours, 1, &theirs, 1, 0) } as _)
        .map(|count| count as usize)
}

/// Where an open descriptor leads, as a path.
pub fn descriptor_path(link: &std::ffi::CStr, buffer: &mut [u8]) -> Sys<usize> {
    // SAFETY: `link` is NUL-terminated; the kernel writes at most the length.
    check(unsafe { libc::readlink(link.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) } as _)
        .map(|count| count as usize)
}

/// Changes the owner of what a descriptor (also an `O_PATH` one) names.
pub fn change_owner(fd: RawFd, uid: u32, gid: u32) -> Sys<()> {
    // SAFETY: the empty path is NUL-terminated.
    check_int(unsafe { libc::fchownat(fd, c"".as_ptr(), uid, gid, libc::AT_EMPTY_PATH) })
        .map(|_| ())
}

/// Sets times of what a descriptor (also an `O_PATH` one) names; now without.
pub fn change_times(fd: RawFd, times: Option<&[libc::timespec; 2]>) -> Sys<()> {
    let times = times.map_or(std::ptr::null(), |times| times.as_ptr());
    // The wrapper refuses flags it does not know.
    // SAFETY: the path is NUL-terminated, `times` is null or two live values.
    check(unsafe {
        libc::syscall(libc::SYS_utimensat, fd, c"".as_ptr(), times, libc::AT_EMPTY_PATH)
    })
    .map(|_| ())
}
