//! JSON-RPC with another program: one message per line, in both directions.
//!
//! Whoever is at the other end is not trusted. Lines, what nobody asked for
//! and what is no message at all are bounded; nothing is waited for longer
//! than the caller says; what the other side asks of us is refused, but for
//! `ping`. Several may wait for answers at once.

use crate::tools::Cancel;
use crate::tools::slots::{LOOK, Slots};
use rustix::fs::{OFlags, fcntl_setfl};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of one message.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// Bytes between two answers that nobody asked for.
const UNASKED_BYTES_MAX: usize = 16 << 20;

/// Bytes that are no messages: greetings are forgiven, no more.
const NOISE_BYTES_MAX: usize = 64 << 10;

/// How long a refusal may take to be sent.
const REFUSAL: Duration = Duration::from_millis(500);

const NAP: Duration = Duration::from_millis(2);

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// It did not come in time.
    Late,
    /// Nobody wants it any more.
    CalledOff,
    /// None will come: the reason, or nothing when the other side just ended.
    Broken(Option<String>),
}

/// How long somebody waits, and whether still.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    pub until: Instant,
    pub cancel: &'a Cancel,
}

impl Patience<'_> {
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn check(&self) -> Result<(), Trouble> {
        match () {
            () if self.cancel.is_cancelled() => Err(Trouble::CalledOff),
            () if self.left().is_zero() => Err(Trouble::Late),
            () => Ok(()),
        }
    }
}

/// Our end. Dropping it closes the other side's input.
#[derive(Debug)]
pub struct Wire {
    out: Arc<Out>,
    heard: Arc<Heard>,
    next: AtomicU64,
}

/// Where messages are written, by one at a time.
#[derive(Debug)]
struct Out {
    pipe: Mutex<Option<PipeWriter>>,
    turn: Arc<Slots>,
}

/// What was read.
#[derive(Debug, Default)]
struct Heard {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Who waits, and what has come for them.
    awaited: BTreeMap<u64, Option<Value>>,
    /// Why nothing more will come.
    broken: Option<Option<String>>,
    unasked_bytes: usize,
    noise_bytes: usize,
    /// The first thing that was no message.
    noise: Option<String>,
}

impl Wire {
    /// Listens in a thread of its own until the other side ends.
    pub fn new(from: PipeReader, to: PipeWriter) -> std::io::Result<Wire> {
        // A side that does not read must not hold us up.
        fcntl_setfl(&to, OFlags::NONBLOCK)?;
        let out = Arc::new(Out { pipe: Mutex::new(Some(to)), turn: Slots::new(1) });
        let heard = Arc::<Heard>::default();
        let (theirs, ours) = (Arc::clone(&heard), Arc::clone(&out));
        let listen = move || {
            let why = listen(from, &theirs, &ours);
            theirs.lock().broken.get_or_insert(why);
            theirs.changed.notify_all();
        };
        std::thread::Builder::new().name("mcp".to_owned()).spawn(listen)?;
        Ok(Wire { out, heard, next: AtomicU64::new(1) })
    }

    /// Asks, and waits for the answer: the whole message, with `result` or
    /// `error`.
    pub fn ask(&self, method: &str, params: Value, patience: Patience<'_>) -> Answer {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.heard.lock().awaited.insert(id, None);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let answer = self.out.send(&message, patience).and_then(|()| self.wait(id, patience));
        self.heard.lock().awaited.remove(&id);
        if matches!(answer, Err(Trouble::Late | Trouble::CalledOff)) {
            self.tell("notifications/cancelled", json!({ "requestId": id }));
        }
        answer
    }

    /// Says something that has no answer; not for long, if nobody listens.
    pub fn tell(&self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let patience = Patience { until: Instant::now() + REFUSAL, cancel: &Cancel::default() };
        let _ = self.out.send(&message, patience);
    }

    /// Says that nothing more will be asked.
    pub fn close(&self) {
        lock(&self.out.pipe).take();
    }

    pub fn is_broken(&self) -> bool {
        self.heard.lock().broken.is_some()
    }

    /// What it wrote that is no message, for whoever wonders.
    pub fn noise(&self) -> Option<String> {
        self.heard.lock().noise.clone()
    }

