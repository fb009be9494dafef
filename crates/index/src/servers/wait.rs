//! Waiting for what is written to be awaited.
//!
//! The rest of this crate is synchronous. Each server has a runtime of one
//! thread, the caller's, on which its connections live between calls.

use std::io;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// Longer is not waited for a connection.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Longer is not waited for an answer.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Lets callers wait.
pub(super) struct Waiting(Option<Runtime>);

impl Waiting {
    pub(super) fn new() -> io::Result<Waiting> {
        Builder::new_current_thread().enable_all().build().map(|runtime| Waiting(Some(runtime)))
    }

    /// Waits for an answer, wherever the caller is.
    pub(super) fn on<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
        let runtime = self.0.as_ref().expect("it goes with what it belongs to");
        if Handle::try_current().is_err() {
            return runtime.block_on(work);
        }
        // A thread that drives other futures must not drive these.
        thread::scope(|scope| {
            let waiting = scope.spawn(|| runtime.block_on(work));
            waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Dropped as it is, it would wait, which not every thread may do.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_that_are_awaited_themselves_can_wait_too() {
        let outer = Builder::new_current_thread().build().expect("a runtime");
        let waiting = Waiting::new().expect("a runtime");
        assert_eq!(waiting.on(async { 1 }), 1);
        outer.block_on(async move {
            assert_eq!(waiting.on(async { 2 }), 2);
            drop(waiting);
        });
    }
}
