//! Sockets with a name in the filesystem, and several descriptors at once.
//!
//! A name in a socket address holds 107 bytes, less than many paths. So all
//! names here go through `/proc/self/fd` of the directory they lie in.

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

/// How many descriptors a message carries at most.
pub const DESCRIPTORS: usize = 5;

#[repr(C, align(8))]
struct Ancillary([u8; 64]);

/// Sends bytes with several descriptors.
pub fn send_all(socket: RawFd, bytes: &[u8], descriptors: &[RawFd; DESCRIPTORS]) -> Sys<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    let mut room = Ancillary([0; 64]);
    let length = size_of::<[RawFd; DESCRIPTORS]>() as u32;
    // SAFETY: all-zero bytes are a valid `msghdr`; every pointer set below is
    // live until `sendmsg` returns; `room` holds a header and five numbers.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(length) as _;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(length) as _;
        libc::CMSG_DATA(header).cast::<[RawFd; DESCRIPTORS]>().write_unaligned(*descriptors);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        check(libc::sendmsg(socket, &message, flags) as _).map(|_| ())
    }
}

/// Receives bytes with exactly as many descriptors, which are ours then.
pub fn receive_all(socket: RawFd, bytes: &mut [u8]) -> Sys<(usize, Option<[RawFd; DESCRIPTORS]>)> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut room = Ancillary([0; 64]);
    let length = size_of::<[RawFd; DESCRIPTORS]>() as u32;
    // SAFETY: as in `send_all`; the kernel writes at most `msg_controllen`
    // bytes, and the length it noted is checked before they are read.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(length) as _;
        let count =
            again(|| check(libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC) as _))?;
        let header = libc::CMSG_FIRSTHDR(&message);
        let whole = !header.is_null()
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && (*header).cmsg_len as usize == libc::CMSG_LEN(length) as usize;
        let list = || libc::CMSG_DATA(header).cast::<[RawFd; DESCRIPTORS]>().read_unaligned();
        Ok((count as usize, whole.then(list)))
    }
}

/// Receives bytes only: descriptors that come along are dropped by the kernel.
pub fn receive_plain(socket: RawFd, bytes: &mut [u8]) -> Sys<usize> {
    // SAFETY: the pointer and length describe a live, writable slice.
    again(|| check(unsafe { libc::recv(socket, bytes.as_mut_ptr().cast(), bytes.len(), 0) } as _))
        .map(|count| count as usize)
}

/// Repeats a call that a signal interrupted, or that told us of a reset: the
/// other side closed with something of ours unread. That is told once, and
/// what it had sent before comes after.
fn again(mut call: impl FnMut() -> Sys<libc::c_long>) -> Sys<libc::c_long> {
    loop {
        match call() {
            Err(libc::EINTR | libc::ECONNRESET) => {}
            other => return other,
        }
    }
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
