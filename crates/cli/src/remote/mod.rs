//! A server that runs on the state directory, and how it is asked.
//!
//! Asking one saves opening the state directory; it must never be noticed
//! otherwise. So it is asked only if it is of the same version, belongs to the
//! same user and lives in the same namespaces, where a path means the same to
//! both; everything else, a dead socket first, is no error and means working
//! without it. This folder speaks HTTP by hand: builds without the feature
//! `server` have a client too.

mod answer;
pub mod direct;
mod facts;
mod http;

pub use facts::Facts;

use fractal::{Action, Code, Error, Reply};
use http::Response;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a server may take to say which one it is.
const GREETING_TIME: Duration = Duration::from_secs(2);
/// What a server takes at most.
const BODY_BYTES_MAX: usize = 1 << 20;
const SERVICE_UNAVAILABLE: u16 = 503;

/// A server that said it is ours.
pub struct Server {
    stream: UnixStream,
    facts: Facts,
}

/// Why an action was not carried out by a server.
pub enum Refused {
    /// Nothing has happened, and the server is not the one to ask.
    Unused,
    /// What it answered, or that it did not.
    Error(Error),
}

impl Server {
    /// The server of a state directory, or why there is none for us.
    pub fn find(home: &Path, facts: Facts) -> Result<Server, String> {
        let stream = reach(&home.join("server.sock"))?;
        let server = Server { stream, facts };
        server.greet()?;
        Ok(server)
    }

    /// Compares versions. Two that differ may read one state directory
    /// differently, and would not give one answer.
    fn greet(&self) -> Result<(), String> {
        let late = |error: std::io::Error| format!("the server does not answer: {error}");
        self.stream.set_read_timeout(Some(GREETING_TIME)).map_err(late)?;
        let response = http::get(&self.stream, "/v1/version", &self.facts).map_err(late)?;
        self.stream.set_read_timeout(None).map_err(late)?;
        self.stream.set_write_timeout(None).map_err(late)?;
        let told: serde_json::Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let version = told["version"].as_str().unwrap_or("of an unknown version");
        let is_same = version == env!("CARGO_PKG_VERSION")
            && told["format"].as_u64() == Some(u64::from(fractal::FORMAT_VERSION));
        match is_same {
            true => Ok(()),
            false => Err(format!("the server is another one: {version}")),
        }
    }

    /// Has an action carried out.
    pub fn apply(&self, action: &Action) -> Result<Reply, Refused> {
        let body = serde_json::to_vec(action)
            .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
        if body.len() > BODY_BYTES_MAX {
            return Err(Refused::Unused);
        }
        let response = http::post(&self.stream, "/v1/apply", &self.facts, &body).map_err(lost)?;
        read(action, &response)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Error(error)
    }
}

/// Nobody knows how far it came: doing it again could do it twice.
fn lost(error: std::io::Error) -> Error {
    Error::new(Code::Internal, format!("the server was lost before it answered: {error}"))
        .hint("`fractal log` tells whether it was carried out")
}

fn read(action: &Action, response: &Response) -> Result<Reply, Refused> {
    match response.status {
        200..300 => Ok(answer::reply(action, &response.body)?),
        // It is about to end and has begun nothing.
        SERVICE_UNAVAILABLE => Err(Refused::Unused),
        _ => Err(answer::error(&response.body).into()),
    }
}

/// Connects to a server of this user in these namespaces.
fn reach(path: &Path) -> Result<UnixStream, String> {
    let none = |error: rustix::io::Errno| format!("no server listens: {error}");
    let address = SocketAddrUnix::new(path).map_err(none)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(none)?;
    // A server that is stopped takes no connections, and others may queue.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(GREETING_TIME))
        .map_err(none)?;
    connect(&socket, &address).map_err(none)?;
    check_peer(&socket)?;
    Ok(UnixStream::from(socket))
}

/// The kernel says who listens. A server of somebody else would do our work
/// with their rights, and one in other namespaces with other files.
fn check_peer(socket: &OwnedFd) -> Result<(), String> {
    let peer = sockopt::socket_peercred(socket).map_err(|error| error.to_string())?;
    if peer.uid != rustix::process::geteuid() {
        return Err("the server belongs to another user".to_owned());
    }
    let pid = peer.pid.as_raw_nonzero().to_string();
    let space = |of: &str, kind: &str| std::fs::read_link(format!("/proc/{of}/ns/{kind}")).ok();
    let is_shared =
        |kind: &&str| space("self", kind).is_some_and(|own| space(&pid, kind) == Some(own));
    match ["mnt", "net", "user"].iter().all(is_shared) {
        true => Ok(()),
        false => Err("the server lives in other namespaces".to_owned()),
    }
}
