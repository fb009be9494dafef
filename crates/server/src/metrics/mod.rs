//! What is counted. Labels come from closed lists, so that nobody who asks can
//! make the list of numbers longer.

mod family;
mod knowledge;

pub use family::{Buckets, EDGES, Family, Number, Numbers, page};

use family::Histogram;
use fractal::model::{Outcome, RunReply, ToolReply, Verb, Verdict};
use fractal::{Code, Reply, Starts};
pub use knowledge::Asked;
use knowledge::Knowledge;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A family of counters by label.
type Counts<K> = Mutex<BTreeMap<K, u64>>;

/// Everything that is counted while the server lives.
#[derive(Default)]
pub struct Metrics {
    requests: Counts<(&'static str, String, u16)>,
    request_time: Histogram,
    start_time: Histogram,
    runs: Counts<&'static str>,
    limits: Counts<&'static str>,
    promotions: Counts<&'static str>,
    tools: Counts<(&'static str, &'static str)>,
    knowledge: Knowledge,
    bad_keys: AtomicU64,
}

/// What is true at the moment of asking.
pub struct Now {
    pub idle: u64,
    pub running: u64,
    pub volumes: u64,
    pub layer_bytes: u64,
    pub records: u64,
    pub active: u64,
    pub waiting: u64,
    pub starts: Starts,
}

fn lock<K>(counts: &Counts<K>) -> MutexGuard<'_, BTreeMap<K, u64>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bump<K: Ord>(counts: &Counts<K>, key: K) {
    *lock(counts).entry(key).or_default() += 1;
}

impl Metrics {
    pub fn count_bad_key(&self) {
        self.bad_keys.fetch_add(1, Ordering::Relaxed);
    }

    /// A request was answered. `route` is the table's, never the client's.
    pub fn request(&self, method: &'static str, route: String, status: u16, took: Duration) {
        bump(&self.requests, (method, route, status));
        self.request_time.note(took);
    }

    /// Counts what the answer to a verb tells; `took` is all of the engine's
    /// time.
    pub fn reply(&self, verb: Verb, reply: &Reply, took: Duration) {
        match (verb, reply) {
            (_, Reply::Run(run)) => {
                self.run(run);
                self.start_time.note(took.saturating_sub(Duration::from_millis(run.usage.wall_ms)));
            }
            (_, Reply::Guard(guard)) => {
                self.run(&guard.run);
                guard.promotion.iter().for_each(|promotion| self.promotion(promotion.verdict));
            }
            // Comparing answers in the same form, with runs that were before.
            (Verb::Try, Reply::Try(tried)) => {
                for outcome in tried.attempts.iter().filter_map(|attempt| attempt.outcome) {
                    bump(&self.runs, word(outcome));
                    if !matches!(outcome, Outcome::Exited | Outcome::Signalled) {
                        bump(&self.limits, word(outcome));
                    }
                }
            }
            // Undo and update answer in the same form.
            (Verb::Promote, Reply::Promote(promote)) => self.promotion(promote.verdict),
            (Verb::Note, Reply::Note(_)) => self.knowledge.noted(None),
            (_, Reply::Find(found)) => self.knowledge.answered(found.hits.len(), took),
            (_, Reply::Tool(call)) => self.tool(call),
            (_, Reply::Calls { results }) => results.iter().for_each(|call| self.tool(call)),
            _ => {}
        }
    }

    fn run(&self, run: &RunReply) {
        bump(&self.runs, word(run.outcome));
        run.limits_reached.iter().for_each(|limit| bump(&self.limits, word(*limit)));
    }

    fn promotion(&self, of: Verdict) {
        bump(&self.promotions, verdict(of));
    }

    /// A note or a question came to nothing.
    pub fn refused(&self, asked: Asked, code: Code) {
        self.knowledge.refused(asked, code);
    }

    pub fn tool(&self, call: &ToolReply) {
        self.knowledge.tool(call);
        self.call(call.kind, call.error().map(|error| error.code));
    }

