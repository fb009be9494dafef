//! Descriptors: open, read, write, close, poll, and small file operations.

use super::{Sys, check, check_int};
use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes ownership of a descriptor that the kernel just made for us.
pub fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass numbers fresh from a call that created them.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Opens a path with `O_CLOEXEC` added.
pub fn open(path: &CStr, flags: i32, mode: u32) -> Sys<RawFd> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check_int(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) })
}

/// Opens below a directory descriptor.
pub fn openat(dir: RawFd, path: &CStr, flags: i32, mode: u32) -> Sys<RawFd> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check_int(unsafe { libc::openat(dir, path.as_ptr(), flags | libc::O_CLOEXEC, mode) })
}

/// Opens a directory below another; no part of `path` may be a link.
pub fn open_beneath(dir: RawFd, path: &CStr) -> Sys<RawFd> {
    // SAFETY: all-zero is a valid `open_how`.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS;
    let size = size_of::<libc::open_how>();
    // SAFETY: `path` is NUL-terminated, `how` is live and `size` bytes long.
    check(unsafe { libc::syscall(libc::SYS_openat2, dir, path.as_ptr(), &how, size) })
        .map(|fd| fd as RawFd)
}

/// Makes a directory below a directory descriptor.
pub fn mkdirat(dir: RawFd, path: &CStr, mode: u32) -> Sys<()> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check_int(unsafe { libc::mkdirat(dir, path.as_ptr(), mode) }).map(|_| ())
}

/// Sets the mode of what is open.
pub fn fchmod(fd: RawFd, mode: u32) -> Sys<()> {
    // SAFETY: plain integers.
    check_int(unsafe { libc::fchmod(fd, mode) }).map(|_| ())
}

/// Sets the owner of what is open.
pub fn fchown(fd: RawFd, uid: u32, gid: u32) -> Sys<()> {
    // SAFETY: plain integers.
    check_int(unsafe { libc::fchown(fd, uid, gid) }).map(|_| ())
}

/// Closes a descriptor; there is nothing useful to do with its error.
pub fn close(fd: RawFd) {
    // SAFETY: closing an arbitrary number is memory-safe.
    unsafe { libc::close(fd) };
}

/// Closes every descriptor that is not in `keep`, which must be sorted.
pub fn close_all_except(keep: &[RawFd]) {
    let mut next: u32 = 0;
    for fd in keep {
        let fd = *fd as u32;
        if fd > next {
            close_range(next, fd - 1);
        }
        next = next.max(fd + 1);
    }
    close_range(next, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: plain integers; Linux 5.9 and later.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done == -1 {
        for fd in first..=last.min(4096) {
            close(fd as RawFd);
        }
    }
}

/// Makes `to` a copy of `from` that survives `exec`.
pub fn dup_onto(from: RawFd, to: RawFd) -> Sys<()> {
    if from == to {
        // SAFETY: plain integers.
        return check_int(unsafe { libc::fcntl(from, libc::F_SETFD, 0) }).map(|_| ());
    }
    // SAFETY: plain integers.
    check_int(unsafe { libc::dup2(from, to) }).map(|_| ())
}

/// Copies a descriptor to a number of at least `least`, close-on-exec.
pub fn dup_above(fd: RawFd, least: RawFd) -> Sys<RawFd> {
    // SAFETY: plain integers.
    check_int(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) })
}

/// Fills the whole buffer.
pub fn read_whole(fd: RawFd, mut buffer: &mut [u8]) -> Sys<()> {
    while !buffer.is_empty() {
        match read(fd, buffer)? {
            0 => return Err(libc::EPIPE),
            count => buffer = &mut buffer[count..],
        }
    }
    Ok(())
}

/// Reads into `buffer`, retrying when interrupted.
pub fn read(fd: RawFd, buffer: &mut [u8]) -> Sys<usize> {
    loop {
        // SAFETY: the pointer and length describe a live, writable slice.
        let got = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        match check(got as libc::c_long) {
            Err(libc::EINTR) => {}
            other => return other.map(|count| count as usize),
        }
    }
}

