//! What the server does, told to a collector by OpenTelemetry's protocol
//! (OTLP over HTTP, in JSON).
//!
//! Nobody waits for it. Spans that are over go into a bounded queue, one
//! worker sends them in batches and tries again for a while, and what is lost
//! on the way is counted. It is written here on what the server has anyway,
//! because the usual crates bring a second HTTP stack and a code generator:
//! docs/adr/0027-telemetry-without-a-stack.md.

mod collector;
mod context;
mod numbers;
mod span;
mod tally;

pub use collector::Collector;
pub use context::{Context, TRACEPARENT};
pub use span::{Attribute, Open, Spans};
pub use tally::Tally;

use crate::state::Shared;
use collector::Answer;
use numbers::Times;
use serde_json::{Value, json};
use span::Span;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

/// Spans that may wait to be sent.
const QUEUE: usize = 2048;
/// Spans in one request.
const BATCH: usize = 512;
/// How long the first of a batch waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// How often a batch is tried, and how long it waits before the second time;
/// twice as long before each that follows.
const TRIES: u32 = 5;
const WAIT: Duration = Duration::from_millis(500);
/// The longest that a collector may ask us to wait.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How often numbers are sent.
const NUMBERS: Duration = Duration::from_secs(30);
/// How long the last of it may take when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// What sends, before it has begun to.
pub struct Exporter {
    sender: Sender,
    queue: mpsc::Receiver<Span>,
}

/// A queue for spans and what empties it.
pub fn prepare(collector: Collector) -> (Spans, Exporter) {
    let (queue, taken) = mpsc::channel(QUEUE);
    let tally = Arc::<Tally>::default();
    let sender = Sender::new(Arc::new(collector), tally.clone());
    (Spans::new(queue, tally), Exporter { sender, queue: taken })
}

impl Exporter {
    /// Begins; numbers are those of this server.
    pub fn start(self, state: Shared) -> Exporting {
        let (stop, stopped) = watch::channel(false);
        let Exporter { sender, queue } = self;
        let tally = sender.tally.clone();
        let spans = tokio::spawn(sender.clone().send_spans(queue, stopped.clone()));
        let numbers = tokio::spawn(sender.send_numbers(state, stopped));
        Exporting { stop, spans, numbers, tally }
    }
}

/// What sends.
pub struct Exporting {
    stop: watch::Sender<bool>,
    spans: JoinHandle<()>,
    numbers: JoinHandle<()>,
    tally: Arc<Tally>,
}

impl Exporting {
    /// Sends what is there, for a moment; what is not is told of.
    pub async fn finish(self) {
        let _ = self.stop.send(true);
        let until = Instant::now() + FAREWELL;
        let abort = (self.spans.abort_handle(), self.numbers.abort_handle());
        let _ = timeout_at(until, self.spans).await;
        let _ = timeout_at(until, self.numbers).await;
        abort.0.abort();
        abort.1.abort();
        let left = self.tally.on_the_way();
        let gone: u64 = self.tally.numbers().iter().skip(1).map(|(_, count)| count).sum();
        if left + gone > 0 {
            tracing::warn!("{} spans did not reach the collector", left + gone);
        }
    }
}

#[derive(Clone)]
struct Sender {
    collector: Arc<Collector>,
    tally: Arc<Tally>,
    resource: Value,
    scope: Value,
    started_ns: u64,
}

/// How a request to the collector went.
enum Sent {
    /// It has it, but for so many.
    Taken { refused: u64 },
    /// It does not want it, and will not the next time.
    Refused(String),
    /// It may want it later.
    Later { why: String, come_again: Option<Duration> },
}

impl Sender {
    fn new(collector: Arc<Collector>, tally: Arc<Tally>) -> Sender {
        let version = env!("CARGO_PKG_VERSION");
        let about = [
            ("service.name", collector.service.clone().into()),
            ("service.version", version.into()),
        ];
        let attributes: Vec<Value> = about.iter().map(span::attribute).collect();
        Sender {
            resource: json!({ "attributes": attributes }),
            scope: json!({ "name": "fractal-server", "version": version }),
            started_ns: now_ns(),
            collector,
            tally,
        }
    }

    /// Empties the queue until there will be no more.
    async fn send_spans(self, mut queue: mpsc::Receiver<Span>, mut stopped: watch::Receiver<bool>) {
        let mut is_away = false;
        while let Some(batch) = gather(&mut queue, &mut stopped).await {
            let body = span::document(&self.resource, &self.scope, &batch).to_string();
            let count = batch.len() as u64;
            let sent = self.deliver(body.into_bytes(), &mut stopped).await;
            match &sent {
                Sent::Taken { refused } => self.tally.sent(count, *refused),
                Sent::Refused(_) => self.tally.refused(count),
                Sent::Later { .. } => self.tally.lost(count),
            }
            tell(&sent, &mut is_away);
        }
    }

