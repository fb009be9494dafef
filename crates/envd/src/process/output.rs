//! What a process writes, on its way to those who listen.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

/// Chunks that a listener may be behind before the process is slowed.
const BEHIND_MAX: usize = 16;
const CHUNK_BYTES: usize = 32 * 1024;
/// Listeners of one process.
const LISTENERS_MAX: usize = 64;

/// Which way it came.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Stdout,
    Stderr,
    Terminal,
}

/// Something that a process did.
#[derive(Clone, Debug)]
pub enum Event {
    Wrote(Way, Arc<[u8]>),
    Ended(ExitStatus),
}

impl Event {
    pub fn json(&self) -> Value {
        match self {
            Event::Wrote(way, bytes) => {
                let name = match way {
                    Way::Stdout => "stdout",
                    Way::Stderr => "stderr",
                    Way::Terminal => "pty",
                };
                json!({ "data": { name: STANDARD.encode(bytes) } })
            }
            Event::Ended(status) => json!({ "end": ended(*status) }),
        }
    }
}

/// In the words that clients know.
fn ended(status: ExitStatus) -> Value {
    match (status.code(), status.signal()) {
        (Some(0), _) => json!({ "exitCode": 0, "exited": true, "status": "exit status 0" }),
        (Some(code), _) => {
            let words = format!("exit status {code}");
            json!({ "exitCode": code, "exited": true, "status": words, "error": words })
        }
        (None, signal) => {
            let words = format!("signal: {}", signal_name(signal.unwrap_or_default()));
            json!({ "exitCode": -1, "exited": false, "status": words, "error": words })
        }
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        6 => "aborted",
        9 => "killed",
        11 => "segmentation fault",
        13 => "broken pipe",
        15 => "terminated",
        _ => return signal.to_string(),
    };
    name.to_owned()
}

/// Those who listen.
#[derive(Default)]
pub struct Listeners {
    all: Mutex<Vec<mpsc::Sender<Event>>>,
    told: AtomicU64,
    telling: AtomicUsize,
}

impl Listeners {
    /// One more, who hears what comes from now on; `None` when there are too
    /// many.
    pub fn join(&self) -> Option<mpsc::Receiver<Event>> {
        let (send, events) = mpsc::channel(BEHIND_MAX);
        let mut listeners = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| !listener.is_closed());
        if listeners.len() >= LISTENERS_MAX {
            return None;
        }
        listeners.push(send);
        Some(events)
    }

    /// Tells all of them, at the pace of the slowest.
    pub async fn tell(&self, event: &Event) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.telling.fetch_add(1, Ordering::Relaxed);
        for listener in all {
            // Whoever went away is not waited for.
            let _ = listener.send(event.clone()).await;
        }
        self.telling.fetch_sub(1, Ordering::Relaxed);
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    /// How much was told so far; `None` while somebody is being told.
    pub fn progress(&self) -> Option<u64> {
        let is_still = self.telling.load(Ordering::Relaxed) == 0;
        is_still.then(|| self.told.load(Ordering::Relaxed))
    }

    /// Nobody hears any more: their streams end.
    pub fn close(&self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Tells what comes out of a pipe until it is closed.
pub async fn follow(mut pipe: impl AsyncRead + Unpin, way: Way, listeners: &Listeners) {
    let mut chunk = vec![0; CHUNK_BYTES];
    // A terminal whose last process is gone fails instead of ending.
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        listeners.tell(&Event::Wrote(way, chunk[..read].into())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_as_clients_know_it() {
        let told = |raw: i32| ended(ExitStatus::from_raw(raw));
        assert_eq!(told(0)["exitCode"], 0);
        assert!(told(0).get("error").is_none());
        assert_eq!(told(3 << 8)["error"], "exit status 3");
        assert_eq!(told(9)["exitCode"], -1);
        assert_eq!(told(9)["status"], "signal: killed");
    }
}
