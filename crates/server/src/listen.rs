//! Sockets and ports, and the life of a connection.
//!
//! Every connection has deadlines and bounds of its own: one that sends its
//! headers byte by byte is cut off, and there are only so many at once.

use crate::asker::Door;
use crate::tls::Tls;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use fractal::{Code, Error, Result};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;

const CONNECTIONS_MAX: usize = 2048;
const CONNECTIONS_INSIDE_MAX: usize = 128;
/// Of all doors together; fewer where there are few descriptors.
const CONNECTIONS_INSIDE_ALL_MAX: u64 = 1024;
const HEADER_TIME: Duration = Duration::from_secs(10);
const HEADER_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;

/// Programs inside hold connections for as long as they like: all doors of
/// this process share a part of its descriptors, and leave the rest to it.
static INSIDE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = (limit / 4).clamp(16, CONNECTIONS_INSIDE_ALL_MAX);
    Arc::new(Semaphore::new(room as usize))
});

/// Programs that a server starts have the same bound, and some of them close
/// every descriptor there might be.
const DESCRIPTORS_MAX: u64 = 1 << 16;

/// Lets this process have more descriptors than shells give to programs.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|now| now < most) {
        // Without, there are fewer connections; who gets none is told.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
    }
}

/// What is listened on.
pub struct Listeners {
    socket: Option<(UnixListener, Claim)>,
    ports: Vec<TcpListener>,
    /// What ports prove themselves with.
    pub tls: Option<Arc<Tls>>,
}

/// A socket's path, which is ours while its lock is held.
pub struct Claim {
    path: PathBuf,
    _lock: std::fs::File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Whoever comes next finds no stale socket.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Listeners {
    pub async fn open(socket: Option<&Path>, ports: &[SocketAddr]) -> Result<Listeners> {
        let mut opened = Vec::new();
        for address in ports {
            let listener = TcpListener::bind(address).await.map_err(|error| {
                Error::new(Code::Denied, format!("cannot listen on {address}: {error}"))
                    .hint("choose another port with `--listen 127.0.0.1:PORT`")
            })?;
            opened.push(listener);
        }
        let socket = socket.map(open_socket).transpose()?;
        Ok(Listeners { socket, ports: opened, tls: None })
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().filter_map(|port| port.local_addr().ok()).collect()
    }
}

/// One server per socket: a lock decides, and a socket without one is stale.
pub fn open_socket(path: &Path) -> Result<(UnixListener, Claim)> {
    let cannot = |error: std::io::Error| {
        Error::new(Code::Denied, format!("cannot make the socket {}: {error}", path.display()))
    };
    let lock = std::fs::File::create(path.with_extension("lock")).map_err(cannot)?;
    if lock.try_lock().is_err() {
        return Err(Error::new(
            Code::Exists,
            format!("a server is running on {} already", path.display()),
        )
        .hint("stop it first, or give this one a state directory of its own with `--home DIR`"));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cannot(error)),
        _ => {}
    }
    // Nobody else may connect, not even between the two calls.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener.map_err(cannot)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(cannot)?;
    Ok((listener, Claim { path: path.to_path_buf(), _lock: lock }))
}

/// Where connections come from, and what is known of who comes.
trait Accept: Send + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    type Raw: Send + 'static;
    fn next(&self) -> impl Future<Output = std::io::Result<(Self::Raw, Door)>> + Send;
    /// Makes a connection ready for HTTP, beside the others.
    fn greet(&self, raw: Self::Raw) -> impl Future<Output = Option<Self::Stream>> + Send + 'static;
}

/// A port that proves itself first.
struct Safe {
    port: TcpListener,
    tls: Arc<Tls>,
}

impl Accept for Safe {
    type Stream = TlsStream<TcpStream>;
    type Raw = TcpStream;

    async fn next(&self) -> std::io::Result<(TcpStream, Door)> {
        self.port.next().await
    }

    fn greet(&self, raw: TcpStream) -> impl Future<Output = Option<Self::Stream>> + Send + 'static {
        let tls = self.tls.clone();
        async move { tls.greet(raw).await }
    }
}

