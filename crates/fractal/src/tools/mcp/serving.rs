//! One server at work in a sandbox: a run whose input and output are a wire.

use super::wire::{Patience, Trouble, Wire};
use crate::config::Server;
use crate::tools::function::caught;
use crate::tools::program::tail;
use crate::{Caller, Engine, RunIo};
use fractal_model::{Code, Error, Outcome, Result, Run, RunReply};
use serde_json::{Value, json};
use std::io::{PipeReader, PipeWriter};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The newest revision of the protocol that begins with a greeting, and the
/// one that does without.
const REVISION: &str = "2025-11-25";
const REVISION_WITHOUT_GREETING: &str = "2026-07-28";

/// How long a server may take to end when its input has ended.
const GRACE: Duration = Duration::from_secs(1);

/// How long its run may take to be written down after that.
const SETTLE: Duration = Duration::from_secs(60);

/// How long to wait for the reason when one has just ended.
const REASON: Duration = Duration::from_secs(10);

/// Pages of a list.
const PAGES_MAX: usize = 64;

/// Tools of a list, so that nobody can send them without end.
pub const TOOLS_MAX: usize = 256;

/// Why a server did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// It was not started, or ended: our own words.
    Refused(Error),
    /// It says that it cannot.
    Said { code: i64, message: String },
    /// It does not answer; and what it wrote that is no message.
    Trouble(Trouble, Option<String>),
}

/// A run that is to begin, for a thread that has an engine.
pub struct Start {
    caller: Caller,
    run: Run,
    stdin: PipeReader,
    stdout: PipeWriter,
    connection: UnixStream,
    over: Arc<Over>,
}

impl Start {
    /// Carries the run out, until it ends.
    pub fn go(self, engine: &Engine) {
        let Start { caller, run, stdin, stdout, connection, over } = self;
        let io = RunIo::conversing(stdin.into(), stdout.into(), connection.into());
        let reply = caught("a server", || engine.run(&caller, run, io));
        *over.reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
        over.told.notify_all();
    }
}

/// How the run ended, once it has.
#[derive(Debug, Default)]
struct Over {
    reply: Mutex<Option<Result<RunReply>>>,
    told: Condvar,
}