    /// Counts a call. A tool's name is its project's choice, so its kind
    /// stands for it.
    pub fn call(&self, kind: Option<&'static str>, error: Option<Code>) {
        bump(&self.tools, (kind.unwrap_or("unknown"), error.map_or("ok", Code::name)));
    }

    /// All of it, in the order of the page.
    pub fn families(&self, now: &Now) -> Vec<Family> {
        let mut families = moment(now);
        families.extend(self.counters());
        families.extend(self.knowledge.families());
        families.push(self.request_time.family("fractal_request_seconds", "Time until an answer."));
        families.push(self.start_time.family(
            "fractal_run_start_seconds",
            "What a run took beyond the time of its program.",
        ));
        families
    }

    fn counters(&self) -> Vec<Family> {
        let request = |((method, route, status), count): (&(&'static str, String, u16), &u64)| {
            let method = ("method", (*method).to_owned());
            let labels = vec![method, ("route", route.clone()), ("status", status.to_string())];
            Number { labels, value: *count }
        };
        let tool = |((kind, outcome), count): (&(&str, &str), &u64)| Number {
            labels: vec![("kind", (*kind).to_owned()), ("outcome", (*outcome).to_owned())],
            value: *count,
        };
        let requests = lock(&self.requests).iter().map(request).collect();
        let by = |name, about, label, counts: &Counts<&'static str>| {
            Family::counters(name, about, label, lock(counts).iter().map(|(of, n)| (*of, *n)))
        };
        vec![
            Family {
                name: "fractal_requests_total",
                about: "Requests answered.",
                numbers: Numbers::Counter(requests),
            },
            by("fractal_runs_total", "Runs through this server.", "outcome", &self.runs),
            by("fractal_limits_total", "Limits that were felt inside.", "limit", &self.limits),
            by("fractal_promotions_total", "Promotions asked for.", "verdict", &self.promotions),
            Family {
                name: "fractal_tool_calls_total",
                about: "Calls of tools, by kind of tool and how they ended.",
                numbers: Numbers::Counter(lock(&self.tools).iter().map(tool).collect()),
            },
            Family::counter(
                "fractal_bad_keys_total",
                "Requests with a key that does not hold.",
                self.bad_keys.load(Ordering::Relaxed),
            ),
        ]
    }
}

/// What is not counted here but looked at.
fn moment(now: &Now) -> Vec<Family> {
    let state = |name, value| Number::new(Some(("state", name)), value);
    let sandboxes = vec![state("idle", now.idle), state("running", now.running)];
    vec![
        Family {
            name: "fractal_sandboxes",
            about: "Sandboxes that exist, by state.",
            numbers: Numbers::Gauge(sandboxes),
        },
        Family::gauge("fractal_volumes", "Volumes that exist.", now.volumes),
        Family::gauge("fractal_store_bytes", "Bytes in layers, as last measured.", now.layer_bytes),
        Family::gauge("fractal_requests_active", "Requests being carried out.", now.active),
        Family::gauge("fractal_requests_waiting", "Requests waiting for a place.", now.waiting),
        Family::counter("fractal_records_total", "Records in the journal.", now.records),
        Family::counters(
            "fractal_pool_starts_total",
            "Starts by whether the pool had namespaces for them.",
            "namespaces",
            [("ready", now.starts.ready), ("fresh", now.starts.fresh)],
        ),
    ]
}

pub fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Exited => "exited",
        Outcome::Signalled => "signalled",
        Outcome::Timeout => "timeout",
        Outcome::Memory => "memory",
        Outcome::Disk => "disk",
        Outcome::Output => "output",
    }
}

pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Applied => "applied",
        Verdict::Made => "made",
        Verdict::Nothing => "nothing",
        Verdict::Planned => "planned",
        Verdict::Conflict => "conflict",
        Verdict::Gate => "gate",
        Verdict::Denied => "denied",
    }
}