/// Writes from `bytes`, retrying when interrupted; may be partial.
pub fn write(fd: RawFd, bytes: &[u8]) -> Sys<usize> {
    loop {
        // SAFETY: the pointer and length describe a live slice.
        let put = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match check(put as libc::c_long) {
            Err(libc::EINTR) => {}
            other => return other.map(|count| count as usize),
        }
    }
}

/// Writes a small file in one call, as kernel files want it.
pub fn write_file(path: &CStr, bytes: &[u8]) -> Sys<()> {
    let fd = open(path, libc::O_WRONLY, 0)?;
    let result = write(fd, bytes).map(|_| ());
    close(fd);
    result
}

/// Reads the start of a small file.
pub fn read_file(path: &CStr, buffer: &mut [u8]) -> Sys<usize> {
    let fd = open(path, libc::O_RDONLY, 0)?;
    let result = read(fd, buffer);
    close(fd);
    result
}

/// Reads raw directory entries (`linux_dirent64`) into `buffer`.
pub fn read_directory(dir: RawFd, buffer: &mut [u8]) -> Sys<usize> {
    // SAFETY: the pointer and length describe a live, writable slice.
    let got =
        unsafe { libc::syscall(libc::SYS_getdents64, dir, buffer.as_mut_ptr(), buffer.len()) };
    check(got).map(|count| count as usize)
}

/// Waits for events on a few descriptors; `timeout_ms < 0` waits for ever.
pub fn poll(fds: &mut [libc::pollfd], timeout_ms: i32) -> Sys<usize> {
    // SAFETY: the pointer and length describe a live, writable slice.
    match check_int(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as _, timeout_ms) }) {
        Err(libc::EINTR) => Ok(0),
        other => other.map(|count| count as usize),
    }
}

/// Both ends of a pipe, close-on-exec: read end, write end.
pub fn pipe() -> Sys<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    check_int(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((ends[0], ends[1]))
}

/// Lets reads and writes return instead of waiting.
pub fn set_nonblocking(fd: RawFd) -> Sys<()> {
    // SAFETY: plain integers.
    let flags = check_int(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: plain integers.
    check_int(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(|_| ())
}

/// Creates a directory.
pub fn mkdir(path: &CStr, mode: u32) -> Sys<()> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check_int(unsafe { libc::mkdir(path.as_ptr(), mode) }).map(|_| ())
}

/// Removes an empty directory.
pub fn rmdir(path: &CStr) -> Sys<()> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check_int(unsafe { libc::rmdir(path.as_ptr()) }).map(|_| ())
}

/// Removes a file.
pub fn unlink(path: &CStr) -> Sys<()> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check_int(unsafe { libc::unlink(path.as_ptr()) }).map(|_| ())
}

/// Gives a file another name.
pub fn rename(from: &CStr, to: &CStr) -> Sys<()> {
    // SAFETY: both paths are NUL-terminated and outlive the call.
    check_int(unsafe { libc::rename(from.as_ptr(), to.as_ptr()) }).map(|_| ())
}

/// Creates a symbolic link.
pub fn symlink(target: &CStr, path: &CStr) -> Sys<()> {
    // SAFETY: both strings are NUL-terminated and outlive the call.
    check_int(unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) }).map(|_| ())
}

/// Creates a file or device node.
pub fn mknod(path: &CStr, mode: u32, major: u32, minor: u32) -> Sys<()> {
    let device = libc::makedev(major, minor);
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check_int(unsafe { libc::mknod(path.as_ptr(), mode, device) }).map(|_| ())
}

/// Changes the owner without following links.
pub fn chown(path: &CStr, uid: u32, gid: u32) -> Sys<()> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check_int(unsafe { libc::lchown(path.as_ptr(), uid, gid) }).map(|_| ())
}