    fn wait(&self, id: u64, patience: Patience<'_>) -> Answer {
        let mut state = self.heard.lock();
        loop {
            if let Some(answer) = state.awaited.get_mut(&id).and_then(Option::take) {
                return Ok(answer);
            }
            if let Some(why) = &state.broken {
                return Err(Trouble::Broken(why.clone()));
            }
            patience.check()?;
            let waited = self.heard.changed.wait_timeout(state, patience.left().min(LOOK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

pub type Answer = Result<Value, Trouble>;

impl Drop for Wire {
    fn drop(&mut self) {
        self.close();
    }
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Nothing that could panic happens under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Out {
    /// Sends all of a message. Of one that was sent in part the rest can never
    /// be said, so the pipe is closed then.
    fn send(&self, message: &Value, patience: Patience<'_>) -> Result<(), Trouble> {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        let turn = self.turn.take(patience.left(), patience.cancel);
        let _turn = turn.ok_or_else(|| patience.check().err().unwrap_or(Trouble::Late))?;
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            let mut pipe = lock(&self.pipe);
            let Some(open) = pipe.as_mut() else { return Err(Trouble::Broken(None)) };
            match open.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if let Err(trouble) = patience.check() {
                        if rest.len() < line.len() {
                            pipe.take();
                        }
                        return Err(trouble);
                    }
                    drop(pipe);
                    std::thread::sleep(NAP);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It ends: who listens knows more.
                Err(_) => {
                    pipe.take();
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Reads until nothing more comes; says why, if that is not its end.
fn listen(from: PipeReader, heard: &Heard, out: &Out) -> Option<String> {
    let mut from = BufReader::with_capacity(64 << 10, from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match from.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        if line.len() as u64 > LINE_BYTES_MAX {
            let most = fractal_model::format_bytes(LINE_BYTES_MAX);
            return Some(format!("it wrote a line of more than {most}"));
        }
        if let Err(why) = take(&line, heard, out) {
            return Some(why);
        }
    }
}

/// One line, whatever it is.
fn take(line: &[u8], heard: &Heard, out: &Out) -> Result<(), String> {
    let message = serde_json::from_slice::<Value>(line).ok().filter(Value::is_object);
    let Some(mut message) = message else { return heard.note_noise(line) };
    let (id, method) = (message.get("id").cloned(), message.get("method").and_then(Value::as_str));
    match (id, method) {
        (Some(id), Some(method)) => {
            heard.note_unasked(line.len())?;
            let reply = refusal(&id, method);
            let patience = Patience { until: Instant::now() + REFUSAL, cancel: &Cancel::default() };
            out.send(&reply, patience).map_err(|_| "it asks and does not listen".to_owned())
        }
        (Some(id), None) => {
            let mut state = heard.lock();
            let waits = id.as_u64().and_then(|id| state.awaited.get_mut(&id));
            match waits.filter(|answer| answer.is_none()) {
                Some(answer) => {
                    *answer = Some(message.take());
                    state.unasked_bytes = 0;
                    heard.changed.notify_all();
                    Ok(())
                }
                None => {
                    drop(state);
                    heard.note_unasked(line.len())
                }
            }
        }
        (None, _) => heard.note_unasked(line.len()),
    }
}

/// Nothing is offered to a server: no models, no files, no people to ask.
fn refusal(id: &Value, method: &str) -> Value {
    if method == "ping" {
        return json!({ "jsonrpc": "2.0", "id": id, "result": {} });
    }
    let error = json!({ "code": -32601, "message": "this client offers nothing to servers" });
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

impl Heard {
    fn note_unasked(&self, bytes: usize) -> Result<(), String> {
        let mut state = self.lock();
        state.unasked_bytes += bytes;
        match state.unasked_bytes > UNASKED_BYTES_MAX {
            true => Err("it does not stop to write what nobody asked for".to_owned()),
            false => Ok(()),
        }
    }

    fn note_noise(&self, line: &[u8]) -> Result<(), String> {
        let mut state = self.lock();
        state.noise_bytes += line.len();
        let begins = || String::from_utf8_lossy(&line[..line.len().min(80)]).trim().to_owned();
        if state.noise.is_none() && !line.trim_ascii().is_empty() {
            state.noise = Some(begins());
        }
        match state.noise_bytes > NOISE_BYTES_MAX {
            true => Err("what it writes are no messages".to_owned()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wire, and its other end: what to read from and to write to.
    fn pair() -> (Wire, BufReader<PipeReader>, PipeWriter) {
        let (from, theirs) = std::io::pipe().expect("a pipe");
        let (read, to) = std::io::pipe().expect("a pipe");
        (Wire::new(from, to).expect("a thread"), BufReader::new(read), theirs)
    }

    fn read(from: &mut BufReader<PipeReader>) -> Value {
        let mut line = String::new();
        from.read_line(&mut line).expect("it is open");
        serde_json::from_str(&line).expect("it is JSON")
    }

    fn soon(cancel: &Cancel) -> Patience<'_> {
        Patience { until: Instant::now() + Duration::from_secs(30), cancel }
    }

    #[test]
    fn answers_find_who_asked_whatever_comes_between() {
        let (wire, mut read_end, mut write_end) = pair();
        let never = Cancel::default();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| wire.ask("a", json!({}), soon(&never)));
            let one = read(&mut read_end);
            let second = scope.spawn(|| wire.ask("b", json!({}), soon(&never)));
            let two = read(&mut read_end);
            let lines = format!(
                "Welcome!\n{}\n{}\n{{\"jsonrpc\":\"2.0\",\"id\":999,\"result\":1}}\n{}\n{}\n{}\n",
                json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} }),
                json!({ "jsonrpc": "2.0", "id": "x", "method": "roots/list" }),
                json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" }),
                json!({ "jsonrpc": "2.0", "id": two["id"], "result": "two" }),
                json!({ "jsonrpc": "2.0", "id": one["id"], "result": "one" }),
            );
            write_end.write_all(lines.as_bytes()).expect("it is open");
            assert_eq!(first.join().expect("no panic").expect("it came")["result"], "one");
            assert_eq!(second.join().expect("no panic").expect("it came")["result"], "two");
        });
        let refused = read(&mut read_end);
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("x"), &json!(-32601)));
        assert_eq!(read(&mut read_end)["result"], json!({}));
        assert_eq!(wire.noise().as_deref(), Some("Welcome!"));
        drop(write_end);
        let gone = wire.ask("c", json!({}), soon(&never));
        assert!(matches!(gone, Err(Trouble::Broken(None))), "{gone:?}");
    }

    #[test]
    fn nobody_waits_longer_than_they_said() {
        let (wire, mut read_end, _write_end) = pair();
        let never = Cancel::default();
        let short =
            || Patience { until: Instant::now() + Duration::from_millis(50), cancel: &never };
        assert!(matches!(wire.ask("a", json!({}), short()), Err(Trouble::Late)));
        assert_eq!(read(&mut read_end)["method"], "a");
        assert_eq!(read(&mut read_end)["params"]["requestId"], 1);
        // More than fits into a pipe that nobody reads.
        let large = json!({ "text": "x".repeat(1 << 20) });
        assert!(matches!(wire.ask("b", large, short()), Err(Trouble::Late)));
        let after = wire.ask("c", json!({}), short());
        assert!(matches!(after, Err(Trouble::Broken(None))), "half a message was sent: {after:?}");
        let cancel = Cancel::default();
        cancel.cancel();
        let (wire, _read_end, _write_end) = pair();
        assert!(matches!(wire.ask("a", json!({}), soon(&cancel)), Err(Trouble::CalledOff)));
    }

    #[test]
    fn floods_and_noise_end_it() {
        let check = |line: &str, words: &str| {
            let (wire, _read_end, mut write_end) = pair();
            let flood = std::thread::spawn({
                let line = line.to_owned();
                move || while write_end.write_all(line.as_bytes()).is_ok() {}
            });
            let never = Cancel::default();
            let Err(Trouble::Broken(Some(why))) = wire.ask("a", json!({}), soon(&never)) else {
                panic!("{words}: it went on")
            };
            assert!(why.contains(words), "{why}");
            flood.join().expect("it ends with its reader");
        };
        check("no message\n", "no messages");
        check(&"x".repeat(1 << 16), "a line of more than");
        let told = json!({ "method": "notifications/message", "params": "x".repeat(1 << 16) });
        check(&format!("{told}\n"), "nobody asked for");
    }
}
