//! One safe wrapper per system call: the only home of `unsafe`.
//!
//! Everything here is usable between `clone` and `exec`: no function
//! allocates, takes a lock or panics on bad input. Errors are plain errno
//! values, because turning one into text is the caller's business.
#![allow(unsafe_code)]

pub mod fd;
pub mod local;
pub mod mount;
pub mod notify;
pub mod process;
pub mod security;
pub mod socket;

/// An errno value.
pub type Errno = i32;

/// The result of a system call.
pub type Sys<T> = Result<T, Errno>;

/// The errno of the last failed call of this thread.
pub fn errno() -> Errno {
    // SAFETY: `__errno_location` returns a valid thread-local pointer.
    unsafe { *libc::__errno_location() }
}

/// Turns a return value of -1 into the errno.
fn check(value: libc::c_long) -> Sys<libc::c_long> {
    if value == -1 { Err(errno()) } else { Ok(value) }
}

/// `check` for calls that return an int.
fn check_int(value: libc::c_int) -> Sys<libc::c_int> {
    if value == -1 { Err(errno()) } else { Ok(value) }
}
