//! A run that goes on while Python does something else: its input and output
//! are pipes, whose other ends Python takes over, and it can be ended.
//!
//! The engine works on a thread of its own that knows nothing of Python. A
//! request that is refused is told by [`Running::wait`], as is its reply.

use crate::engine::json;
use crate::errors::of_engine;
use fractal::model::RunReply;
use fractal::{Error, RunIo};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a Ctrl-C waits at most before it is noticed.
const NOTICE: Duration = Duration::from_millis(50);

/// What the thread that works says when it is done.
type Done = fractal::Result<RunReply>;

/// A run that has begun.
#[pyclass(frozen, module = "fractal")]
pub struct Running {
    shared: std::sync::Arc<Shared>,
    /// As long as the other end is open the run goes on.
    connection: Mutex<Option<UnixStream>>,
    /// Ends of its pipes that Python has not taken yet.
    ends: Mutex<Option<[OwnedFd; 3]>>,
}

#[derive(Default)]
struct Shared {
    done: Mutex<Option<Done>>,
    changed: Condvar,
}

impl Running {
    /// Begins.
    pub fn begin(work: impl FnOnce(RunIo) -> Done + Send + 'static) -> std::io::Result<Running> {
        let (stdin, input) = std::io::pipe()?;
        let (output, stdout) = std::io::pipe()?;
        let (errors, stderr) = std::io::pipe()?;
        let (ours, theirs) = UnixStream::pair()?;
        let shared = std::sync::Arc::<Shared>::default();
        let told = shared.clone();
        std::thread::Builder::new().name("fractal-run".to_owned()).spawn(move || {
            let io = RunIo::beside(stdin.into(), stdout.into(), stderr.into());
            let io = io.ending_with(theirs.into());
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(io)));
            let broke = |_| Err(Error::internal("the engine broke off"));
            *locked(&told.done) = Some(done.unwrap_or_else(broke));
            told.changed.notify_all();
        })?;
        let ends = [input.into(), output.into(), errors.into()];
        Ok(Running { shared, connection: Mutex::new(Some(ours)), ends: Mutex::new(Some(ends)) })
    }
}

#[pymethods]
impl Running {
    /// The ends of its pipes: what it reads, writes, and complains. They are
    /// the caller's from now on, who closes them.
    fn take(&self) -> PyResult<(RawFd, RawFd, RawFd)> {
        let ends = locked(&self.ends).take();
        let [stdin, stdout, stderr] =
            ends.ok_or_else(|| PyRuntimeError::new_err("they were taken before"))?;
        Ok((stdin.into_raw_fd(), stdout.into_raw_fd(), stderr.into_raw_fd()))
    }

    /// Ends it, without waiting. Ending what is over is no error.
    fn kill(&self) {
        locked(&self.connection).take();
    }

    /// Whether it is over.
    fn is_done(&self) -> bool {
        locked(&self.shared.done).is_some()
    }

    /// Waits for so many seconds at most; none when it is not over then. The
    /// reply, or the error, can be had again and again.
    #[pyo3(signature = (seconds = None))]
    fn wait(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<String>> {
        let patience = seconds.map(|s| Duration::try_from_secs_f64(s).unwrap_or(Duration::ZERO));
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let done = py.detach(|| self.look(left.map_or(NOTICE, |left| left.min(NOTICE))));
            match done {
                Some(Ok(reply)) => return json(py, &reply).map(Some),
                Some(Err(error)) => return Err(of_engine(py, error)),
                None if left == Some(Duration::ZERO) => return Ok(None),
                None => py.check_signals()?,
            }
        }
    }
}

impl Running {
    fn look(&self, patience: Duration) -> Option<Done> {
        let done = locked(&self.shared.done);
        let waited = self.shared.changed.wait_timeout_while(done, patience, |done| done.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
