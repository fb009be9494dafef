//! Sockets with a name in the filesystem.
//!
//! A name in a socket address holds 107 bytes, less than many paths. So all
//! names here go through `/proc/self/fd` of the directory they lie in.

use super::socket::again;
use super::{Sys, check, check_int};
use std::ffi::CStr;
use std::os::fd::RawFd;

const KIND: i32 = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;

/// Connections that may wait to be taken.
const BACKLOG: i32 = 8;

/// Listens at `name` in a directory; accepting never waits.
pub fn listen_in(dir: RawFd, name: &CStr) -> Sys<RawFd> {
    // SAFETY: plain integers.
    let socket = check_int(unsafe { libc::socket(libc::AF_UNIX, KIND | libc::SOCK_NONBLOCK, 0) })?;
    let result = address_in(dir, name).and_then(|address| {
        // SAFETY: `address` is a live `sockaddr_un`, and its size is its own.
        unsafe {
            check_int(libc::bind(socket, std::ptr::from_ref(&address).cast(), ADDRESS_SIZE))
                .and_then(|_| check_int(libc::listen(socket, BACKLOG)))
        }
    });
    close_unless_done(socket, result)
}

/// Connects to `name` in a directory; nothing on it waits longer than `wait_ms`.
pub fn connect_in(dir: RawFd, name: &CStr, wait_ms: u32) -> Sys<RawFd> {
    // SAFETY: plain integers.
    let socket = check_int(unsafe { libc::socket(libc::AF_UNIX, KIND, 0) })?;
    let result = set_patience(socket, wait_ms).and_then(|()| {
        let address = address_in(dir, name)?;
        // SAFETY: `address` is a live `sockaddr_un`, and its size is its own.
        check_int(unsafe {
            libc::connect(socket, std::ptr::from_ref(&address).cast(), ADDRESS_SIZE)
        })
    });
    close_unless_done(socket, result)
}

/// Bounds how long sending and receiving wait.
pub fn set_patience(socket: RawFd, wait_ms: u32) -> Sys<()> {
    let time =
        libc::timeval { tv_sec: (wait_ms / 1000) as _, tv_usec: (wait_ms % 1000 * 1000) as _ };
    for option in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
        // SAFETY: `time` is a live `timeval` of the size we pass.
        check_int(unsafe {
            libc::setsockopt(
                socket,
                libc::SOL_SOCKET,
                option,
                std::ptr::from_ref(&time).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        })?;
    }
    Ok(())
}

/// Takes the next connection; nothing on it ever waits.
pub fn accept(listener: RawFd) -> Sys<RawFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a null address asks for none.
    check_int(unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) })
}

/// The user on the other side, as of when they connected.
pub fn peer_uid(socket: RawFd) -> Sys<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` has room for the `size` bytes that are written.
    check_int(unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut peer).cast(),
            &mut size,
        )
    })?;
    Ok(peer.uid)
}

/// Receives bytes only: descriptors that come along are dropped by the kernel.
pub fn receive_plain(socket: RawFd, bytes: &mut [u8]) -> Sys<usize> {
    // SAFETY: the pointer and length describe a live, writable slice.
    again(|| check(unsafe { libc::recv(socket, bytes.as_mut_ptr().cast(), bytes.len(), 0) } as _))
        .map(|count| count as usize)
}

const ADDRESS_SIZE: libc::socklen_t = size_of::<libc::sockaddr_un>() as libc::socklen_t;

/// `/proc/self/fd/<dir>/<name>`.
fn address_in(dir: RawFd, name: &CStr) -> Sys<libc::sockaddr_un> {
    // SAFETY: all-zero bytes are a valid `sockaddr_un`.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as _;
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    let mut rest = dir.max(0);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let parts = [b"/proc/self/fd/".as_slice(), &digits[at..], b"/", name.to_bytes()];
    if parts.iter().map(|part| part.len()).sum::<usize>() >= address.sun_path.len() {
        return Err(libc::ENAMETOOLONG);
    }
    let text = parts.iter().flat_map(|part| part.iter());
    for (slot, byte) in address.sun_path.iter_mut().zip(text) {
        *slot = *byte as libc::c_char;
    }
    Ok(address)
}

fn close_unless_done(socket: RawFd, result: Sys<i32>) -> Sys<RawFd> {
    match result {
        Ok(_) => Ok(socket),
        Err(errno) => {
            super::fd::close(socket);
            Err(errno)
        }
    }
}