/// Changes the mode of a file of our own.
pub fn chmod(path: &CStr, mode: u32) -> Sys<()> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check_int(unsafe { libc::chmod(path.as_ptr(), mode) }).map(|_| ())
}

/// Sets the file creation mask; returns the one before.
pub fn set_mask(mask: u32) -> u32 {
    // SAFETY: plain integer; cannot fail.
    unsafe { libc::umask(mask) }
}

/// Whether something stands at a path, as far as we may see.
pub fn exists(path: &CStr) -> bool {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::F_OK) == 0 }
}

/// Changes the working directory.
pub fn chdir(path: &CStr) -> Sys<()> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check_int(unsafe { libc::chdir(path.as_ptr()) }).map(|_| ())
}

/// Writes everything of a filesystem to its device.
pub fn syncfs(fd: RawFd) -> Sys<()> {
    // SAFETY: plain integer.
    check_int(unsafe { libc::syncfs(fd) }).map(|_| ())
}

/// Whether the descriptor is a terminal.
pub fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: plain integer.
    unsafe { libc::isatty(fd) == 1 }
}

/// The terminal's window size, as rows and columns.
pub fn window_size(fd: RawFd) -> Sys<libc::winsize> {
    // SAFETY: all-zero bytes are a valid `winsize`.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes one `winsize`.
    check_int(unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &mut size) })?;
    Ok(size)
}

/// Sets the terminal's window size.
pub fn set_window_size(fd: RawFd, size: &libc::winsize) -> Sys<()> {
    // SAFETY: TIOCSWINSZ reads one `winsize`.
    check_int(unsafe { libc::ioctl(fd, libc::TIOCSWINSZ, size) }).map(|_| ())
}

/// Unlocks a pseudo-terminal's master and opens its other side.
pub fn pty_peer(master: RawFd) -> Sys<RawFd> {
    let unlock: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int.
    check_int(unsafe { libc::ioctl(master, libc::TIOCSPTLCK, &unlock) })?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes open flags by value.
    check_int(unsafe { libc::ioctl(master, libc::TIOCGPTPEER, flags) })
}

/// The terminal's settings.
pub fn terminal_settings(fd: RawFd) -> Sys<libc::termios> {
    // SAFETY: all-zero bytes are a valid `termios`.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: `tcgetattr` writes one `termios`.
    check_int(unsafe { libc::tcgetattr(fd, &mut settings) })?;
    Ok(settings)
}

/// Applies terminal settings.
pub fn set_terminal_settings(fd: RawFd, settings: &libc::termios) -> Sys<()> {
    // SAFETY: `tcsetattr` reads one `termios`.
    check_int(unsafe { libc::tcsetattr(fd, libc::TCSADRAIN, settings) }).map(|_| ())
}

/// The same without waiting for what is still to be shown.
pub fn set_terminal_settings_now(fd: RawFd, settings: &libc::termios) -> Sys<()> {
    // SAFETY: `tcsetattr` reads one `termios`.
    check_int(unsafe { libc::tcsetattr(fd, libc::TCSANOW, settings) }).map(|_| ())
}

/// The same settings with keys passed through untouched.
pub fn raw_settings(settings: &libc::termios) -> libc::termios {
    let mut raw = *settings;
    // SAFETY: `cfmakeraw` edits one live `termios`.
    unsafe { libc::cfmakeraw(&mut raw) };
    raw
}

/// Whether two descriptors share one position in one opened file.
pub fn is_same_opening(a: RawFd, b: RawFd) -> Sys<bool> {
    const KCMP_FILE: libc::c_int = 0;
    let own = std::process::id();
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, a, b) })
        .map(|order| order == 0)
}

/// Whether our process group may read from this terminal now.
pub fn is_foreground(fd: RawFd) -> bool {
    // SAFETY: plain integers.
    unsafe { libc::tcgetpgrp(fd) == libc::getpgrp() }
}
