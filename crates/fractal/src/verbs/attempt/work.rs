//! One attempt, from its fork to its evidence.

use super::measure::{Measured, measure};
use super::plan::{Judging, Plan, Planned};
use super::{Done, Progress, Stop, Watch};
use crate::budget::Budget;
use crate::check::{Checking, tail};
use crate::verbs::{drop, fork, run};
use crate::{Caller, Engine, RunIo};
use fractal_model::{
    AttemptReport, BaseKind, CheckReport, CheckResult, Error, Limits, Outcome, Part, Policy,
    Result, Run, RunReply, Usage,
};
use fractal_store::{Reads, SandboxRow};

/// What all attempts of a `try` share.
pub struct Work<'a> {
    pub engine: &'a Engine,
    pub caller: &'a Caller,
    pub plan: &'a Plan,
    pub budget: &'a Budget,
    /// The base is looked at even when the rest of the attempts is called off.
    pub base_budget: &'a Budget,
    pub watch: Watch<'a>,
    pub stop: Stop<'a>,
}

/// What the checks say about the untouched base.
#[derive(Default)]
pub struct BaseChecks {
    pub checks: Vec<CheckReport>,
    /// Why some did not come to say anything.
    pub not_run: Option<&'static str>,
}

impl Work<'_> {
    /// Carries out one attempt. Its own failures are part of its report, and
    /// never those of the others.
    pub fn attempt(&self, index: usize) -> Done {
        let planned = &self.plan.attempts[index];
        let done = match self.budget.refusal() {
            Some(why) => self.never_ran(planned, why),
            None => self.carried_out(index, planned),
        };
        (self.watch)(Progress::Finished(&done.report));
        done
    }

    /// An attempt that was not needed, or had no time.
    fn never_ran(&self, planned: &Planned, why: &str) -> Done {
        let what = if self.is_unneeded() { "cancelled" } else { "not started" };
        Done::without(planned, format!("{what}: {why}"))
    }

    fn carried_out(&self, index: usize, planned: &Planned) -> Done {
        (self.watch)(Progress::Running { name: &planned.name });
        let like = self.like(index, planned);
        let ran = self.run(planned, &like);
        let row = || self.engine.find(self.caller, Some(&planned.sandbox));
        let (reply, row) = match ran.and_then(|reply| Ok((reply, row()?))) {
            Ok(both) => both,
            Err(error) => match self.budget.refusal() {
                Some(why) if self.budget.is_called_off() => return self.never_ran(planned, why),
                _ => {
                    let why = format!("not started: {error}");
                    return Done { error: Some(error), ..Done::without(planned, why) };
                }
            },
        };
        let mut done = Done::of(planned, reply);
        if self.is_unneeded() {
            return self.cancelled(planned, &row);
        }
        match measure(self.engine, self.caller, &row) {
            Ok(measured) => done.measured(measured),
            Err(error) => done.notes.push(self.note(&planned.name, error)),
        }
        if succeeded(&done.report) {
            self.judge(planned, &like, &mut done);
        }
        if self.is_unneeded() { self.cancelled(planned, &row) } else { done }
    }

    /// Whether another one passed first. What somebody interrupts is another
    /// matter: as far as it came, it is theirs to look at.
    fn is_unneeded(&self) -> bool {
        self.budget.is_called_off() && !self.budget.is_interrupted()
    }

    /// Checks and score of an attempt whose command succeeded.
    fn judge(&self, planned: &Planned, like: &Run, done: &mut Done) {
        let (name, judging) = (&planned.name, &self.plan.judging);
        let checking = match Checking::new(self.engine, self.caller, &planned.sandbox, self.budget)
        {
            Ok(checking) => checking.repeating(judging.repeat).like(like),
            Err(error) => return done.notes.push(self.note(name, error)),
        };
        for check in &judging.checks {
            (self.watch)(Progress::Checking { name, check: &check.name });
            done.report.checks.push(checking.report(check));
        }
        if done.report.checks.iter().any(CheckReport::rules_out) {
            return;
        }
        match score(&checking, judging) {
            Ok(score) => done.report.score = score,
            Err(error) => done.notes.push(self.note(name, error)),
        }
    }

    fn note(&self, name: &str, error: Error) -> String {
        format!("{name}: {}", self.engine.readable(self.caller, error))
    }

    /// Half-done work is of no use to anybody.
    fn cancelled(&self, planned: &Planned, row: &SandboxRow) -> Done {
        let dropped = drop::drop_row(self.engine, self.caller, row);
        let note = dropped.err().map(|error| self.note(&planned.name, error));
        let done = self.never_ran(planned, self.budget.refusal().unwrap_or_default());
        Done { notes: note.into_iter().collect(), ..done }
    }

    /// The variables and bounds of an attempt.
    fn like(&self, index: usize, planned: &Planned) -> Run {
        let mut run = self.plan.run.clone();
        run.env.insert("FRACTAL_ATTEMPT".to_owned(), (index + 1).to_string());
        run.env.insert("FRACTAL_ATTEMPT_NAME".to_owned(), planned.name.clone());
        run
    }

    fn run(&self, planned: &Planned, like: &Run) -> Result<RunReply> {
        let template = like.template.clone();
        let template = template.unwrap_or_else(|| self.caller.config.default_template());
        let asked = like.ask.limits.time_ms;
        let own = run::place::time_ms(self.caller, &Policy::default(), &template, asked)?;
        let limits = Limits {
            time_ms: own.into_iter().chain(self.budget.left_ms()).min(),
            ..like.ask.limits.clone()
        };
        let forked = self.fork_base(planned)?;
        let run = Run {
            command: planned.command.clone(),
            name: (!forked).then(|| planned.sandbox.clone()),
            sandbox: forked.then(|| planned.sandbox.clone()),
            discard: false,
            ask: Policy { limits, ..like.ask.clone() },
            ..like.clone()
        };
        run::run(self.engine, self.caller, run, RunIo::captured())
    }

    /// On a frozen base all attempts stand on the very same one: they are
    /// forks of the fork that holds it. That one is dropped in the end, and
    /// who has lost its parent is a child of reality.
    fn fork_base(&self, planned: &Planned) -> Result<bool> {
        let base = &self.plan.base_name;
        if self.plan.run.base != BaseKind::Frozen || planned.sandbox == *base {
            return Ok(false);
        }
        let ttl_ms = match self.plan.run.ttl_ms {
            Some(ttl_ms) => ttl_ms,
            None => self.caller.config.ttl_ms()?,
        };
        let ask = &Policy::default();
        let asked = fork::Asked { ask, network: None, ttl_ms: Some(ttl_ms), world: None };
        fork::fork(self.engine, self.caller, Some(base), Some(&planned.sandbox), &asked)?;
        Ok(true)
    }

    /// Makes the fork that holds the untouched base. For a frozen base that
    /// copies the project, once for all attempts.
    pub fn make_base(&self) -> Result<()> {
        let base = Planned {
            name: String::new(),
            command: vec!["true".to_owned()],
            sandbox: self.plan.base_name.clone(),
        };
        // Should we be killed before it is dropped, it is forgotten soon.
        let like = Run { ttl_ms: Some(BASE_TTL_MS), part: Part::Base, ..self.plan.run.clone() };
        self.run(&base, &like).map(|_| ())
    }

    /// What the checks say about the untouched base. One that found no time, or
    /// was ended in the middle, says nothing about it.
    pub fn check_base(&self) -> Result<BaseChecks> {
        let (name, judging, budget) = (&self.plan.base_name, &self.plan.judging, self.base_budget);
        let mut said = BaseChecks { checks: Vec::new(), not_run: budget.refusal() };
        if judging.checks.is_empty() {
            return Ok(BaseChecks::default());
        }
        if said.not_run.is_some() {
            return Ok(said);
        }
        (self.watch)(Progress::Base);
        if self.engine.store.sandbox_named(self.caller.reach.home(), name)?.is_none() {
            self.make_base()?;
        }
        let checking = Checking::new(self.engine, self.caller, name, budget)?;
        let checking = checking.repeating(judging.repeat).like(&self.plan.run);
        for check in &judging.checks {
            let report = checking.report(check);
            said.not_run = budget.refusal().filter(|_| report.result == CheckResult::Error);
            if said.not_run.is_some() {
                break;
            }
            said.checks.push(report);
        }
        Ok(said)
    }

    /// Forgets the fork of the base.
    pub fn drop_base(&self) -> Result<()> {
        let home = self.caller.reach.home();
        match self.engine.store.sandbox_named(home, &self.plan.base_name)? {
            Some(row) => drop::forget(self.engine, &row),
            None => Ok(()),
        }
    }
}

