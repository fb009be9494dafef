//! As much of HTTP/1.1 as one request after the other on a local socket needs:
//! a head, a body of a length that is told, and the same back.
//!
//! It reads what our own server writes and refuses everything else; sizes are
//! bounded although the server is our own, because a defect there should be
//! an error here.

use super::Facts;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Lists have no bound of their own; what does not fit in here is not for
/// people.
const BODY_BYTES_MAX: u64 = 1 << 30;

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

pub fn get(stream: &UnixStream, path: &str, facts: &Facts) -> io::Result<Response> {
    exchange(stream, "GET", path, facts, None)
}

pub fn post(stream: &UnixStream, path: &str, facts: &Facts, body: &[u8]) -> io::Result<Response> {
    exchange(stream, "POST", path, facts, Some(body))
}

fn exchange(
    mut stream: &UnixStream,
    method: &str,
    path: &str,
    facts: &Facts,
    body: Option<&[u8]>,
) -> io::Result<Response> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: fractal\r\n").into_bytes();
    request.extend_from_slice(facts.headers());
    if let Some(body) = body {
        let about = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        request.extend_from_slice(about.as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body.unwrap_or_default());
    stream.write_all(&request).map_err(unread)?;
    // Nothing follows an answer before we ask again, so nothing is lost with
    // what this reader holds.
    let mut answer = BufReader::new(stream);
    answer.fill_buf().map_err(unread)?;
    read(answer)
}

/// A request that the other side has not read to its end, and so not begun. The
/// kernel tells it apart from one that was read: a local socket that is closed
/// takes no more (a broken pipe), or was closed with bytes in it that nobody
/// had read (a reset), and nothing follows a request before its answer.
#[derive(Debug)]
struct Unread;

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server closed before it had read the request")
    }
}

impl std::error::Error for Unread {}

/// The same error, said in these words where it is one of those.
pub fn unread(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            io::Error::new(error.kind(), Unread)
        }
        _ => error,
    }
}

/// Whether an error says so.
pub fn is_unread(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Unread>())
}

fn read(mut from: impl BufRead) -> io::Result<Response> {
    let mut head = from.by_ref().take(HEAD_BYTES_MAX);
    let mut line = String::new();
    let mut next = |line: &mut String| -> io::Result<()> {
        line.clear();
        match head.read_line(line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    };
    next(&mut line)?;
    let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| strange("it has no status"))?;
    let mut length = None;
    loop {
        next(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok();
            }
            Some(_) => {}
            None => break,
        }
    }
    let length = length.ok_or_else(|| strange("it has no length"))?;
    if length > BODY_BYTES_MAX {
        return Err(strange("it is too long"));
    }
    let mut body = Vec::new();
    from.take(length).read_to_end(&mut body)?;
    match body.len() as u64 == length {
        true => Ok(Response { status, body }),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn strange(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the answer does not read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_or_an_error() {
        let check = |text: &str, expect: Option<(u16, &str)>| {
            let found = read(text.as_bytes()).ok();
            let found = found
                .map(|found| (found.status, String::from_utf8_lossy(&found.body).into_owned()));
            assert_eq!(found, expect.map(|(status, body)| (status, body.to_owned())), "{text}");
        };
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab", Some((200, "ab")));
        check("HTTP/1.1 404 x\r\nA: b\r\nContent-Length:0\r\n\r\n", Some((404, "")));
        check("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", None);
        check("HTTP/1.1 200 OK\r\n\r\n", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", None);
        check("garbage\r\n\r\n", None);
        check("", None);
        check(&format!("HTTP/1.1 200 {}\r\n\r\n", "x".repeat(1 << 17)), None);
    }
}
