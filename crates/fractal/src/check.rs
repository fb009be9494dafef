//! Checks: runs that say whether something holds.
//!
//! Every run of a check happens in a throw-away child of the sandbox, under
//! the sandbox's own policy: no check sees what another one wrote, and the
//! sandbox is left as it was. A check that could not say anything (its command
//! is missing, a limit or a signal ended it, it could not be started) is an
//! `error` and never a `fail`: nobody should go looking for a defect in what
//! was checked.

use crate::budget::Budget;
use crate::verbs::run::{self, place};
use crate::{Caller, Engine, RunIo};
use fractal_model::{
    Check, CheckReport, CheckResult, Code, Error, Limits, Outcome, Part, Policy, Result, Run,
    RunReply,
};
use fractal_store::SandboxRow;
use std::path::{Component, Path};
use std::time::Instant;

/// Bytes of output that stand in a report.
const TAIL_BYTES: usize = 4096;

/// Exit status of a check that could not be started, as for the command line.
const NOT_STARTED: i32 = 125;

/// Runs checks one after the other, each `repeat` times, and says what each
/// came to. An error is for a sandbox that cannot be found.
pub fn run_checks(
    engine: &Engine,
    caller: &Caller,
    sandbox: &str,
    checks: &[Check],
    repeat: u32,
) -> Result<Vec<CheckReport>> {
    let budget = Budget::default();
    let checking = Checking::new(engine, caller, sandbox, &budget)?.repeating(repeat);
    Ok(checks.iter().map(|check| checking.report(check)).collect())
}

/// A sandbox about to be checked.
pub struct Checking<'a> {
    engine: &'a Engine,
    caller: Caller,
    row: SandboxRow,
    budget: &'a Budget,
    repeat: u32,
    /// Variables and directory of every run.
    like: Run,
}

impl<'a> Checking<'a> {
    /// Checks run where the sandbox's commands do, wherever the caller is, but
    /// for those that have a directory of their own.
    pub fn new(
        engine: &'a Engine,
        caller: &Caller,
        sandbox: &str,
        budget: &'a Budget,
    ) -> Result<Checking<'a>> {
        let row = engine.find(caller, Some(sandbox))?;
        let caller = caller.for_steps_in(&row);
        Ok(Checking { engine, caller, row, budget, repeat: 1, like: Run::default() })
    }

    /// The same, each check so many times.
    pub fn repeating(self, repeat: u32) -> Self {
        Checking { repeat: repeat.max(1), ..self }
    }

    /// The same, with the variables and the directory of another run.
    pub fn like(self, like: &Run) -> Self {
        let like = Run { env: like.env.clone(), cwd: like.cwd.clone(), ..Run::default() };
        Checking { like, ..self }
    }

    /// One check, repeated until it contradicts itself.
    pub fn report(&self, check: &Check) -> CheckReport {
        let start = Instant::now();
        let mut said: Vec<Said> = Vec::new();
        for _ in 0..self.repeat {
            let part = Part::Check(check.name.clone());
            let directory = check.directory.as_deref();
            said.push(self.said(self.shell_in(directory, &check.command, check.time_ms, part)));
            if said.iter().any(|other| other.result != said[0].result) {
                break;
            }
        }
        let wall_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        summary(check, said, wall_ms)
    }

    /// What a run came to, which the end of the budget may have cut short.
    fn said(&self, ran: Result<RunReply>) -> Said {
        let is_cut = ran
            .as_ref()
            .is_ok_and(|reply| matches!(reply.outcome, Outcome::Timeout | Outcome::Signalled));
        let said = Said::of(ran);
        match self.budget.refusal() {
            Some(why) if is_cut => Said { why: Some(format!("stopped: {why}")), ..said },
            _ => said,
        }
    }

    /// Runs a shell command in a throw-away child, within its own time limit
    /// (or the usual one) and what is left of the budget.
    pub fn shell(&self, command: &str, time_ms: Option<u64>, part: Part) -> Result<RunReply> {
        self.shell_in(None, command, time_ms, part)
    }

    /// The same in a directory, given from the sandbox's own.
    fn shell_in(
        &self,
        directory: Option<&str>,
        command: &str,
        time_ms: Option<u64>,
        part: Part,
    ) -> Result<RunReply> {
        if let Some(why) = self.budget.refusal() {
            return Err(Error::new(Code::Timeout, why));
        }
        let own = place::time_ms(&self.caller, &self.row.policy, &self.row.template, time_ms)?;
        let limits = Limits {
            time_ms: own.into_iter().chain(self.budget.left_ms()).min(),
            ..Limits::default()
        };
        let run = Run {
            command: ["sh", "-c", command].map(str::to_owned).into(),
            sandbox: Some(self.row.id.to_string()),
            discard: true,
            part,
            ask: Policy { limits, ..Policy::default() },
            cwd: directory.map(|way| self.place(way)).or(self.like.cwd.clone()),
            ..self.like.clone()
        };
        run::run(self.engine, &self.caller, run, RunIo::captured())
    }

    /// A directory by its way from the sandbox's own, without `.` and `..`.
    fn place(&self, way: &str) -> String {
        let mut place = self.row.directory.clone();
        for part in Path::new(way).components() {
            match part {
                Component::ParentDir => drop(place.pop()),
                Component::CurDir => {}
                other => place.push(other),
            }
        }
        // A name that is no text is found on the way there.
        place.into_os_string().into_string().unwrap_or_else(|_| way.to_owned())
    }
}