impl Over {
    fn wait(&self, time: Duration) -> Option<Result<RunReply>> {
        let reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(reply, time, |reply| reply.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

/// A server that has been greeted. Dropping it ends it.
#[derive(Debug)]
pub struct Serving {
    name: String,
    wire: Wire,
    /// The run ends with it.
    connection: Mutex<Option<UnixStream>>,
    over: Arc<Over>,
    /// Whether every request says who asks, instead of a greeting before.
    introduces: bool,
    used: Mutex<Instant>,
}

impl Serving {
    pub fn start(
        server: &Server,
        caller: &Caller,
        run: Run,
        starts: &Sender<Start>,
        patience: Patience<'_>,
    ) -> std::result::Result<Serving, Failure> {
        let lost = |error: std::io::Error| {
            let why = format!("the server `{}` cannot be connected: {error}", server.name);
            Failure::Refused(Error::new(Code::Busy, why))
        };
        let (stdin, to) = std::io::pipe().map_err(lost)?;
        let (from, stdout) = std::io::pipe().map_err(lost)?;
        let (ours, connection) = UnixStream::pair().map_err(lost)?;
        let over = Arc::<Over>::default();
        let mut serving = Serving {
            name: server.name.clone(),
            wire: Wire::new(from, to).map_err(lost)?,
            connection: Mutex::new(Some(ours)),
            over: Arc::clone(&over),
            introduces: false,
            used: Mutex::new(Instant::now()),
        };
        let start = Start { caller: caller.clone(), run, stdin, stdout, connection, over };
        if starts.send(start).is_err() {
            return Err(Failure::Refused(Error::internal("nobody starts servers any more")));
        }
        serving.greet(patience)?;
        Ok(serving)
    }

    /// Most servers are greeted; those that know only of the time after that
    /// refuse it, and are told with each request who asks.
    fn greet(&mut self, patience: Patience<'_>) -> std::result::Result<(), Failure> {
        let client = json!({ "name": "fractal", "version": env!("CARGO_PKG_VERSION") });
        let params =
            json!({ "protocolVersion": REVISION, "capabilities": {}, "clientInfo": client });
        match self.ask("initialize", params, patience) {
            Ok(_) => {
                self.wire.tell("notifications/initialized", json!({}));
                Ok(())
            }
            Err(Failure::Said { .. }) => {
                self.introduces = true;
                self.ask("server/discover", json!({}), patience).map(|_| ())
            }
            Err(failure) => Err(failure),
        }
    }

    /// What it offers, as it says it; one more than are looked at at most.
    pub fn list(&self, patience: Patience<'_>) -> std::result::Result<Vec<Value>, Failure> {
        let mut tools = Vec::new();
        let mut cursor: Option<Value> = None;
        for _ in 0..PAGES_MAX {
            let params = cursor.map_or(json!({}), |cursor| json!({ "cursor": cursor }));
            let mut page = self.ask("tools/list", params, patience)?;
            if let Some(Value::Array(list)) = page.get_mut("tools").map(Value::take) {
                tools.extend(list.into_iter().take(TOOLS_MAX + 1 - tools.len()));
            }
            cursor = page.get("nextCursor").filter(|cursor| cursor.is_string()).cloned();
            if cursor.is_none() || tools.len() > TOOLS_MAX {
                break;
            }
        }
        Ok(tools)
    }

    /// Calls one of its tools.
    pub fn call(
        &self,
        tool: &str,
        input: &Value,
        patience: Patience<'_>,
    ) -> std::result::Result<Value, Failure> {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": input }), patience);
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        answer
    }

    /// When it was last asked, or answered.
    pub fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_broken(&self) -> bool {
        self.wire.is_broken()
    }

    fn ask(
        &self,
        method: &str,
        mut params: Value,
        patience: Patience<'_>,
    ) -> std::result::Result<Value, Failure> {
        if self.introduces {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": REVISION_WITHOUT_GREETING,
                "io.modelcontextprotocol/clientInfo":
                    { "name": "fractal", "version": env!("CARGO_PKG_VERSION") },
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let mut answer =
            self.wire.ask(method, params, patience).map_err(|trouble| self.explain(trouble))?;
        if let Some(error) = answer.get("error") {
            let message = error.get("message").and_then(Value::as_str).unwrap_or("no reason");
            let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
            return Err(Failure::Said { code, message: message.to_owned() });
        }
        match answer.get_mut("result").map(Value::take) {
            Some(result @ Value::Object(_)) => Ok(result),
            _ => {
                let why = "it answered neither with a result nor with an error".to_owned();
                Err(Failure::Trouble(Trouble::Broken(Some(why)), None))
            }
        }
    }

    /// Where the server has ended its run knows why.
    fn explain(&self, trouble: Trouble) -> Failure {
        if !matches!(trouble, Trouble::Broken(None)) {
            return Failure::Trouble(trouble, self.wire.noise());
        }
        match self.over.wait(REASON) {
            Some(Err(error)) => Failure::Refused(error),
            Some(Ok(reply)) => Failure::Refused(ended(&reply, &self.name)),
            None => Failure::Trouble(trouble, self.wire.noise()),
        }
    }

    /// Ends it: politely first. Says how the run ended.
    pub fn end(&self) -> Option<RunReply> {
        self.wire.close();
        let over = self.over.wait(GRACE);
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        over.or_else(|| self.over.wait(SETTLE))?.ok()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

/// Why a server that ended did, in words.
fn ended(reply: &RunReply, name: &str) -> Error {
    let (code, how) = match reply.outcome {
        Outcome::Timeout => (Code::Timeout, "took longer than it may".to_owned()),
        Outcome::Output => (Code::Limit, "wrote more than it may".to_owned()),
        Outcome::Memory => (Code::Limit, "needed more memory than it has".to_owned()),
        Outcome::Disk => (Code::Limit, "wrote more to the disk than it may".to_owned()),
        Outcome::Signalled => (Code::Failed, "was ended by a signal".to_owned()),
        Outcome::Exited => (Code::Failed, format!("ended with exit status {}", reply.exit)),
    };
    let words = tail(reply.stderr.trim_end());
    let said = if words.is_empty() { String::new() } else { format!(": {words}") };
    Error::new(code, format!("the server `{name}` {how}{said}"))
        .hint("`fractal run` with the command of its settings shows what is the matter")
}
