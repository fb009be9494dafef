//! Time that several runs share, and ways to end them early.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a group of runs may go on.
#[derive(Debug, Default)]
pub struct Budget {
    deadline: Option<Instant>,
    called_off: AtomicBool,
    interrupted: AtomicBool,
}

impl Budget {
    /// So many milliseconds from now; `None` is no bound.
    pub fn of_ms(ms: Option<u64>) -> Budget {
        let deadline = ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        Budget { deadline, ..Budget::default() }
    }

    /// The same time for others, who are called off by themselves.
    pub fn beside(&self) -> Budget {
        Budget { deadline: self.deadline, ..Budget::default() }
    }

    /// What is left of it; a run needs at least a millisecond to be told so.
    pub fn left_ms(&self) -> Option<u64> {
        let left = self.deadline?.saturating_duration_since(Instant::now());
        Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1))
    }

    /// Whether the time is used up.
    pub fn is_spent(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Lets nothing new begin, because it is no longer needed.
    pub fn call_off(&self) {
        self.called_off.store(true, Ordering::Release);
    }

    /// Lets nothing new begin, because somebody wants all of it to end.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
    }

    /// Whether somebody did the one or the other.
    pub fn is_called_off(&self) -> bool {
        self.called_off.load(Ordering::Acquire) || self.is_interrupted()
    }

    /// Whether somebody wants all of it to end.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// Why nothing more may begin, if it may not.
    pub fn refusal(&self) -> Option<&'static str> {
        if self.is_interrupted() {
            Some("interrupted")
        } else if self.is_called_off() {
            Some("another attempt passed first")
        } else {
            self.is_spent().then_some("the budget was used up")
        }
    }
}