/// What one run of a check came to.
struct Said {
    result: CheckResult,
    exit: i32,
    why: Option<String>,
    output: String,
}

impl Said {
    fn of(ran: Result<RunReply>) -> Said {
        match ran {
            Ok(reply) => {
                let (result, why) = judge(&reply);
                let output = tail(&reply.stdout, &reply.stderr);
                Said { result, exit: reply.exit, why, output }
            }
            Err(error) => Said {
                result: CheckResult::Error,
                exit: NOT_STARTED,
                why: Some(match error.code {
                    Code::Timeout => format!("not run: {error}"),
                    _ => format!("could not be run: {error}"),
                }),
                output: String::new(),
            },
        }
    }
}

/// What a run says about what it was to check.
fn judge(reply: &RunReply) -> (CheckResult, Option<String>) {
    let stopped = |limit: &str| Some(format!("stopped at its {limit} limit"));
    let (result, why) = match (reply.outcome, reply.exit) {
        (Outcome::Exited, 0) => (CheckResult::Pass, None),
        (Outcome::Exited, 127) => (CheckResult::Error, Some(missing("not found", reply))),
        (Outcome::Exited, 126) => (CheckResult::Error, Some(missing("not executable", reply))),
        (Outcome::Exited, exit) => (CheckResult::Fail, Some(format!("exit {exit}"))),
        (Outcome::Signalled, exit) => {
            (CheckResult::Error, Some(format!("ended by signal {}", exit - 128)))
        }
        (Outcome::Timeout, _) => (CheckResult::Error, stopped("time")),
        (Outcome::Memory, _) => (CheckResult::Error, stopped("memory")),
        (Outcome::Disk, _) => (CheckResult::Error, stopped("disk")),
        (Outcome::Output, _) => (CheckResult::Error, stopped("output")),
    };
    (result, why)
}

/// A command that is not there, in the shell's own words if it has some.
fn missing(what: &str, reply: &RunReply) -> String {
    let exit = reply.exit;
    match reply.stderr.lines().rfind(|line| !line.trim().is_empty()) {
        Some(line) => format!("a command is {what} (exit {exit}): {}", line.trim()),
        None => format!("a command is {what} (exit {exit})"),
    }
}

