//! Work that Ctrl-C can end.

use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long a Ctrl-C waits at most before it is noticed.
const NOTICE: Duration = Duration::from_millis(50);

/// Does the work on another thread while this one, which may be the only one
/// that Python tells of signals, waits for it. A signal whose handler raises
/// calls the work off; its exception is raised when the work has ended.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send,
    call_off: impl Fn() + Send + Sync,
) -> PyResult<T> {
    std::thread::scope(|scope| {
        let (send, receive) = channel();
        let worker = scope.spawn(move || {
            let done = work();
            // The other side waits for as long as there is something to wait for.
            let _ = send.send(());
            done
        });
        let mut receive = receive;
        let mut raised = None;
        loop {
            let (back, waited) = py.detach(move || {
                let waited = receive.recv_timeout(NOTICE);
                (receive, waited)
            });
            receive = back;
            match waited {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = py.check_signals() {
                        raised = Some(error);
                    }
                    // Again and again: it may not have begun when first asked.
                    if raised.is_some() {
                        py.detach(&call_off);
                    }
                }
            }
        }
        let done = py.detach(|| worker.join());
        match (raised, done) {
            (Some(error), _) => Err(error),
            (None, Ok(done)) => Ok(done),
            (None, Err(panic)) => std::panic::resume_unwind(panic),
        }
    })
}
