//! Several attempts at once, and calling off those that are no longer needed.

use super::Done;
use super::work::{BaseChecks, Work};
use crate::living;
use fractal_model::{AttemptReport, Id, Result, rank};
use fractal_store::Reads;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often those who were called off are looked for.
const PULSE: Duration = Duration::from_millis(10);

/// What a worker hands in.
enum Over {
    Attempt(usize, Box<Done>),
    Base(Result<BaseChecks>),
}

/// Lets all attempts run, and the checks on the untouched base after them, on
/// so many threads. Everything has ended when it returns.
pub fn carry_out(work: &Work<'_>) -> (Vec<Done>, Result<BaseChecks>) {
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
            index if index == count => Over::Base(work.check_base()),
            _ => return,
        };
        if send.send(over).is_err() {
            return;
        }
    }
}

/// Takes what the workers hand in, and ends the rest when they are called off.
fn collect(work: &Work<'_>, receive: &Receiver<Over>) -> (Vec<Done>, Result<BaseChecks>) {
    let mut done: Vec<Option<Done>> = work.plan.attempts.iter().map(|_| None).collect();
    let mut checks = Ok(BaseChecks::default());
    let mut ended = BTreeSet::new();
    let mut base_until: Option<Instant> = None;
    loop {
        if (work.stop)() {
            work.budget.interrupt();
            work.base_budget.interrupt();
        }
        if base_until.is_some_and(|until| Instant::now() > until) {
            work.base_budget.call_off();
        }
        match receive.recv_timeout(PULSE) {
            Ok(Over::Attempt(index, one)) => {
                if rank::ruled_out(&one.report).is_none() && work.plan.stop_first {
                    work.budget.call_off();
                    base_until.get_or_insert_with(|| Instant::now() + patience(&one.report));
                }
                done[index] = Some(*one);
            }
            Ok(Over::Base(said)) => checks = said,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if work.budget.is_called_off() {
            let names = work.plan.attempts.iter().zip(&done).filter(|(_, done)| done.is_none());
            let names = names.map(|(planned, _)| planned.sandbox.as_str());
            end(work, names, &mut ended);
        }
        if work.base_budget.is_called_off() {
            end(work, [work.plan.base_name.as_str()].into_iter(), &mut ended);
        }
    }
    (done.into_iter().flatten().collect(), checks)
}

/// How long the base may still be looked at when the rest is called off: a
/// check that passes on the winner may go on for ever on the base.
fn patience(winner: &AttemptReport) -> Duration {
    const LEAST: Duration = Duration::from_secs(5);
    let took_ms = winner.checks.iter().map(|check| check.wall_ms).sum::<u64>();
    Duration::from_millis(took_ms.saturating_mul(2)).max(LEAST)
}

/// Ends what runs in these sandboxes and in throw-away children of them, as
/// far as it has begun; whoever waits for it goes on.
fn end<'n>(work: &Work<'_>, names: impl Iterator<Item = &'n str>, ended: &mut BTreeSet<Id>) {
    let (engine, home) = (work.engine, work.caller.reach.home());
    for name in names {
        let Ok(Some(row)) = engine.store.sandbox_named(home, name) else { continue };
        let children = engine.store.children(row.id).unwrap_or_default();
        for row in children.iter().chain([&row]) {
            living::end_begun(engine, row, ended);
        }
    }
}