/// Puts the runs of one check together; at least one was made.
fn summary(check: &Check, mut said: Vec<Said>, wall_ms: u64) -> CheckReport {
    let count = said.len();
    let passed = said.iter().filter(|one| one.result == CheckResult::Pass).count();
    let flaky = said.iter().any(|one| one.result != said[0].result);
    let (first, last) = (said[0].result.name(), said[count - 1].result.name());
    // The run to show is one that did not pass.
    let at = said.iter().rposition(|one| one.result != CheckResult::Pass).unwrap_or(count - 1);
    let shown = said.swap_remove(at);
    let (result, why) = match (flaky, passed) {
        (true, _) => {
            (CheckResult::Flaky, Some(format!("{first}, then {last}, in {count} equal runs")))
        }
        (false, 0) if count > 1 => {
            (shown.result, shown.why.map(|why| format!("{why}, {count} times")))
        }
        (false, _) => (shown.result, shown.why),
    };
    CheckReport {
        name: check.name.clone(),
        result,
        required: check.required,
        exit: shown.exit,
        why,
        output: if result == CheckResult::Pass { String::new() } else { shown.output },
        wall_ms,
    }
}

/// The end of both streams, one after the other. Each has a right to half of
/// the room: neither a chatty build nor a long report hides the other.
pub fn tail(stdout: &str, stderr: &str) -> String {
    tail_within(stdout, stderr, TAIL_BYTES)
}

fn tail_within(stdout: &str, stderr: &str, bytes_max: usize) -> String {
    let half = bytes_max / 2;
    let room = |own: &str, other: &str| {
        bytes_max - other.len().min(half.max(bytes_max.saturating_sub(own.len())))
    };
    let mut text = end(stdout, room(stdout, stderr)).to_owned();
    if !text.is_empty() && !text.ends_with('\n') && !stderr.is_empty() {
        text.push('\n');
    }
    text.push_str(end(stderr, room(stderr, stdout)));
    text
}

/// The last bytes of a text, from a whole character on, and from the start of
/// a line if there is one.
fn end(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let mut from = text.len() - bytes_max;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let cut = &text[from..];
    cut.split_once('\n').map_or(cut, |(_, rest)| if rest.is_empty() { cut } else { rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(results: &[CheckResult]) -> Vec<Said> {
        let one = |result: &CheckResult| Said {
            result: *result,
            exit: if *result == CheckResult::Pass { 0 } else { 1 },
            why: (*result != CheckResult::Pass).then(|| "exit 1".to_owned()),
            output: "text".to_owned(),
        };
        results.iter().map(one).collect()
    }

    #[test]
    fn what_repeats_say_together() {
        use CheckResult::{Error, Fail, Flaky, Pass};
        let check = |results: &[CheckResult], result: CheckResult, why: Option<&str>| {
            let report = summary(&Check::default(), said(results), 1);
            assert_eq!((report.result, report.why.as_deref()), (result, why));
            assert_eq!(report.output.is_empty(), result == Pass);
        };
        check(&[Pass], Pass, None);
        check(&[Pass, Pass], Pass, None);
        check(&[Fail], Fail, Some("exit 1"));
        check(&[Fail, Fail], Fail, Some("exit 1, 2 times"));
        check(&[Pass, Fail], Flaky, Some("pass, then fail, in 2 equal runs"));
        check(&[Error, Error, Pass], Flaky, Some("error, then pass, in 3 equal runs"));
    }

    #[test]
    fn tails_are_bounded_and_fair() {
        assert_eq!(tail_within("out\n", "err\n", 100), "out\nerr\n");
        assert_eq!(tail_within("out", "err", 100), "out\nerr");
        let (long, short) = ("x\n".repeat(100), "y\n".repeat(10));
        let text = tail_within(&long, &short, 50);
        assert!(text.len() <= 50 && text.ends_with(&short) && text.starts_with("x\n"), "{text:?}");
        let text = tail_within(&long, &long, 50);
        assert!(text.len() <= 50, "{text:?}");
        assert_eq!(tail_within("", &long, 4), "x\n");
        assert_eq!(end("ää", 3), "ä");
    }
}
