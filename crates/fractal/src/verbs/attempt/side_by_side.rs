//! Several attempts at once, and calling off those that are no longer needed.

use super::Done;
use super::work::Work;
use crate::{Engine, living};
use fractal_model::{CheckReport, Id, Result, rank};
use fractal_store::Reads;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often those who were called off are looked for.
const PULSE: Duration = Duration::from_millis(10);

/// What a worker hands in.
enum Over {
    Attempt(usize, Box<Done>),
    Base(Result<Vec<CheckReport>>),
}

/// Lets all attempts run, and the checks on the untouched base after them, on
/// so many threads. Everything has ended when it returns.
pub fn carry_out(work: &Work<'_>) -> (Vec<Done>, Result<Vec<CheckReport>>) {
    let next = AtomicUsize::new(0);
    let (send, receive) = channel();
    std::thread::scope(|scope| {
        for _ in 0..work.plan.jobs {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || worker(work, next, &send));
        }
        drop(send);
        collect(work, &receive)
    })
}

fn worker(work: &Work<'_>, next: &AtomicUsize, send: &Sender<Over>) {
    let count = work.plan.attempts.len();
    loop {
        let over = match next.fetch_add(1, Ordering::Relaxed) {
            index if index < count => Over::Attempt(index, Box::new(work.attempt(index))),
            index if index == count && work.wants_base() => Over::Base(work.check_base()),
            _ => return,
        };
        if send.send(over).is_err() {
            return;
        }
    }
}

/// Takes what the workers hand in, and ends the rest when they are called off.
fn collect(work: &Work<'_>, receive: &Receiver<Over>) -> (Vec<Done>, Result<Vec<CheckReport>>) {
    let mut done: Vec<Option<Done>> = work.plan.attempts.iter().map(|_| None).collect();
    let mut checks = Ok(Vec::new());
    let mut ended = BTreeSet::new();
    loop {
        match receive.recv_timeout(PULSE) {
            Ok(Over::Attempt(index, one)) => {
                let passes = rank::ruled_out(&one.report).is_none();
                done[index] = Some(*one);
                if passes && work.plan.stop_first {
                    work.budget.call_off();
                }
            }
            // Checks that were ended in the middle say nothing about the base.
            Ok(Over::Base(_)) if work.budget.is_called_off() => {}
            Ok(Over::Base(said)) => checks = said,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if work.budget.is_called_off() {
            let names = work.plan.attempts.iter().zip(&done).filter(|(_, done)| done.is_none());
            let names = names.map(|(planned, _)| planned.sandbox.as_str());
            end(work.engine, names.chain([work.plan.base_name.as_str()]), &mut ended);
        }
    }
    (done.into_iter().flatten().collect(), checks)
}

/// Ends what runs in these sandboxes and in throw-away children of them, as
/// far as it has begun; whoever waits for it goes on.
fn end<'n>(engine: &Engine, names: impl Iterator<Item = &'n str>, ended: &mut BTreeSet<Id>) {
    for name in names {
        let Ok(Some(row)) = engine.store.sandbox_named(name) else { continue };
        let children = engine.store.children(row.id).unwrap_or_default();
        for row in children.iter().chain([&row]) {
            living::end_begun(engine, row, ended);
        }
    }
}