impl Accept for TcpListener {
    type Stream = TcpStream;
    type Raw = TcpStream;

    fn greet(&self, raw: TcpStream) -> impl Future<Output = Option<TcpStream>> + Send + 'static {
        std::future::ready(Some(raw))
    }

    async fn next(&self) -> std::io::Result<(TcpStream, Door)> {
        let (stream, peer) = self.accept().await?;
        // Answers are small and somebody waits for them.
        let _ = stream.set_nodelay(true);
        Ok((stream, Door::Port { peer: peer.ip() }))
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;
    type Raw = UnixStream;

    fn greet(&self, raw: UnixStream) -> impl Future<Output = Option<UnixStream>> + Send + 'static {
        std::future::ready(Some(raw))
    }

    /// The kernel says who is at the other end.
    async fn next(&self) -> std::io::Result<(UnixStream, Door)> {
        let (stream, _) = self.accept().await?;
        let is_owner = is_owner(&stream);
        Ok((stream, Door::Socket { is_owner }))
    }
}

/// A socket that was made inside a run.
struct Inside(UnixListener);

impl Accept for Inside {
    type Stream = UnixStream;
    type Raw = UnixStream;

    fn greet(&self, raw: UnixStream) -> impl Future<Output = Option<UnixStream>> + Send + 'static {
        std::future::ready(Some(raw))
    }

    async fn next(&self) -> std::io::Result<(UnixStream, Door)> {
        let (stream, _) = self.0.accept().await?;
        Ok((stream, Door::Inside))
    }
}

/// Takes connections of the program inside until told to stop; then answers
/// have so long to be taken.
pub async fn accept_inside(
    listener: UnixListener,
    router: Router,
    mut stopped: watch::Receiver<bool>,
    closing: Duration,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_INSIDE_MAX));
    let rooms = vec![room, INSIDE.clone()];
    let serving = accept(Inside(listener), router, rooms, stopped.clone());
    let late = async {
        let _ = stopped.changed().await;
        tokio::time::sleep(closing).await;
    };
    tokio::select! {
        () = serving => (),
        () = late => (),
    }
}

/// Whether the owner, or root, is at the other end.
pub fn is_owner(stream: &UnixStream) -> bool {
    let us = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| [us, 0].contains(&peer.uid()))
}

/// Takes connections until told to stop, then lets each finish its answer.
pub async fn accept_all(listeners: Listeners, router: Router, stopped: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut loops = JoinSet::new();
    let Listeners { socket, ports, tls } = listeners;
    let claim = socket.map(|(listener, claim)| {
        loops.spawn(accept(listener, router.clone(), vec![room.clone()], stopped.clone()));
        claim
    });
    for port in ports {
        let (router, room, stopped) = (router.clone(), vec![room.clone()], stopped.clone());
        match tls.clone() {
            None => loops.spawn(accept(port, router, room, stopped)),
            Some(tls) => loops.spawn(accept(Safe { port, tls }, router, room, stopped)),
        };
    }
    while loops.join_next().await.is_some() {}
    drop(claim);
}

async fn accept(
    listener: impl Accept,
    router: Router,
    rooms: Vec<Arc<Semaphore>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.next() => accepted,
            _ = stopped.changed() => break,
        };
        match accepted {
            Ok((raw, door)) => {
                let permits = rooms.iter().map(|room| room.clone().try_acquire_owned());
                let permits: std::result::Result<Vec<_>, _> = permits.collect();
                let Ok(permits) = permits else { continue };
                let greeting = listener.greet(raw);
                let (router, stopped) = (router.clone(), stopped.clone());
                connections.spawn(async move {
                    let _permits = permits;
                    if let Some(stream) = greeting.await {
                        serve_one(stream, door, router, stopped).await;
                    }
                });
            }
            Err(error) => breathe(&error).await,
        }
        while connections.try_join_next().is_some() {}
    }
    while connections.join_next().await.is_some() {}
}

/// Out of descriptors, mostly: a pause lets some come free.
pub async fn breathe(error: &std::io::Error) {
    tracing::warn!("cannot take a connection: {error}");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn serve_one(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    door: Door,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(door);
        router.clone().oneshot(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}
