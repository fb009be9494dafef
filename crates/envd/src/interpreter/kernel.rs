//! The process behind a context, and one piece of code on its way through it.

use crate::Shared;
use crate::connect::Failure;
use crate::process::surround;
use axum::body::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, mpsc};

/// What runs in it.
const KERNEL: &str = include_str!("kernel.py");
/// Longer lines are no results.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// How long interrupted code may take to end before its process does.
const GRACE: Duration = Duration::from_secs(5);

/// A Python process.
pub struct Kernel {
    child: Child,
    requests: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Kernel {
    fn start(state: &Shared, cwd: &str) -> Result<Kernel, Failure> {
        let user = state.users.find(None)?;
        let mut command = Command::new("python3");
        command.args(["-u", "-c", KERNEL]).current_dir(cwd).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if state.users.can_switch() {
            command.uid(user.uid).gid(user.gid);
        }
        surround(&mut command, state, &user, []);
        // The path that this program was given, which leads to the Python of
        // whoever started the server, with its packages.
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        let failed = |error: io::Error| Failure::of(&error, "cannot start python3");
        let mut child = command.spawn().map_err(failed)?;
        let lost = || failed(io::Error::other("it has no pipes"));
        let requests = child.stdin.take().ok_or_else(lost)?;
        let lines = BufReader::new(child.stdout.take().ok_or_else(lost)?);
        Ok(Kernel { child, requests, lines })
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // Gone is what it was to become.
            let _ = kill_process_group(pid, signal);
        }
    }

    /// The next line; `None` when the process has ended or talks nonsense.
    async fn line(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.lines).take(LINE_BYTES_MAX);
        bounded.read_until(b'\n', &mut line).await.ok()?;
        (line.last() == Some(&b'\n')).then_some(line)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Runs a piece of code and tells what happens, line by line.
pub async fn carry_out(
    state: &Shared,
    cwd: &str,
    place: &mut Option<Kernel>,
    request: &Value,
    out: &mpsc::Sender<Bytes>,
) {
    if place.is_none() {
        match Kernel::start(state, cwd) {
            Ok(kernel) => *place = Some(kernel),
            Err(failure) => return tell_death(out, &failure.message).await,
        }
    }
    let Some(kernel) = place else { return };
    let text = format!("{request}\n");
    if kernel.requests.write_all(text.as_bytes()).await.is_err() {
        *place = None;
        return tell_death(out, "its process had ended").await;
    }
    loop {
        let line = tokio::select! {
            line = kernel.line() => line,
            () = out.closed() => {
                if !interrupt(kernel).await {
                    *place = None;
                }
                return;
            }
        };
        match line {
            Some(line) if is_end(&line) => return,
            Some(line) => drop(out.send(line.into()).await),
            None => {
                *place = None;
                return tell_death(out, "its process ended while the code ran").await;
            }
        }
    }
}

fn is_end(line: &[u8]) -> bool {
    line == b"{\"type\": \"end\"}\n"
}

/// Stops the code that nobody waits for. False if it does not let itself be.
async fn interrupt(kernel: &mut Kernel) -> bool {
    kernel.signal(Signal::INT);
    let ending = async {
        while let Some(line) = kernel.line().await {
            if is_end(&line) {
                return true;
            }
        }
        false
    };
    tokio::time::timeout(GRACE, ending).await.unwrap_or(false)
}

async fn tell_death(out: &mpsc::Sender<Bytes>, why: &str) {
    let value = format!("the context lost its names: {why}");
    let told = json!({ "type": "error", "name": "ContextLost", "value": value, "traceback": "" });
    let _ = out.send(format!("{told}\n").into()).await;
}

/// Ends the process of a context, also while code runs in it.
pub async fn end(kernel: &Arc<Mutex<Option<Kernel>>>) {
    // Whoever runs code there holds it until it ends, or is interrupted.
    if let Ok(mut kernel) = tokio::time::timeout(GRACE, kernel.lock()).await {
        *kernel = None;
    }
}
