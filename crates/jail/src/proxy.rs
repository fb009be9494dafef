//! The way out for `--net allow:…`: an HTTP proxy with a list of hosts.
//!
//! Its listening socket is made inside the run's network namespace, where
//! there is nothing but loopback, and served from here. It knows `CONNECT`
//! and absolute requests. A name must be on the list; it is resolved here,
//! and addresses of this machine or its link are refused afterwards, so a
//! public name that points inwards gets nowhere.

use crate::sys::fd;
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Where programs inside find it.
pub const PORT: u16 = 3128;

/// Who is reached without it.
const DIRECT: &str = "localhost,127.0.0.1,::1";

const HEAD_BYTES_MAX: u64 = 64 * 1024;
const CONNECTIONS_MAX: usize = 128;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The variables that make programs use it, except for the loopback: what
/// listens there inside would be refused by it.
pub fn environment() -> Vec<(String, String)> {
    let url = format!("http://127.0.0.1:{PORT}");
    let proxied =
        ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"]
            .map(|name| (name.to_owned(), url.clone()));
    let direct = ["no_proxy", "NO_PROXY"].map(|name| (name.to_owned(), DIRECT.to_owned()));
    proxied.into_iter().chain(direct).collect()
}

/// Serves until dropped.
pub struct Proxy(Arc<AtomicBool>);

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts serving a listening socket.
pub fn serve(listener: OwnedFd, allowed: BTreeSet<String>) -> Proxy {
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let listener = TcpListener::from(listener);
    let _ = listener.set_nonblocking(true);
    let allowed = Arc::new(allowed);
    let living = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            if !is_waiting(&listener) {
                continue;
            }
            match listener.accept() {
                Ok((client, _)) if living.load(Ordering::Relaxed) < CONNECTIONS_MAX => {
                    let (allowed, living) = (Arc::clone(&allowed), Arc::clone(&living));
                    living.fetch_add(1, Ordering::Relaxed);
                    std::thread::spawn(move || {
                        let _ = client.set_nonblocking(false);
                        let _ = handle(client, &allowed);
                        living.fetch_sub(1, Ordering::Relaxed);
                    });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    });
    Proxy(done)
}

/// Whether somebody wants to connect, after a moment at most: the run may be
/// over meanwhile.
fn is_waiting(listener: &TcpListener) -> bool {
    let mut ready = [libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    fd::poll(&mut ready, 100) != Ok(0)
}

/// What a client asked for.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
    /// The request line to send on; none for a tunnel.
    request: Option<String>,
}

fn handle(client: TcpStream, allowed: &BTreeSet<String>) -> io::Result<()> {
    client.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    let mut reader = BufReader::new(client.try_clone()?.take(HEAD_BYTES_MAX));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let Some(target) = parse(&line) else {
        return answer(&client, 400, "this is not a proxy request");
    };
    if !is_allowed(&target.host, allowed) {
        return answer(
            &client,
            403,
            &format!("{} is not on this sandbox's list of hosts", target.host),
        );
    }
    let mut headers = String::new();
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        let lower = header.to_ascii_lowercase();
        if !lower.starts_with("proxy-") && !lower.starts_with("connection:") {
            headers.push_str(&header);
        }
    }
    let upstream = match connect(&target) {
        Ok(upstream) => upstream,
        Err(error) => return answer(&client, 502, &error.to_string()),
    };
    match &target.request {
        None => (&client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
        Some(request) => {
            (&upstream)
                .write_all(format!("{request}\r\n{headers}Connection: close\r\n\r\n").as_bytes())?;
        }
    }
    let early = reader.buffer().to_vec();
    (&upstream).write_all(&early)?;
    client.set_read_timeout(None)?;
    join(client, upstream)
}

fn parse(line: &str) -> Option<Target> {
    let mut words = line.split_whitespace();
    let (method, uri, version) = (words.next()?, words.next()?, words.next()?);
    if method == "CONNECT" {
        let (host, port) = split_port(uri, 443)?;
        return Some(Target { host, port, request: None });
    }
    let rest = uri.strip_prefix("http://")?;
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let authority = authority.rsplit('@').next()?;
    let (host, port) = split_port(authority, 80)?;
    Some(Target { host, port, request: Some(format!("{method} {path} {version}")) })
}

fn split_port(text: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().ok()?)
        }
        _ => (text, default),
    };
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    (!host.is_empty()).then_some((host, port))
}

/// `example.org` allows itself, `*.example.org` allows everything below, `*`
/// everything that has no address inwards.
fn is_allowed(host: &str, allowed: &BTreeSet<String>) -> bool {
    allowed.iter().any(|rule| match rule.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
        None => rule == "*" || rule == host,
    })
}

