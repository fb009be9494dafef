//! A server of its own for one test, and requests byte by byte.

use crate::world::{FRACTAL, World};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Killed with the test.
pub struct Server {
    child: Child,
    pub port: u16,
    socket: std::path::PathBuf,
    log: Arc<Mutex<String>>,
}

/// What came back.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: String,
    pub body: String,
    /// The same where it is no text.
    pub bytes: Vec<u8>,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// What must be true of a refusal.
    pub fn refusal(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        let error = self.json()["error"].clone();
        assert_eq!(error["code"], code, "{}", self.body);
        error["message"].as_str().expect("a message").to_owned()
    }
}

impl Server {
    pub fn start(world: &World) -> Server {
        Server::start_with(world, &[])
    }

    pub fn start_with(world: &World, more: &[&str]) -> Server {
        Server::start_as(world.command(FRACTAL), more)
    }

    /// With variables of its own.
    pub fn start_as(mut command: Command, more: &[&str]) -> Server {
        let args = ["serve", "--json", "--listen", "127.0.0.1:0"];
        command.args(args).args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("it tells where it is");
        if line.is_empty() {
            let mut why = String::new();
            let _ = child.stderr.take().expect("piped").read_to_string(&mut why);
            panic!("the server did not start: {why}");
        }
        let log = keep(child.stderr.take().expect("piped"));
        let ready: Value = serde_json::from_str(&line).expect("one object");
        let url = ready["listen"][0].as_str().expect("an address");
        let port = url.rsplit(':').next().expect("a port").parse().expect("a number");
        let socket = ready["socket"].as_str().expect("a socket").into();
        Server { child, port, socket, log }
    }

    /// What it told so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("nobody broke it").clone()
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// As the owner, by the socket.
    pub fn own(&self, method: &str, path: &str, body: &str) -> Response {
        let stream = UnixStream::connect(&self.socket).expect("the socket is there");
        exchange(stream, &request(method, path, "x", &[], body))
    }

    /// As the owner, with further headers.
    pub fn own_with(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Response {
        let stream = UnixStream::connect(&self.socket).expect("the socket is there");
        exchange(stream, &request(method, path, "x", headers, body))
    }

    /// With a key, by the port.
    pub fn with_key(&self, key: &str, method: &str, path: &str, body: &str) -> Response {
        let header = format!("Authorization: Bearer {key}");
        self.by_port(method, path, &[&header], body)
    }

    /// Content instead of JSON, with a key, or as the owner without one.
    pub fn content(&self, key: Option<&str>, method: &str, path: &str, body: &[u8]) -> Response {
        let length = format!("Content-Length: {}", body.len());
        let bearer = format!("Authorization: Bearer {}", key.unwrap_or_default());
        let headers = [length.as_str(), bearer.as_str()];
        let headers = if key.is_some() { &headers[..] } else { &headers[..1] };
        let host = format!("127.0.0.1:{}", self.port);
        let mut bytes = request(method, path, &host, headers, "");
        bytes.extend_from_slice(body);
        match key {
            Some(_) => self.raw(&bytes),
            None => exchange(UnixStream::connect(&self.socket).expect("it is there"), &bytes),
        }
    }

    /// By the port, with these headers.
    pub fn by_port(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Response {
        let host = format!("127.0.0.1:{}", self.port);
        self.raw(&request(method, path, &host, headers, body))
    }

    /// These bytes, by the port.
    pub fn raw(&self, bytes: &[u8]) -> Response {
        exchange(self.connect(), bytes)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the port is open");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it can be set");
        stream
    }

    /// A key of this role, by the owner.
    pub fn key(&self, fields: &str) -> String {
        let made = self.own("POST", "/v1/keys", fields);
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["secret"].as_str().expect("a secret").to_owned()
    }

    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and gives the exit status.
    pub fn stop(mut self) -> i32 {
        let pid = self.pid().to_string();
        std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        self.child.wait().expect("it ends").code().unwrap_or(-1)
    }
}

/// Reads what a server tells, which must not wait for a test to do so.
fn keep(err: std::process::ChildStderr) -> Arc<Mutex<String>> {
    let log = Arc::<Mutex<String>>::default();
    let shared = log.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(err).lines().map_while(Result::ok) {
            *shared.lock().expect("nobody broke it") += &format!("{line}\n");
        }
    });
    log
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn request(method: &str, path: &str, host: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for header in headers {
        text += &format!("{header}\r\n");
    }
    if !body.is_empty() {
        text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    text += "\r\n";
    text += body;
    text.into_bytes()
}

pub fn exchange(mut stream: impl Read + Write, request: &[u8]) -> Response {
    // A server that refuses early may close before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (headers, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = headers.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let chunked = headers.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(body) } else { body.to_owned() };
    let start = answer.windows(4).position(|part| part == b"\r\n\r\n").map_or(0, |at| at + 4);
    Response { status, headers: headers.to_owned(), body, bytes: answer[start..].to_vec() }
}

fn unchunk(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole += &rest[..size];
        text = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// Waits for something that will be true; a test that hangs says so itself.
pub fn wait_until(is_true: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_true() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("it did not become true within a minute");
}
