//! Two attempts on one criterion, and what follows for all of them.

use super::agreement::agreement;
use super::words;
use super::{Changed, Evidence, Ranking};
use crate::{CheckResult, Criterion};
use std::cmp::Ordering;

/// Differences up to these are noise: a tenth, or so much.
const TIME_NOISE_MS: f64 = 50.0;
const MEMORY_NOISE_BYTES: f64 = 8.0 * 1024.0 * 1024.0;
const NOISE_SHARE: f64 = 0.1;

/// All attempts with what is known about each.
pub struct Field<'a> {
    pub evidence: &'a [Evidence<'a>],
    pub how: &'a Ranking,
    /// Why each is ruled out, if it is.
    pub out: Vec<Option<String>>,
    /// Those that are not.
    pub passing: Vec<usize>,
    /// How much each passing one agrees with the other passing ones.
    agreement: Vec<f64>,
}

impl<'a> Field<'a> {
    pub fn new(evidence: &'a [Evidence<'a>], how: &'a Ranking) -> Field<'a> {
        let out: Vec<Option<String>> =
            evidence.iter().map(|one| words::ruled_out(one.report)).collect();
        let passing: Vec<usize> = (0..out.len()).filter(|at| out[*at].is_none()).collect();
        let changed: Vec<&Changed> = passing.iter().map(|at| evidence[*at].changed).collect();
        let mut all = vec![0.0; evidence.len()];
        for (place, at) in passing.iter().enumerate() {
            all[*at] = agreement(place, &changed);
        }
        Field { evidence, how, out, passing, agreement: all }
    }

    pub fn name(&self, at: usize) -> &str {
        &self.evidence[at].report.name
    }

    /// What it has on a criterion: more is better, nothing is worst.
    pub fn value(&self, at: usize, criterion: Criterion) -> Option<f64> {
        let report = self.evidence[at].report;
        // Who did nothing has not done it with fewer lines.
        let size = |count: u64| (report.files_changed > 0).then_some(-(count as f64));
        match criterion {
            Criterion::Checks => Some(passed(self.evidence[at]) as f64),
            Criterion::Score => report.score.filter(|score| !score.is_nan()),
            Criterion::Lines => size(report.lines_changed),
            Criterion::Files => size(report.files_changed),
            Criterion::Time => Some(-(report.usage.wall_ms as f64)),
            Criterion::Memory => Some(-(report.usage.memory_peak_bytes as f64)),
            Criterion::Agreement => Some(self.agreement[at]),
        }
    }

    /// `Greater` when `a` is better than `b`.
    pub fn compare(&self, a: usize, b: usize, criterion: Criterion) -> Ordering {
        match (self.value(a, criterion), self.value(b, criterion)) {
            (Some(a), Some(b)) if is_noise(a, b, criterion) => Ordering::Equal,
            (Some(a), Some(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    }

    /// The one with more weight on its side.
    pub fn majority(&self, a: usize, b: usize) -> Ordering {
        let side = |criterion: &Criterion| match self.compare(a, b, *criterion) {
            Ordering::Greater => self.how.weight(*criterion),
            Ordering::Less => -self.how.weight(*criterion),
            Ordering::Equal => 0.0,
        };
        let sum: f64 = self.how.criteria.iter().map(side).sum();
        sum.partial_cmp(&0.0).unwrap_or(Ordering::Equal)
    }

    /// The one that is better on the first criterion on which they differ.
    pub fn first_difference(&self, a: usize, b: usize) -> Ordering {
        let mut all = self.how.criteria.iter().map(|criterion| self.compare(a, b, *criterion));
        all.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Copeland's count: pairs won less pairs lost. Comparing pairs, rather
    /// than sorting, does not need "about as fast as" to be transitive.
    pub fn pairs_won(&self, pair: impl Fn(usize, usize) -> Ordering) -> Vec<Option<f64>> {
        self.standing(|at| {
            let others = self.passing.iter().filter(|other| **other != at);
            others.map(|other| f64::from(pair(at, *other) as i8)).sum()
        })
    }

    /// The sum of weights, each times the value between the worst (0) and the
    /// best (1).
    pub fn weighted(&self) -> Vec<Option<f64>> {
        self.standing(|at| {
            let share =
                |criterion: &Criterion| self.how.weight(*criterion) * self.scaled(at, *criterion);
            let sum: f64 = self.how.criteria.iter().map(share).sum();
            // Sums of fractions differ in their last digits.
            (sum * 1e9).round()
        })
    }

    fn scaled(&self, at: usize, criterion: Criterion) -> f64 {
        let all = self.passing.iter().filter_map(|other| self.value(*other, criterion));
        let (least, most) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        match self.value(at, criterion) {
            None => 0.0,
            Some(_) if is_noise(least, most, criterion) => 1.0,
            // An infinite score is the best or the worst there is.
            Some(value) if !(most - least).is_finite() => f64::from(u8::from(value == most)),
            Some(value) => (value - least) / (most - least),
        }
    }

    fn standing(&self, of: impl Fn(usize) -> f64) -> Vec<Option<f64>> {
        let passes = |at: usize| self.out[at].is_none();
        (0..self.evidence.len()).map(|at| passes(at).then(|| of(at))).collect()
    }
}

/// How many of its checks an attempt passes.
pub fn passed(one: Evidence<'_>) -> usize {
    one.report.checks.iter().filter(|check| check.result == CheckResult::Pass).count()
}

fn is_noise(a: f64, b: f64, criterion: Criterion) -> bool {
    let least = match criterion {
        Criterion::Time => TIME_NOISE_MS,
        Criterion::Memory => MEMORY_NOISE_BYTES,
        _ => return a == b,
    };
    (a - b).abs() <= least.max(NOISE_SHARE * a.abs().max(b.abs()))
}