    /// Tries until the collector has said yes or no, or was away too long.
    async fn deliver(&self, body: Vec<u8>, stopped: &mut watch::Receiver<bool>) -> Sent {
        let mut wait = WAIT;
        for attempt in 1.. {
            let sent = read(self.collector.post("/v1/traces", body.clone()).await);
            let Sent::Later { come_again, .. } = &sent else { return sent };
            if attempt >= TRIES || *stopped.borrow() {
                return sent;
            }
            let pause = come_again.unwrap_or(wait).min(WAIT_MAX);
            tokio::select! {
                () = sleep(pause) => {}
                _ = stopped.changed() => {}
            }
            wait *= 2;
        }
        unreachable!("the loop has no end of its own")
    }

    /// Numbers are totals, so that one request that fails is made up for by
    /// the next.
    async fn send_numbers(self, state: Shared, mut stopped: watch::Receiver<bool>) {
        let mut is_away = false;
        loop {
            tokio::select! {
                () = sleep(NUMBERS) => {}
                _ = stopped.changed() => {}
            }
            let is_last = *stopped.borrow();
            let shared = state.clone();
            let counted = tokio::task::spawn_blocking(move || shared.numbers()).await;
            if let Ok(Ok(families)) = counted {
                let times = Times { started_ns: self.started_ns, now_ns: now_ns() };
                let body = numbers::document(&self.resource, &self.scope, &families, times);
                let body = body.to_string().into_bytes();
                let sent = read(self.collector.post("/v1/metrics", body).await);
                tell(&sent, &mut is_away);
            }
            if is_last {
                return;
            }
        }
    }
}

/// The next batch; `None` when the last one is gone.
async fn gather(
    queue: &mut mpsc::Receiver<Span>,
    stopped: &mut watch::Receiver<bool>,
) -> Option<Vec<Span>> {
    if *stopped.borrow() {
        queue.close();
    }
    let first = tokio::select! {
        first = queue.recv() => first?,
        _ = stopped.changed() => {
            queue.close();
            queue.recv().await?
        }
    };
    let mut batch = vec![first];
    let until = Instant::now() + LINGER;
    while batch.len() < BATCH {
        let room = BATCH - batch.len();
        tokio::select! {
            count = queue.recv_many(&mut batch, room) => if count == 0 { break },
            () = tokio::time::sleep_until(until) => break,
            _ = stopped.changed() => queue.close(),
        }
    }
    Some(batch)
}

/// What an answer means, by the protocol.
fn read(asked: Result<Answer, String>) -> Sent {
    let answer = match asked {
        Ok(answer) => answer,
        Err(why) => return Sent::Later { why, come_again: None },
    };
    match answer.status.as_u16() {
        200..300 => Sent::Taken { refused: refused(&answer.body) },
        status @ (429 | 502..=504) => {
            Sent::Later { why: format!("it answered {status}"), come_again: answer.come_again }
        }
        status => Sent::Refused(format!("it answered {status}")),
    }
}

/// How many of them the collector did not take, although it took the others.
fn refused(body: &[u8]) -> u64 {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let count = &body["partialSuccess"]["rejectedSpans"];
    count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0)
}

/// Says when a collector goes and when it is back, not each time.
fn tell(sent: &Sent, is_away: &mut bool) {
    match sent {
        Sent::Taken { refused: 0 } if *is_away => tracing::info!("the collector takes it again"),
        Sent::Taken { refused: 0 } => {}
        Sent::Taken { refused } => tracing::warn!("the collector refused {refused} spans"),
        Sent::Refused(why) | Sent::Later { why, .. } if !*is_away => {
            tracing::warn!("the collector does not take what is sent to it: {why}");
        }
        _ => {}
    }
    *is_away = !matches!(sent, Sent::Taken { .. });
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    #[test]
    fn an_answer_means_yes_no_or_later() {
        let check = |status: u16, body: &str, expect: &str| {
            let status = StatusCode::from_u16(status).expect("a status");
            let sent = read(Ok(Answer { status, come_again: None, body: body.into() }));
            let word = match sent {
                Sent::Taken { refused } => format!("taken but {refused}"),
                Sent::Refused(_) => "refused".to_owned(),
                Sent::Later { .. } => "later".to_owned(),
            };
            assert_eq!(word, expect, "{status} {body}");
        };
        check(200, "{}", "taken but 0");
        check(200, "", "taken but 0");
        check(200, r#"{"partialSuccess":{"rejectedSpans":"3"}}"#, "taken but 3");
        check(200, r#"{"partialSuccess":{"rejectedSpans":3}}"#, "taken but 3");
        check(400, "", "refused");
        check(401, "", "refused");
        check(404, "", "refused");
        check(500, "", "refused");
        for status in [429, 502, 503, 504] {
            check(status, "", "later");
        }
    }
}
