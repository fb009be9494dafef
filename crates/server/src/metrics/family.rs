//! Numbers as data, and the page that Prometheus reads. Who sends them
//! elsewhere starts from the same families, so that both tell the same.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper edges of the histograms, in seconds.
pub const EDGES: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];

/// Numbers that mean the same and differ by their labels.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    /// What they mean, in a sentence.
    pub about: &'static str,
    pub numbers: Numbers,
}

#[derive(Debug)]
pub enum Numbers {
    /// Only ever grow while the server lives.
    Counter(Vec<Number>),
    /// Are what they are at the moment.
    Gauge(Vec<Number>),
    /// How often something took how long.
    Histogram(Buckets),
}

/// One of a family.
#[derive(Debug)]
pub struct Number {
    pub labels: Vec<(&'static str, String)>,
    pub value: u64,
}

/// What a histogram held when it was looked at.
#[derive(Debug)]
pub struct Buckets {
    /// One more than edges, for what is beyond the last; each counts its own.
    pub counts: Vec<u64>,
    pub sum_seconds: f64,
}

impl Number {
    /// With at most one label.
    pub fn new(label: Option<(&'static str, &str)>, value: u64) -> Number {
        let labels = label.into_iter().map(|(name, of)| (name, of.to_owned())).collect();
        Number { labels, value }
    }
}

impl Family {
    pub fn gauge(name: &'static str, about: &'static str, value: u64) -> Family {
        Family { name, about, numbers: Numbers::Gauge(vec![Number::new(None, value)]) }
    }

    pub fn counter(name: &'static str, about: &'static str, value: u64) -> Family {
        Family { name, about, numbers: Numbers::Counter(vec![Number::new(None, value)]) }
    }

    /// Counters that one label tells apart.
    pub fn counters<'a>(
        name: &'static str,
        about: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> Family {
        let number = |(of, value)| Number::new(Some((label, of)), value);
        Family { name, about, numbers: Numbers::Counter(values.into_iter().map(number).collect()) }
    }
}

/// How often things took how long.
#[derive(Default)]
pub struct Histogram {
    counts: [AtomicU64; EDGES.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub fn note(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let slot = EDGES.iter().position(|edge| seconds <= *edge).unwrap_or(EDGES.len());
        self.counts[slot].fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub fn family(&self, name: &'static str, about: &'static str) -> Family {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum_seconds = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        Family { name, about, numbers: Numbers::Histogram(Buckets { counts, sum_seconds }) }
    }
}

/// The page.
pub fn page(families: &[Family]) -> String {
    let mut out = String::new();
    for Family { name, about, numbers } in families {
        let kind = match numbers {
            Numbers::Counter(_) => "counter",
            Numbers::Gauge(_) => "gauge",
            Numbers::Histogram(_) => "histogram",
        };
        let _ = writeln!(out, "# HELP {name} {about}\n# TYPE {name} {kind}");
        match numbers {
            Numbers::Counter(numbers) | Numbers::Gauge(numbers) => {
                for number in numbers {
                    let _ = writeln!(out, "{name}{} {}", braces(&number.labels), number.value);
                }
            }
            Numbers::Histogram(buckets) => write_buckets(&mut out, name, buckets),
        }
    }
    out
}

fn braces(labels: &[(&str, String)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let labels: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{{{}}}", labels.join(","))
}

/// On the page a bucket counts all that are below it, too.
fn write_buckets(out: &mut String, name: &str, buckets: &Buckets) {
    let mut sum = 0;
    let edges = EDGES.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    for (edge, count) in edges.zip(&buckets.counts) {
        sum += count;
        let _ = writeln!(out, "{name}_bucket{{le=\"{edge}\"}} {sum}");
    }
    let _ = writeln!(out, "{name}_sum {}\n{name}_count {sum}", buckets.sum_seconds);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_upwards() {
        let histogram = Histogram::default();
        histogram.note(Duration::from_millis(3));
        histogram.note(Duration::from_secs(3600));
        let out = page(&[histogram.family("x", "about")]);
        assert!(out.contains("x_bucket{le=\"0.0025\"} 0\n"), "{out}");
        assert!(out.contains("x_bucket{le=\"0.005\"} 1\n"), "{out}");
        assert!(out.contains("x_bucket{le=\"+Inf\"} 2\n"), "{out}");
        assert!(out.contains("x_count 2\n"), "{out}");
    }

    #[test]
    fn labels_stand_in_braces() {
        let family = Family::counters("x_total", "About.", "kind", [("a", 1), ("b", 2)]);
        let expect = "# HELP x_total About.\n# TYPE x_total counter\n\
                      x_total{kind=\"a\"} 1\nx_total{kind=\"b\"} 2\n";
        assert_eq!(page(&[family]), expect);
    }
}
