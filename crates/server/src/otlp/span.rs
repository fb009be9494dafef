//! Spans: something that took its time, as part of a trace.
//!
//! What stands in one comes from closed lists, from numbers and from names of
//! sandboxes. Commands, variables, paths, contents, messages of errors and
//! whatever else a request carried stay out of it: a collector belongs to
//! somebody else.

use super::context::{Context, Hex, Parent};
use super::tally::Tally;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// Names and values are cut here; ours are shorter.
const CHARS_MAX: usize = 200;

/// What is told of a span besides its name and time.
pub type Attribute = (&'static str, Value);

/// Whether something was asked from outside or done on the way.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Server,
    Internal,
}

/// One that is over.
#[derive(Debug)]
pub struct Span {
    context: Context,
    parent: Option<Hex<8>>,
    kind: Kind,
    name: String,
    started_ns: u64,
    ended_ns: u64,
    attributes: Vec<Attribute>,
    error: Option<String>,
}

/// Where spans go when they are over. Cheap to clone.
#[derive(Clone)]
pub struct Spans {
    queue: mpsc::Sender<Span>,
    tally: Arc<Tally>,
}

impl Spans {
    pub fn new(queue: mpsc::Sender<Span>, tally: Arc<Tally>) -> Spans {
        Spans { queue, tally }
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Begins a span for a request, in its client's trace or one of its own.
    pub fn request(
        &self,
        traceparent: Option<&str>,
        name: String,
        attributes: Vec<Attribute>,
    ) -> Option<Open> {
        match Parent::read(traceparent) {
            Parent::Unwanted => None,
            Parent::Traced(above) => self.open(Some(above), Kind::Server, name, attributes),
            Parent::None => self.open(None, Kind::Server, name, attributes),
        }
    }

    /// Begins a span for something that a request needs.
    pub fn within(&self, above: Context, name: String, attributes: Vec<Attribute>) -> Option<Open> {
        self.open(Some(above), Kind::Internal, name, attributes)
    }

    fn open(
        &self,
        above: Option<Context>,
        kind: Kind,
        name: String,
        attributes: Vec<Attribute>,
    ) -> Option<Open> {
        let trace = above.map(|above| above.trace).or_else(Hex::random)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let span = Span {
            context: Context { trace, span: Hex::random()? },
            parent: above.map(|above| above.span),
            kind,
            name: cut(name),
            started_ns,
            ended_ns: started_ns,
            attributes,
            error: None,
        };
        Some(Open { span: Some(span), clock: Instant::now(), spans: self.clone() })
    }

    /// Never waits: what finds no room is counted and gone.
    fn send(&self, span: Span) {
        match self.queue.try_send(span) {
            Ok(()) => self.tally.taken(),
            Err(_) => self.tally.crowded_out(),
        }
    }
}

/// One that has begun. Whoever lets go of it without an end was called off,
/// and the span says so.
pub struct Open {
    span: Option<Span>,
    clock: Instant,
    spans: Spans,
}

impl Open {
    pub fn context(&self) -> Option<Context> {
        self.span.as_ref().map(|span| span.context)
    }

    /// Ends it; `error` is a word from a closed list.
    pub fn end(mut self, attributes: Vec<Attribute>, error: Option<&str>) {
        self.close(attributes, error);
    }

    fn close(&mut self, attributes: Vec<Attribute>, error: Option<&str>) {
        let Some(mut span) = self.span.take() else { return };
        let took_ns = u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
        span.ended_ns = span.started_ns.saturating_add(took_ns);
        span.attributes.extend(attributes);
        span.error = error.map(str::to_owned);
        self.spans.send(span);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.close(Vec::new(), Some("cancelled"));
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        None => text,
        Some((at, _)) => text[..at].to_owned(),
    }
}

impl Span {
    /// As OTLP has it in JSON: ids in hexadecimal, long numbers as text.
    fn json(&self) -> Value {
        let kind = match self.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
        };
        let mut attributes: Vec<Value> = self.attributes.iter().map(attribute).collect();
        let mut span = json!({
            "traceId": self.context.trace.to_string(),
            "spanId": self.context.span.to_string(),
            "name": self.name,
            "kind": kind,
            "startTimeUnixNano": self.started_ns.to_string(),
            "endTimeUnixNano": self.ended_ns.to_string(),
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = parent.to_string().into();
        }
        if let Some(error) = &self.error {
            attributes.push(attribute(&("error.type", error.as_str().into())));
            span["status"] = json!({ "code": 2 });
        }
        span["attributes"] = attributes.into();
        span
    }
}

/// One attribute as OTLP has it.
pub fn attribute((key, value): &Attribute) -> Value {
    let value = match value {
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::String(text) => json!({ "stringValue": cut(text.clone()) }),
        other => json!({ "stringValue": cut(other.to_string()) }),
    };
    json!({ "key": key, "value": value })
}

/// Spans as the body of a request to `/v1/traces`.
pub fn document(resource: &Value, scope: &Value, spans: &[Span]) -> Value {
    let spans: Vec<Value> = spans.iter().map(Span::json).collect();
    json!({ "resourceSpans": [{
        "resource": resource,
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(room: usize) -> (Spans, mpsc::Receiver<Span>) {
        let (queue, taken) = mpsc::channel(room);
        (Spans::new(queue, Arc::default()), taken)
    }

    #[test]
    fn a_child_knows_its_parent_and_tells_how_it_ended() {
        let (spans, mut taken) = spans(8);
        let request = spans.request(None, "POST /v1/run".into(), vec![]).expect("dice");
        let above = request.context().expect("it is open");
        let child = spans.within(above, "run".into(), vec![]).expect("dice");
        child.end(vec![("fractal.exit", 3.into())], Some("timeout"));
        drop(request);
        let child = taken.try_recv().expect("it is over").json();
        let request = taken.try_recv().expect("it was let go").json();
        assert_eq!(child["traceId"], request["traceId"]);
        assert_eq!(child["parentSpanId"], request["spanId"]);
        assert_eq!(child["status"]["code"], 2);
        let told = json!({ "key": "fractal.exit", "value": { "intValue": "3" } });
        assert_eq!(child["attributes"][0], told);
        let word = json!({ "key": "error.type", "value": { "stringValue": "cancelled" } });
        assert_eq!(request["attributes"][0], word);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let (spans, _taken) = spans(1);
        for _ in 0..3 {
            drop(spans.request(None, "x".into(), vec![]));
        }
        assert_eq!(
            spans.tally().numbers(),
            [("sent", 0), ("crowded_out", 2), ("lost", 0), ("refused", 0)]
        );
    }
}
