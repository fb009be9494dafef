//! How many may work at once: a count that is taken and given back.

use super::Cancel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a waiting call asks whether it is called off.
pub const LOOK: Duration = Duration::from_millis(20);

/// So many places.
#[derive(Debug)]
pub struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// One of them, given back when it is dropped.
#[derive(Debug)]
pub struct Permit(Arc<Slots>);

impl Slots {
    pub fn new(count: usize) -> Arc<Slots> {
        Arc::new(Slots { free: Mutex::new(count), freed: Condvar::new() })
    }

    /// Waits for a place, so long at most and until called off.
    pub fn take(self: &Arc<Slots>, patience: Duration, cancel: &Cancel) -> Option<Permit> {
        let end = Instant::now() + patience;
        let mut free = self.lock();
        while *free == 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || cancel.is_cancelled() {
                return None;
            }
            let waited = self.freed.wait_timeout(free, left.min(LOOK));
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *free -= 1;
        Some(Permit(Arc::clone(self)))
    }

    /// Nothing that could panic happens under the lock.
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.0.freed.notify_one();
    }
}
