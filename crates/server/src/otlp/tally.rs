//! What became of spans: none is lost without being counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters; what was taken and is in none of the others is on its way.
#[derive(Default)]
pub struct Tally {
    taken: AtomicU64,
    sent: AtomicU64,
    crowded_out: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
}

impl Tally {
    pub fn taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// There was no room in the queue.
    pub fn crowded_out(&self) {
        self.crowded_out.fetch_add(1, Ordering::Relaxed);
    }

    /// The collector has them, but for those that it refused.
    pub fn sent(&self, spans: u64, refused: u64) {
        self.sent.fetch_add(spans.saturating_sub(refused), Ordering::Relaxed);
        self.refused(refused.min(spans));
    }

    /// The collector does not want them.
    pub fn refused(&self, spans: u64) {
        self.refused.fetch_add(spans, Ordering::Relaxed);
    }

    /// The collector was not there, for long enough.
    pub fn lost(&self, spans: u64) {
        self.lost.fetch_add(spans, Ordering::Relaxed);
    }

    /// Those that wait to be sent.
    pub fn on_the_way(&self) -> u64 {
        let over = [&self.sent, &self.lost, &self.refused];
        let over: u64 = over.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        self.taken.load(Ordering::Relaxed).saturating_sub(over)
    }

    /// How many ended in which way.
    pub fn numbers(&self) -> [(&'static str, u64); 4] {
        let of = |name, count: &AtomicU64| (name, count.load(Ordering::Relaxed));
        [
            of("sent", &self.sent),
            of("crowded_out", &self.crowded_out),
            of("lost", &self.lost),
            of("refused", &self.refused),
        ]
    }
}
