//! Connections, as they are handed over: each message on standard input brings
//! one, and says what is to be done with it.
//!
//! The other end is a connected stream of somebody's request. Nothing is
//! listened on, so nobody else can come in.

use axum::Router;
use axum::body::Body;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as Stream;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tower::ServiceExt;

const HEADER_TIME: Duration = Duration::from_secs(30);
/// Connections that nobody has taken yet.
const WAITING_MAX: usize = 64;
/// The first byte that we write: from now on connections are taken.
const READY: u8 = b'R';

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Requests to this program.
    Requests,
    /// Whatever listens on this port of the sandbox.
    Port(u16),
}

impl Arrival {
    fn to_bytes(self) -> [u8; 3] {
        match self {
            Arrival::Requests => [b'H', 0, 0],
            Arrival::Port(port) => [b'P', port.to_be_bytes()[0], port.to_be_bytes()[1]],
        }
    }

    fn of_bytes(bytes: &[u8]) -> Option<Arrival> {
        match bytes {
            [b'H', _, _] => Some(Arrival::Requests),
            [b'P', high, low] => Some(Arrival::Port(u16::from_be_bytes([*high, *low]))),
            _ => None,
        }
    }
}

/// Hands a connection to the program at the other end of `to`, which takes
/// messages (a socket of the kind `SEQPACKET`). Never waits for it: one that
/// takes none any more is an error of the kind `WouldBlock`.
pub fn hand_over(
    to: BorrowedFd<'_>,
    arrival: Arrival,
    connection: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [connection];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let message = arrival.to_bytes();
    sendmsg(
        to,
        &[IoSlice::new(&message)],
        &mut control,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?;
    Ok(())
}

/// Takes connections until nobody can hand one over any more.
pub async fn take(router: Router) -> io::Result<()> {
    let (found, mut arrivals) = mpsc::channel(WAITING_MAX);
    std::thread::spawn(move || {
        let _ = rustix::io::write(rustix::stdio::stdin(), &[READY]);
        while let Ok(Some(arrival)) = receive(rustix::stdio::stdin()) {
            if let Some(arrival) = arrival
                && found.blocking_send(arrival).is_err()
            {
                break;
            }
        }
    });
    while let Some((arrival, connection)) = arrivals.recv().await {
        let router = router.clone();
        tokio::spawn(async move {
            // Whoever waits at the other end sees it closed.
            let _ = attend(arrival, connection, router).await;
        });
    }
    Ok(())
}

/// `None` when there will be no more; within, `None` for a message without a
/// connection.
fn receive(from: BorrowedFd<'_>) -> io::Result<Option<Option<(Arrival, OwnedFd)>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut message = [0; 3];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(from, &mut [IoSliceMut::new(&mut message)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let arrival = Arrival::of_bytes(&message[..received.bytes]);
    Ok(Some(arrival.zip(descriptor)))
}

async fn attend(arrival: Arrival, connection: OwnedFd, router: Router) -> io::Result<()> {
    let stream = Stream::from(connection);
    stream.set_nonblocking(true)?;
    let mut stream = UnixStream::from_std(stream)?;
    match arrival {
        Arrival::Requests => {
            answer(stream, router).await;
            Ok(())
        }
        Arrival::Port(port) => {
            let mut inside = match TcpStream::connect(("127.0.0.1", port)).await {
                Ok(inside) => inside,
                Err(_) => TcpStream::connect(("::1", port)).await?,
            };
            let _ = inside.set_nodelay(true);
            tokio::io::copy_bidirectional(&mut stream, &mut inside).await.map(|_| ())
        }
    }
}

async fn answer(stream: UnixStream, router: Router) {
    let service = hyper::service::service_fn(move |request: hyper::Request<_>| {
        router.clone().oneshot(request.map(Body::new))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(TokioIo::new(stream), service);
    // What went wrong is seen at the other end, which is the one to tell.
    let _ = connection.await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd;

    #[test]
    fn a_connection_arrives_with_its_purpose() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("a pair");
        let (a, b) = Stream::pair().expect("a pair");
        hand_over(ours.as_fd(), Arrival::Port(8080), b.as_fd()).expect("it is sent");
        drop(b);
        let (arrival, connection) =
            receive(theirs.as_fd()).expect("it is there").expect("not the end").expect("whole");
        assert_eq!(arrival, Arrival::Port(8080));
        use std::io::{Read, Write};
        Stream::from(connection).write_all(b"hello").expect("it is open");
        let mut heard = String::new();
        (&a).read_to_string(&mut heard).expect("it is closed");
        assert_eq!(heard, "hello");
        drop(ours);
        assert!(receive(theirs.as_fd()).expect("the end is no error").is_none());
    }
}
