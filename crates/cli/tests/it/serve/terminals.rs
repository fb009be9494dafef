//! Terminals over WebSockets, with a real client.

use super::client::{Server, wait_until};
use crate::world::{World, able};
use serde_json::{Value, json};
use std::net::TcpStream;
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

/// A terminal, and what it has shown.
struct Screen {
    socket: WebSocket<TcpStream>,
    shown: String,
}

impl Screen {
    fn open(server: &Server, key: &str, query: &str) -> Screen {
        Screen::try_open(server, key, query, None).expect("it is opened")
    }

    /// The status of a refusal otherwise.
    fn try_open(
        server: &Server,
        key: &str,
        query: &str,
        origin: Option<&str>,
    ) -> Result<Screen, u16> {
        let url = format!("ws://127.0.0.1:{}/v1/sandboxes/{query}", server.port);
        let mut request = url.into_client_request().expect("an address");
        let headers = request.headers_mut();
        headers.insert("Authorization", format!("Bearer {key}").parse().expect("a header"));
        if let Some(origin) = origin {
            headers.insert("Origin", origin.parse().expect("a header"));
        }
        match tungstenite::client(request, server.connect()) {
            Ok((socket, _)) => Ok(Screen { socket, shown: String::new() }),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                Err(answer.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn type_in(&mut self, text: &str) {
        self.socket.send(Message::binary(text.as_bytes().to_vec())).expect("it is sent");
    }

    fn say(&mut self, word: &Value) {
        self.socket.send(Message::text(word.to_string())).expect("it is sent");
    }

    /// Reads until it has shown something.
    fn shows(&mut self, text: &str) {
        while !self.shown.contains(text) {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => self.shown += &String::from_utf8_lossy(&bytes),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("{other:?} after {:?}, without {text:?}", self.shown),
            }
        }
    }

    /// Reads to the end; gives the last word.
    fn ends(mut self) -> (Value, String) {
        let mut last = Value::Null;
        loop {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => self.shown += &String::from_utf8_lossy(&bytes),
                Ok(Message::Text(text)) => last = serde_json::from_str(&text).expect("JSON"),
                Ok(_) => {}
                Err(_) => return (last, self.shown),
            }
        }
    }
}

/// A server with a sandbox `s`, and a key for it.
fn started(world: &World) -> (Server, String) {
    let server = Server::start(world);
    let key = server.key(r#"{"role":"runner"}"#);
    let made = server.with_key(&key, "POST", "/v1/sandboxes", r#"{"name":"s"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    (server, key)
}

#[test]
fn a_terminal_echoes_has_a_size_and_ends_with_a_status() {
    if !able() {
        return;
    }
    let world = World::new();
    let (server, key) = started(&world);
    let mut screen = Screen::open(&server, &key, "s/terminal?cols=101&rows=33");
    screen.type_in("stty size; tty >/dev/null && echo on a $TERM\r");
    screen.shows("33 101");
    screen.shows("on a xterm");
    screen.say(&json!({ "resize": { "cols": 64, "rows": 16 } }));
    // The size arrives by another way than what is typed.
    screen.type_in("until [ \"$(stty size)\" = '16 64' ]; do :; done; echo new-$((1+1))\r");
    screen.shows("new-2");
    screen.type_in("echo made > f; exit 7\r");
    let (last, _) = screen.ends();
    assert_eq!(
        (&last["exit"], &last["result"]["outcome"]),
        (&json!(7), &json!("exited")),
        "{last}"
    );
    let got = server.content(Some(&key), "GET", "/v1/sandboxes/s/files/f", b"");
    assert_eq!(got.body, "made\n");
    // A run like any other: counted and on record.
    let log = server.with_key(&key, "GET", "/v1/sandboxes/s/log", "").json();
    let runs = log["records"].as_array().expect("records").iter();
    assert_eq!(runs.filter(|record| record["action"] == "run").count(), 1, "{log}");
    let numbers = server.own("GET", "/metrics", "").body;
    assert!(numbers.contains("fractal_runs_total{outcome=\"exited\"}"), "{numbers}");
}

#[test]
fn an_interrupt_reaches_the_program() {
    if !able() {
        return;
    }
    let world = World::new();
    let (server, key) = started(&world);
    let command = "trap%20'echo%20caught;%20exit%203'%20INT;%20echo%20ready;%20while%20:;%20do%20sleep%200.1;%20done";
    let mut screen = Screen::open(&server, &key, &format!("s/terminal?command={command}"));
    screen.shows("ready");
    screen.type_in("\u{3}");
    let (last, shown) = screen.ends();
    assert!(shown.contains("caught"), "{shown}");
    assert_eq!(last["exit"], 3, "{last}");
}

#[test]
fn who_goes_away_hangs_up() {
    if !able() {
        return;
    }
    let world = World::new();
    let (server, key) = started(&world);
    // One that ends of it, and one that does not care.
    for command in
        ["echo%20ready;%20exec%20sleep%201000", "trap%20''%20HUP;%20echo%20ready;%20sleep%201000"]
    {
        let mut screen = Screen::open(&server, &key, &format!("s/terminal?command={command}"));
        screen.shows("ready");
        let running =
            || server.with_key(&key, "GET", "/v1/sandboxes/s", "").json()["state"] == "running";
        assert!(running());
        drop(screen);
        wait_until(|| !running());
    }
    let log = server.with_key(&key, "GET", "/v1/sandboxes/s/log", "").body;
    assert!(log.contains("signalled"), "{log}");
}

#[test]
fn a_terminal_ends_with_the_key_that_opened_it() {
    if !able() {
        return;
    }
    let world = World::new();
    let (server, key) = started(&world);
    let brief = server.key(r#"{"role":"runner","name":"brief","tenant":"owner"}"#);
    assert_eq!(server.own("POST", "/v1/sandboxes", r#"{"name":"t"}"#).status, 201);
    let mut screen = Screen::open(&server, &brief, "t/terminal?command=echo%20on;%20sleep%201000");
    screen.shows("on");
    // Others are not concerned.
    let mut other = Screen::open(&server, &key, "s/terminal");
    assert_eq!(server.own("DELETE", "/v1/keys/brief", "").status, 200);
    let (last, _) = screen.ends();
    assert_eq!(last["error"]["message"], "the key has ended", "{last}");
    wait_until(|| server.own("GET", "/v1/sandboxes/t", "").json()["state"] == "idle");
    other.type_in("echo still-$((1+1)); exit 0\r");
    let (last, shown) = other.ends();
    assert!(last["exit"] == 0 && shown.contains("still-2"), "{last} {shown}");
}

#[test]
fn a_terminal_is_for_those_who_may_run_there() {
    if !able() {
        return;
    }
    let world = World::new();
    let (server, key) = started(&world);
    let refused = |key: &str, query: &str, origin: Option<&str>| {
        Screen::try_open(&server, key, query, origin).err()
    };
    let other = server.key(r#"{"role":"runner"}"#);
    let viewer = server.key(r#"{"role":"viewer","tenant":"owner"}"#);
    assert_eq!(refused(&other, "s/terminal", None), Some(404));
    assert_eq!(refused(&key, "absent/terminal", None), Some(404));
    assert_eq!(refused(&viewer, "s/terminal", None), Some(403));
    assert_eq!(refused("frk_nonsense", "s/terminal", None), Some(401));
    assert_eq!(refused(&key, "s/terminal", Some("http://example.org")), Some(403));
    assert_eq!(refused(&key, "s/terminal?cols=many", None), Some(400));
    server.with_key(&key, "GET", "/v1/sandboxes/s/terminal", "").refusal(426, "invalid");
}

#[test]
fn what_is_no_word_and_what_is_too_much_ends_a_terminal() {
    if !able() {
        return;
    }
    let world = World::new();
    let (server, key) = started(&world);
    let mut screen = Screen::open(&server, &key, "s/terminal?command=echo%20ready;%20sleep%201000");
    screen.shows("ready");
    screen.say(&json!({ "resise": 1 }));
    let (last, _) = screen.ends();
    assert_eq!(last["error"]["code"], "invalid", "{last}");
    let quiet = "s/terminal?command=stty%20raw%20-echo;%20echo%20ready;%20sleep%201000";
    let mut screen = Screen::open(&server, &key, quiet);
    screen.shows("ready");
    let much = vec![b'x'; 60_000];
    // It is sent away before all of it has come.
    while screen.socket.send(Message::binary(much.clone())).is_ok() {}
    drop(screen);
    let mut screen = Screen::open(&server, &key, quiet);
    screen.shows("ready");
    let _ = screen.socket.send(Message::binary(vec![b'x'; 100_000]));
    drop(screen);
    let state = || server.with_key(&key, "GET", "/v1/sandboxes/s", "").json()["state"].clone();
    wait_until(|| state() == "idle");
}
