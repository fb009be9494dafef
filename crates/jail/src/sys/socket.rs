//! The control channel: pairs of packet sockets that can carry descriptors.

use super::{Sys, check, check_int};
use std::ffi::CStr;
use std::os::fd::RawFd;

/// Two connected sockets that keep message boundaries.
pub fn pair() -> Sys<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `ends` has room for two descriptors.
    check_int(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    Ok((ends[0], ends[1]))
}

/// Two connected sockets for a stream of bytes.
pub fn stream_pair() -> Sys<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: `ends` has room for two descriptors.
    check_int(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    Ok((ends[0], ends[1]))
}

/// So many descriptors travel with one message at most.
pub const DESCRIPTORS_MAX: usize = 16;

/// Room for their numbers and a header, as ancillary data.
#[repr(C, align(8))]
struct Ancillary([u8; 96]);

/// Sends one message, with descriptors. Never raises a signal.
pub fn send(socket: RawFd, bytes: &[u8], descriptors: &[RawFd], flags: i32) -> Sys<()> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(libc::EINVAL);
    }
    let mut part = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    let mut room = Ancillary([0; 96]);
    let size = size_of_val(descriptors) as u32;
    // SAFETY: all-zero bytes are a valid `msghdr`; every pointer set below is
    // live until `sendmsg` returns; `room` holds a header and that many numbers.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if size > 0 {
            message.msg_control = room.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            let place = libc::CMSG_DATA(header).cast::<RawFd>();
            for (index, fd) in descriptors.iter().enumerate() {
                place.add(index).write_unaligned(*fd);
            }
        }
        check(libc::sendmsg(socket, &message, flags | libc::MSG_NOSIGNAL) as _)?
    };
    if sent as usize == bytes.len() { Ok(()) } else { Err(libc::EMSGSIZE) }
}

/// Sends all of the bytes, in as many parts as it takes.
pub fn send_whole(socket: RawFd, mut bytes: &[u8]) -> Sys<()> {
    while !bytes.is_empty() {
        // SAFETY: the buffer is live and of the size we pass.
        let sent = check(unsafe {
            libc::send(socket, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) as _
        });
        match sent {
            Ok(count) => bytes = &bytes[count as usize..],
            Err(libc::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Descriptors that came with a message, in order: ours to close.
pub type Carried = [Option<RawFd>; DESCRIPTORS_MAX];

/// Receives one message and the descriptors it carried. A count of 0 means
/// the other side is gone.
pub fn receive(socket: RawFd, bytes: &mut [u8], flags: i32) -> Sys<(usize, Carried)> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut room = Ancillary([0; 96]);
    let mut carried = [None; DESCRIPTORS_MAX];
    // SAFETY: as in `send`; the kernel writes at most `msg_controllen` bytes
    // and says in `cmsg_len` how many.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = room.0.len() as _;
        let flags = flags | libc::MSG_CMSG_CLOEXEC;
        let count = again(|| check(libc::recvmsg(socket, &mut message, flags) as _))?;
        let header = libc::CMSG_FIRSTHDR(&message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let size = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            let place = libc::CMSG_DATA(header).cast::<RawFd>();
            for (index, slot) in carried.iter_mut().enumerate().take(size / size_of::<RawFd>()) {
                *slot = Some(place.add(index).read_unaligned());
            }
        }
        Ok((count as usize, carried))
    }
}

/// Repeats a call that a signal interrupted, or that told us of a reset: the
/// other side closed with something of ours unread. That is told once, and
/// what it had sent before comes after.
pub(super) fn again(mut call: impl FnMut() -> Sys<libc::c_long>) -> Sys<libc::c_long> {
    loop {
        match call() {
            Err(libc::EINTR | libc::ECONNRESET) => {}
            other => return other,
        }
    }
}

/// Whether the descriptor is a pipe or socket, which name no host file.
pub fn is_pipe_or_socket(fd: RawFd) -> bool {
    // SAFETY: all-zero bytes are a valid `stat`; `fstat` fills it.
    let kind = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(fd, &mut stat) == 0 { stat.st_mode & libc::S_IFMT } else { 0 }
    };
    kind == libc::S_IFIFO || kind == libc::S_IFSOCK
}

/// Brings the loopback interface of this network namespace up.
pub fn loopback_up() -> Sys<()> {
    // SAFETY: plain integers.
    let socket = check_int(unsafe {
        libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)
    })?;
    // SAFETY: all-zero bytes are a valid `ifreq`; the name fits with its NUL.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo\0") {
            *slot = *byte as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check_int(libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request))
    };
    super::fd::close(socket);
    result.map(|_| ())
}

/// A listening TCP socket on this network namespace's loopback.
pub fn listen_loopback(port: u16) -> Sys<RawFd> {
    // SAFETY: plain integers.
    let socket = check_int(unsafe {
        libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)
    })?;
    // SAFETY: all-zero bytes are a valid `sockaddr_in`, read by `bind` only.
    let result = unsafe {
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as _;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
        let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        check_int(libc::bind(socket, std::ptr::from_ref(&address).cast(), size))
            .and_then(|_| check_int(libc::listen(socket, 64)))
    };
    match result {
        Ok(_) => Ok(socket),
        Err(errno) => {
            super::fd::close(socket);
            Err(errno)
        }
    }
}

/// A socket that listens at a path, which must be free.
pub fn listen_at(path: &CStr) -> Sys<RawFd> {
    let bytes = path.to_bytes_with_nul();
    // SAFETY: plain integers.
    let socket = check_int(unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)
    })?;
    // SAFETY: all-zero bytes are a valid `sockaddr_un`, read by `bind` only; `zip`
    // ends where its path does, and a path that does not fit is refused.
    let result = unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as _;
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = *from as _;
        }
        let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        match bytes.len() <= address.sun_path.len() {
            true => check_int(libc::bind(socket, std::ptr::from_ref(&address).cast(), size))
                .and_then(|_| check_int(libc::listen(socket, 64))),
            false => Err(libc::ENAMETOOLONG),
        }
    };
    match result {
        Ok(_) => Ok(socket),
        Err(errno) => {
            super::fd::close(socket);
            Err(errno)
        }
    }
}
