//! Several calls at once: bounded, in the order asked, each for itself.

use super::ToolRegistry;
use super::call::Calling;
use super::mcp;
use super::slots::Slots;
use crate::{Caller, Cancel, Engine};
use fractal_model::{Code, Error, Policy, Result, ToolCall, ToolReply};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls that run at once, whatever is asked.
const JOBS_MAX: usize = 64;

/// Calls of one request.
const CALLS_MAX: usize = 1000;

/// Tries of one call.
const TRIES: u32 = 3;
const TRIES_MAX: u32 = 10;

/// How calls are carried out.
#[derive(Clone, Debug)]
pub struct Options {
    /// Calls that run at once; as many as there are cores by default, and
    /// never more than the cpus that the caller's policy allows.
    pub jobs: Option<usize>,
    /// How often a call of an idempotent tool is tried at most.
    pub tries: u32,
    /// Whether one that took too long is tried again.
    pub retry_timeout: bool,
    /// Bytes of one answer.
    pub output_bytes: Option<usize>,
    /// Ends all of it.
    pub cancel: Cancel,
}

impl Default for Options {
    fn default() -> Options {
        let (cancel, tries) = (Cancel::default(), TRIES);
        Options { jobs: None, tries, retry_timeout: false, output_bytes: None, cancel }
    }
}

impl Options {
    pub(super) fn tries_max(&self) -> u32 {
        self.tries.clamp(1, TRIES_MAX)
    }

    /// How many calls run at once.
    fn jobs(&self, policy: &Policy) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = policy.limits.cpu_milli.map(|milli| milli.div_ceil(1000));
        let allowed = cpus.and_then(|cpus| usize::try_from(cpus).ok()).unwrap_or(JOBS_MAX);
        self.jobs.unwrap_or_else(cores).min(JOBS_MAX).min(allowed).max(1)
    }
}

impl ToolRegistry {
    /// Carries out several calls at once. The answers have the order of the
    /// calls, and one that fails is no trouble for the others.
    pub fn call_many(
        &self,
        engine: &Engine,
        caller: &Caller,
        calls: &[ToolCall],
        options: &Options,
    ) -> Result<Vec<ToolReply>> {
        if calls.len() > CALLS_MAX {
            let why = format!("{} calls were asked for, {CALLS_MAX} are allowed", calls.len());
            return Err(Error::new(Code::Limit, why).hint("send them in parts"));
        }
        engine.ready()?;
        match self.has_servers() {
            true => mcp::with_servers(engine, caller, |servers| {
                self.call_all(engine, caller, calls, options, Some(servers))
            }),
            false => self.call_all(engine, caller, calls, options, None),
        }
    }

    fn call_all(
        &self,
        engine: &Engine,
        caller: &Caller,
        calls: &[ToolCall],
        options: &Options,
        servers: Option<&mcp::Servers>,
    ) -> Result<Vec<ToolReply>> {
        let jobs = options.jobs(&caller.policy);
        let slots = Slots::new(jobs);
        let calling = Calling { registry: self, engine, caller, options, slots, servers };
        let next = AtomicUsize::new(0);
        let answers: Vec<OnceLock<ToolReply>> = calls.iter().map(|_| OnceLock::new()).collect();
        std::thread::scope(|scope| {
            for _ in 0..jobs.min(calls.len()) {
                scope.spawn(|| {
                    while let Some(at) = take(&next, calls.len()) {
                        let _ = answers[at].set(calling.call(&calls[at]));
                    }
                });
            }
        });
        let answers = answers.into_iter().map(OnceLock::into_inner);
        let answers: Option<Vec<ToolReply>> = answers.collect();
        answers.ok_or_else(|| Error::internal("a call was left without an answer"))
    }
}

/// The next call that nobody has taken.
fn take(next: &AtomicUsize, count: usize) -> Option<usize> {
    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fractal_model::Limits;

    #[test]
    fn jobs_are_bounded_by_what_is_asked_and_by_policy() {
        let check = |jobs, cpu_milli, expect| {
            let options = Options { jobs, ..Options::default() };
            let limits = Limits { cpu_milli, ..Limits::default() };
            let policy = Policy { limits, ..Policy::default() };
            assert_eq!(options.jobs(&policy), expect, "{jobs:?} {cpu_milli:?}");
        };
        check(Some(8), None, 8);
        check(Some(0), None, 1);
        check(Some(1_000_000), None, JOBS_MAX);
        check(Some(8), Some(2500), 3);
        check(Some(8), Some(100), 1);
    }
}