/// Longer than checks take.
const BASE_TTL_MS: u64 = 86_400_000;

impl Done {
    /// An attempt of which there is nothing to see.
    fn without(planned: &Planned, why: impl Into<String>) -> Done {
        let report = AttemptReport {
            name: planned.name.clone(),
            sandbox: None,
            outcome: None,
            exit: None,
            checks: Vec::new(),
            score: None,
            usage: Usage::default(),
            files_changed: 0,
            lines_changed: 0,
            rank: None,
            why: why.into(),
            output: String::new(),
        };
        Done { report, changed: Default::default(), notes: Vec::new(), error: None }
    }

    fn of(planned: &Planned, reply: RunReply) -> Done {
        let mut done = Done::without(planned, "");
        done.report.sandbox = Some(reply.sandbox);
        done.report.outcome = Some(reply.outcome);
        done.report.exit = Some(reply.exit);
        done.report.usage = reply.usage;
        if !succeeded(&done.report) {
            done.report.output = tail(&reply.stdout, &reply.stderr);
        }
        done
    }

    fn measured(&mut self, measured: Measured) {
        self.report.files_changed = measured.files;
        self.report.lines_changed = measured.lines;
        self.changed = measured.changed;
    }
}

fn succeeded(report: &AttemptReport) -> bool {
    report.outcome == Some(Outcome::Exited) && report.exit == Some(0)
}

/// What the score command says about a sandbox: the number on its last line.
pub fn score(checking: &Checking<'_>, judging: &Judging) -> Result<Option<f64>> {
    let Some(command) = &judging.score else { return Ok(None) };
    let reply = checking.shell(command, None, Part::Score)?;
    if reply.outcome != Outcome::Exited || reply.exit != 0 {
        return Err(Error::invalid(format!("no score: the command returned {}", reply.exit)));
    }
    let last = reply.stdout.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("").trim();
    let number = last.parse::<f64>().ok().filter(|score| score.is_finite());
    number.map(Some).ok_or_else(|| {
        let last: String = last.escape_debug().take(60).collect();
        Error::invalid(format!("no score: the last line is `{last}`, not a number"))
    })
}