fn connect(target: &Target) -> io::Result<TcpStream> {
    let refused = || {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the name points at this machine or its link",
        )
    };
    let addresses: Vec<SocketAddr> =
        (target.host.as_str(), target.port).to_socket_addrs()?.collect();
    let mut last = refused();
    let outward = |address: &&SocketAddr| is_public(address.ip()) && !is_own(**address);
    for address in addresses.iter().filter(outward) {
        match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Not this machine, its link, or the metadata services that live there; also
/// not where an address of the new kind leads to one of the old.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            !(v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_broadcast()
                || v4.is_multicast())
                && v4.octets()[0] != 0
                && !METADATA_V4.contains(&v4)
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            // Link-local, and what was site-local once.
            let is_near = matches!(first & 0xffc0, 0xfe80 | 0xfec0);
            let is_inward = v6.is_loopback() || v6.is_unspecified() || v6.is_multicast() || is_near;
            !(is_inward || METADATA_V6.contains(&v6))
                && embedded(v6).is_none_or(|v4| is_public(IpAddr::V4(v4)))
        }
    }
}

/// Where large clouds tell machines their secrets, apart from 169.254.0.0/16.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// The address of the old kind that one of the new kind stands for: mapped,
/// compatible, by 6to4, or by a translator (NAT64).
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = v6.segments();
    let joined = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match parts {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, _, _, _, _, high, low] => {
            Some(joined(high, low))
        }
        [0x2002, high, low, ..] => Some(joined(high, low)),
        _ => None,
    }
}

/// Whether this machine has that address itself: what listens on all of its
/// addresses would be reached by any of them. Asked of the kernel's routes,
/// without sending anything.
fn is_own(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let route = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    route.is_ok_and(|from| from.ip() == address.ip())
}

fn answer(mut client: &TcpStream, status: u16, text: &str) -> io::Result<()> {
    let length = text.len() + 10;
    write!(
        client,
        "HTTP/1.1 {status} fractal\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\nfractal: {text}\n"
    )
}

/// Copies both ways until both sides are done.
fn join(client: TcpStream, upstream: TcpStream) -> io::Result<()> {
    let (mut from_client, mut to_upstream) = (client.try_clone()?, upstream.try_clone()?);
    let there = std::thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_upstream);
        let _ = to_upstream.shutdown(std::net::Shutdown::Write);
    });
    let (mut from_upstream, mut to_client) = (upstream, client);
    let _ = io::copy(&mut from_upstream, &mut to_client);
    let _ = to_client.shutdown(std::net::Shutdown::Both);
    let _ = there.join();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_parse() {
        let check = |line: &str, expect: Option<(&str, u16, Option<&str>)>| {
            let expect = expect.map(|(host, port, request)| Target {
                host: host.into(),
                port,
                request: request.map(str::to_owned),
            });
            assert_eq!(parse(line), expect, "{line}");
        };
        check("CONNECT a.org:443 HTTP/1.1", Some(("a.org", 443, None)));
        check("CONNECT [::1]:8443 HTTP/1.1", Some(("::1", 8443, None)));
        check("GET http://A.org./x?y HTTP/1.1", Some(("a.org", 80, Some("GET /x?y HTTP/1.1"))));
        check("GET http://user@a.org:81 HTTP/1.0", Some(("a.org", 81, Some("GET / HTTP/1.0"))));
        check("GET /local HTTP/1.1", None);
        check("", None);
    }

    #[test]
    fn the_list_is_by_whole_labels() {
        let allowed: BTreeSet<String> = ["a.org".to_owned(), "*.b.org".to_owned()].into();
        for (host, expect) in [
            ("a.org", true),
            ("x.a.org", false),
            ("x.b.org", true),
            ("b.org", false),
            ("xb.org", false),
            ("a.org.evil", false),
        ] {
            assert_eq!(is_allowed(host, &allowed), expect, "{host}");
            assert!(is_allowed(host, &BTreeSet::from(["*".to_owned()])), "{host}");
        }
    }

    #[test]
    fn inward_addresses_are_refused() {
        for text in [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "::1",
            "fe80::1",
            "::ffff:127.0.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "255.255.255.255",
            "224.0.0.1",
            "::",
            "::7f00:1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::a9fe:a9fe",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::",
            "fec0::1",
            "febf::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
        ] {
            assert!(!is_public(text.parse().expect("an address")), "{text}");
        }
        for text in
            ["93.184.216.34", "10.0.0.1", "2606:2800:220::1", "fd12::1", "64:ff9b::5db8:d822"]
        {
            assert!(is_public(text.parse().expect("an address")), "{text}");
        }
    }
}
