//! Numbers for Prometheus. Labels come from closed lists, so that nobody who
//! asks can make the page longer.

use fractal::model::{Outcome, Verdict};
use fractal::{Reply, Starts};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper edges of the histograms, in seconds.
const EDGES: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];

/// A family of counters by label.
type Counts<K> = Mutex<BTreeMap<K, u64>>;

/// How often things took how long.
#[derive(Default)]
struct Histogram {
    /// One more than edges, for what is beyond the last.
    counts: [AtomicU64; EDGES.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    fn note(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let slot = EDGES.iter().position(|edge| seconds <= *edge).unwrap_or(EDGES.len());
        self.counts[slot].fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, about: &str) {
        head(out, name, about, "histogram");
        let mut sum = 0;
        for (edge, count) in EDGES.iter().zip(&self.counts) {
            sum += count.load(Ordering::Relaxed);
            line(out, &format!("{name}_bucket{{le=\"{edge}\"}}"), sum);
        }
        sum += self.counts[EDGES.len()].load(Ordering::Relaxed);
        line(out, &format!("{name}_bucket{{le=\"+Inf\"}}"), sum);
        let seconds = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum {seconds}");
        line(out, &format!("{name}_count"), sum);
    }
}

/// Everything that is counted while the server lives.
#[derive(Default)]
pub struct Metrics {
    requests: Counts<(&'static str, String, u16)>,
    request_time: Histogram,
    start_time: Histogram,
    runs: Counts<&'static str>,
    limits: Counts<&'static str>,
    promotions: Counts<&'static str>,
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

fn bump<K: Ord>(counts: &Counts<K>, key: K) {
    *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
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

    /// Counts what an answer tells; `took` is all of the engine's time.
    pub fn reply(&self, reply: &Reply, took: Duration) {
        match reply {
            Reply::Run(run) => {
                bump(&self.runs, word(run.outcome));
                run.limits_reached.iter().for_each(|limit| bump(&self.limits, word(*limit)));
                self.start_time.note(took.saturating_sub(Duration::from_millis(run.usage.wall_ms)));
            }
            Reply::Promote(promote) => bump(&self.promotions, verdict(promote.verdict)),
            _ => {}
        }
    }

    /// The page.
    pub fn page(&self, now: &Now) -> String {
        let mut out = String::new();
        head(&mut out, "fractal_sandboxes", "Sandboxes that exist, by state.", "gauge");
        line(&mut out, "fractal_sandboxes{state=\"idle\"}", now.idle);
        line(&mut out, "fractal_sandboxes{state=\"running\"}", now.running);
        let gauges = [
            ("fractal_volumes", "Volumes that exist.", now.volumes),
            ("fractal_store_bytes", "Bytes in layers, as last measured.", now.layer_bytes),
            ("fractal_requests_active", "Requests being carried out.", now.active),
            ("fractal_requests_waiting", "Requests waiting for a place.", now.waiting),
        ];
        for (name, about, value) in gauges {
            head(&mut out, name, about, "gauge");
            line(&mut out, name, value);
        }
        head(&mut out, "fractal_records_total", "Records in the journal.", "counter");
        line(&mut out, "fractal_records_total", now.records);
        let name = "fractal_pool_starts_total";
        head(&mut out, name, "Starts by whether the pool had namespaces for them.", "counter");
        line(&mut out, &format!("{name}{{namespaces=\"ready\"}}"), now.starts.ready);
        line(&mut out, &format!("{name}{{namespaces=\"fresh\"}}"), now.starts.fresh);
        self.write_counters(&mut out);
        self.request_time.write(&mut out, "fractal_request_seconds", "Time until an answer.");
        self.start_time.write(
            &mut out,
            "fractal_run_start_seconds",
            "What a run took beyond the time of its program.",
        );
        out
    }

    fn write_counters(&self, out: &mut String) {
        head(out, "fractal_requests_total", "Requests answered.", "counter");
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for ((method, route, status), count) in requests.iter() {
            let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
            line(out, &format!("fractal_requests_total{{{labels}}}"), *count);
        }
        let families = [
            ("fractal_runs_total", "Runs through this server.", "outcome", &self.runs),
            ("fractal_limits_total", "Limits that were felt inside.", "limit", &self.limits),
            ("fractal_promotions_total", "Promotions asked for.", "verdict", &self.promotions),
        ];
        for (name, about, label, counts) in families {
            head(out, name, about, "counter");
            let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            for (value, count) in counts.iter() {
                line(out, &format!("{name}{{{label}=\"{value}\"}}"), *count);
            }
        }
        head(out, "fractal_bad_keys_total", "Requests with a key that does not hold.", "counter");
        line(out, "fractal_bad_keys_total", self.bad_keys.load(Ordering::Relaxed));
    }
}

fn head(out: &mut String, name: &str, about: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {about}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, value: u64) {
    let _ = writeln!(out, "{name} {value}");
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Exited => "exited",
        Outcome::Signalled => "signalled",
        Outcome::Timeout => "timeout",
        Outcome::Memory => "memory",
        Outcome::Disk => "disk",
        Outcome::Output => "output",
    }
}

fn verdict(verdict: Verdict) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_upwards() {
        let histogram = Histogram::default();
        histogram.note(Duration::from_millis(3));
        histogram.note(Duration::from_secs(3600));
        let mut out = String::new();
        histogram.write(&mut out, "x", "about");
        assert!(out.contains("x_bucket{le=\"0.0025\"} 0\n"), "{out}");
        assert!(out.contains("x_bucket{le=\"0.005\"} 1\n"), "{out}");
        assert!(out.contains("x_bucket{le=\"+Inf\"} 2\n"), "{out}");
        assert!(out.contains("x_count 2\n"), "{out}");
    }
}
