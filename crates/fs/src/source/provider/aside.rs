//! Work on another thread, of which nobody waits longer than agreed.

use super::ProviderBounds;
use crate::error::{Fault, Kind};
use crate::source::chain;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};

/// Counts the work that nobody waits for any more.
#[derive(Default)]
pub(super) struct Aside {
    late: Arc<AtomicUsize>,
}

impl Aside {
    pub(super) fn run<T: Send + 'static>(
        &self,
        bounds: &ProviderBounds,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, Fault> {
        let late = self.late.load(Ordering::SeqCst);
        if late >= bounds.late_max {
            let reason = format!("{late} earlier answers are still missing");
            return Err(Fault::because(Kind::Timeout, reason));
        }
        let (send, receive) = channel();
        let chain = chain::current();
        // Taken back by whoever comes second: the answer, or the end of
        // waiting.
        let pending = Arc::new(AtomicUsize::new(0));
        let (theirs, counter) = (pending.clone(), self.late.clone());
        let thread = std::thread::Builder::new().name("fractal-provider".to_owned());
        let started = thread.spawn(move || {
            chain::go_on(chain);
            let answer = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|panic| Err(format!("it panicked: {}", words(&*panic))));
            // Nobody may be listening any more, which is no error.
            let _ = send.send(answer);
            if theirs.swap(1, Ordering::SeqCst) == 1 {
                counter.fetch_sub(1, Ordering::SeqCst);
            }
        });
        started.map_err(|error| Fault::because(Kind::Busy, format!("no thread: {error}")))?;
        match receive.recv_timeout(bounds.time_max) {
            Ok(answer) => answer.map_err(|reason| Fault::because(Kind::Source, reason)),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Fault::because(Kind::Source, "it ended without an answer"))
            }
            Err(RecvTimeoutError::Timeout) => {
                self.late.fetch_add(1, Ordering::SeqCst);
                if pending.swap(1, Ordering::SeqCst) == 1 {
                    self.late.fetch_sub(1, Ordering::SeqCst);
                }
                let reason = format!("no answer within {:?}", bounds.time_max);
                Err(Fault::because(Kind::Timeout, reason))
            }
        }
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}
