//! Time that several runs share, and a way to call them off.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a group of runs may go on.
#[derive(Debug, Default)]
pub struct Budget {
    deadline: Option<Instant>,
    called_off: AtomicBool,
}

impl Budget {
    /// So many milliseconds from now; `None` is no bound.
    pub fn of_ms(ms: Option<u64>) -> Budget {
        let deadline = ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        Budget { deadline, called_off: AtomicBool::new(false) }
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

    /// Lets nothing new begin.
    pub fn call_off(&self) {
        self.called_off.store(true, Ordering::Release);
    }

    /// Whether somebody did.
    pub fn is_called_off(&self) -> bool {
        self.called_off.load(Ordering::Acquire)
    }
}
