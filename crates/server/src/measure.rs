//! How much layers take, found out now and then.
//!
//! Layers that are written to have no size on record: whoever wants to know
//! walks through them. That is too slow to do for each request, so a thread
//! does it and the latest figure counts.

use crate::state::Shared;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The shortest pause where there is a bound, and where there is none.
const BOUND_PAUSE: Duration = Duration::from_secs(1);
const FREE_PAUSE: Duration = Duration::from_secs(30);
/// A pause is so many times as long as measuring took: a large state
/// directory takes no more of a processor than a small one.
const REST: u32 = 20;

/// Measures until the server is gone. Not a task of the runtime, which would
/// wait for it at the end.
pub fn keep_measuring(state: &Shared) {
    let state = Arc::downgrade(state);
    std::thread::spawn(move || while measure(&state).is_some() {});
}

/// Once, and rests; `None` at the end.
fn measure(state: &Weak<crate::state::State>) -> Option<()> {
    let server = state.upgrade().filter(|server| !server.is_ending())?;
    let started = Instant::now();
    match server.engine.measure_layers() {
        Ok(bytes) => server.admission.measured(bytes),
        Err(error) => tracing::warn!("layers are not measured: {error}"),
    }
    let pause = if server.admission.has_disk_bound() { BOUND_PAUSE } else { FREE_PAUSE };
    drop(server);
    std::thread::sleep(pause.max(started.elapsed() * REST));
    Some(())
}
