//! Whether a server at a socket is one that does what we would do.

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a server may take to say which one it is.
pub const GREETING_TIME: Duration = Duration::from_secs(2);

/// Namespaces that decide what a path and an address mean.
const SPACES: [&str; 3] = ["mnt", "net", "user"];

/// What a program has of the process that starts it, as lines of
/// `/proc/<pid>/status`. A limit of our own, or a narrower choice of
/// processors, must hold for a run that a server starts for us.
const INHERITED: [&str; 10] = [
    "Umask:",
    "Uid:",
    "Gid:",
    "Groups:",
    "CapEff:",
    "CapBnd:",
    "NoNewPrivs:",
    "Seccomp:",
    "Cpus_allowed:",
    "Mems_allowed:",
];

/// Connects to a server of this user in these namespaces; says why not.
pub fn reach(path: &Path) -> Result<UnixStream, String> {
    let none = |error: rustix::io::Errno| format!("no server listens: {error}");
    let address = SocketAddrUnix::new(path).map_err(none)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(none)?;
    // A server that is stopped takes no connections, and others may queue.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(GREETING_TIME))
        .map_err(none)?;
    connect(&socket, &address).map_err(none)?;
    let stream = UnixStream::from(socket);
    stream.set_read_timeout(Some(GREETING_TIME)).map_err(|error| error.to_string())?;
    check(&stream)?;
    Ok(stream)
}

/// The kernel says who listens. A server of somebody else would do our work
/// with their rights, and one in other namespaces with other files.
fn check(stream: &UnixStream) -> Result<(), String> {
    let peer = sockopt::socket_peercred(stream.as_fd()).map_err(|error| error.to_string())?;
    if peer.uid != rustix::process::geteuid() {
        return Err("the server belongs to another user".to_owned());
    }
    let pid = peer.pid.as_raw_nonzero().to_string();
    let space = |of: &str, kind: &str| std::fs::read_link(format!("/proc/{of}/ns/{kind}")).ok();
    let is_shared =
        |kind: &&str| space("self", kind).is_some_and(|own| space(&pid, kind) == Some(own));
    match SPACES.iter().all(is_shared) {
        true => Ok(()),
        false => Err("the server lives in other namespaces".to_owned()),
    }
}

/// Takes deadlines away, once it has said who it is.
pub fn settle(stream: &UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)
}

/// Whether a program that the server starts has what it would have of us.
pub fn is_alike(stream: &UnixStream) -> bool {
    let Ok(peer) = sockopt::socket_peercred(stream.as_fd()) else { return false };
    let theirs = peer.pid.as_raw_nonzero().to_string();
    let nice = |pid| rustix::process::getpriority_process(pid).ok();
    nice(None) == nice(Some(peer.pid))
        && inherited("self").is_some_and(|own| inherited(&theirs) == Some(own))
}

fn inherited(pid: &str) -> Option<String> {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let status = file("status")?;
    let kept = status.lines().filter(|line| INHERITED.iter().any(|name| line.starts_with(name)));
    Some(kept.collect::<Vec<_>>().join("\n") + &file("limits")?)
}

/// Whether what a server told of itself is what we are. Two versions may read
/// one state directory differently, and would not give one answer.
pub fn check_version(told: &[u8]) -> Result<(), String> {
    let told: serde_json::Value = serde_json::from_slice(told).unwrap_or_default();
    let version = told["version"].as_str().unwrap_or("of an unknown version");
    let is_same = version == env!("CARGO_PKG_VERSION")
        && told["format"].as_u64() == Some(u64::from(fractal::FORMAT_VERSION));
    match is_same {
        true => Ok(()),
        false => Err(format!("the server is another one: {version}")),
    }
}
