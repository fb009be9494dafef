//! The numbers of `/metrics` as OTLP has them.
//!
//! They are totals since the server started, so a request that fails loses
//! nothing: the next one tells the same and more.

use super::span::attribute;
use crate::metrics::{Buckets, EDGES, Family, Number, Numbers};
use serde_json::{Value, json};

/// OTLP's word for totals since a start.
const CUMULATIVE: u8 = 2;

/// Numbers as the body of a request to `/v1/metrics`.
pub fn document(resource: &Value, scope: &Value, families: &[Family], times: Times) -> Value {
    // A family in which nothing was counted yet has no points, and none of
    // that shape may be sent.
    let metrics: Vec<Value> = families.iter().filter_map(|family| metric(family, times)).collect();
    json!({ "resourceMetrics": [{
        "resource": resource,
        "scopeMetrics": [{ "scope": scope, "metrics": metrics }],
    }] })
}

/// Since when, and when; in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub struct Times {
    pub started_ns: u64,
    pub now_ns: u64,
}

fn metric(family: &Family, times: Times) -> Option<Value> {
    // Who brings them to Prometheus appends `_total` to sums again.
    let name = family.name.trim_end_matches("_total");
    let mut metric = json!({ "name": name, "description": family.about });
    match &family.numbers {
        Numbers::Counter(numbers) | Numbers::Gauge(numbers) if numbers.is_empty() => return None,
        Numbers::Counter(numbers) => {
            metric["sum"] = json!({
                "dataPoints": points(numbers, times),
                "aggregationTemporality": CUMULATIVE,
                "isMonotonic": true,
            });
        }
        Numbers::Gauge(numbers) => {
            metric["gauge"] = json!({ "dataPoints": points(numbers, times) });
        }
        Numbers::Histogram(buckets) => {
            metric["unit"] = "s".into();
            metric["histogram"] = json!({
                "dataPoints": [histogram(buckets, times)],
                "aggregationTemporality": CUMULATIVE,
            });
        }
    }
    Some(metric)
}

fn points(numbers: &[Number], times: Times) -> Vec<Value> {
    let point = |number: &Number| {
        let labels = number.labels.iter().map(|(key, value)| (*key, value.as_str().into()));
        let attributes: Vec<Value> = labels.map(|label| attribute(&label)).collect();
        json!({
            "attributes": attributes,
            "startTimeUnixNano": times.started_ns.to_string(),
            "timeUnixNano": times.now_ns.to_string(),
            "asInt": number.value.to_string(),
        })
    };
    numbers.iter().map(point).collect()
}

fn histogram(buckets: &Buckets, times: Times) -> Value {
    let counts: Vec<String> = buckets.counts.iter().map(u64::to_string).collect();
    json!({
        "startTimeUnixNano": times.started_ns.to_string(),
        "timeUnixNano": times.now_ns.to_string(),
        "count": buckets.counts.iter().sum::<u64>().to_string(),
        "sum": buckets.sum_seconds,
        "bucketCounts": counts,
        "explicitBounds": EDGES,
    })
}
