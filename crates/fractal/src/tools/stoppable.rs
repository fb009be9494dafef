//! A run that is ended when nobody wants it any more.

use super::call::Work;
use super::function::called_off;
use super::slots::LOOK;
use crate::RunIo;
use crate::verbs::run::Begun;
use crate::verbs::run::claim::label;
use fractal_model::{Result, Run, RunReply};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// Carries out a run. Once it is called off, the run is ended (one that has no
/// layer on disk ends at its time limit) and the answer says so.
pub fn run(work: &Work<'_>, run: Run, io: RunIo) -> Result<RunReply> {
    let begun = Begun::default();
    let io = io.telling(Begun::clone(&begun));
    let reply = std::thread::scope(|scope| {
        let (over, wait) = channel::<()>();
        scope.spawn(|| watch(work, &begun, wait));
        let reply = work.engine.run(work.caller, run, io);
        drop(over);
        reply
    })?;
    match work.cancel.is_cancelled() {
        true => Err(called_off(&work.call.tool)),
        false => Ok(reply),
    }
}

/// Looks again and again until the run is over. A run that has only just begun
/// cannot be ended yet, so it is asked more than once.
fn watch(work: &Work<'_>, begun: &Begun, over: Receiver<()>) {
    while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        if let (true, Some((run, layer))) = (work.cancel.is_cancelled(), begun.get()) {
            let layers = work.engine.layers_dir();
            if fractal_jail::end(&layers, &layer.to_string(), &label(*run)) {
                return;
            }
        }
    }
}
