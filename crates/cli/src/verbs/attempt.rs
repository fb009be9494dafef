use crate::board::{self, live};
use crate::bounds::{Bounds, check, count, duration, small_count};
use crate::failure::Failure;
use crate::inside::Inside;
use crate::promotion;
use crate::session::{Session, unexpected};
use crate::verbs::knowledge;
use fractal::model::{Attempt, Check, Promote, PromoteReply, RankBy, Try as Asked, TryReply};
use fractal::{Action, Caller, Code, Engine, Error, Reply, Signals};
use serde::Serialize;
use std::sync::atomic::{AtomicI32, Ordering};

/// Try several ways at once, check them, and rank them
///
/// Every attempt runs in its own fork of this machine. Those whose command
/// exits with 0 go through the checks, each in a throw-away child; who fails
/// a required one is ruled out. The others are compared in pairs: checks
/// passed, score, agreement with the others, lines and files changed, time,
/// memory. The table says who wins and why. Reality stays as it was, and every
/// attempt stays as a sandbox until it is dropped or expires.
///
/// Attempts are `--each CMD` (repeatable), or `-n N -- CMD` (the same command
/// N times, which can tell itself apart by FRACTAL_ATTEMPT and
/// FRACTAL_ATTEMPT_NAME), or [[attempt]] in fractal.toml. Checks are `--check`
/// or [[check]].
///
/// An interrupt (Ctrl-C) stops them in order: the journal tells of it, and the
/// attempts that had begun are kept as far as they came.
///
/// Exit status: 0 when there is a winner, 3 when none passes; with `--promote`
/// that of the promotion; 130 when interrupted.
#[derive(clap::Args)]
#[command(
    override_usage = "fractal try [OPTIONS] --each CMD...\n       fractal try [OPTIONS] -n N -- CMD..."
)]
pub struct Try {
    /// A way to try, as a shell command; `NAME=CMD`, NAME in lower case, names it (repeatable)
    #[arg(long, value_name = "CMD", conflicts_with_all = ["count", "command"])]
    each: Vec<String>,
    /// Try the command so many times
    #[arg(short = 'n', long, value_name = "N", value_parser = count, requires = "command")]
    count: Option<u64>,
    #[command(flatten)]
    judging: Judging,
    /// Cancel the rest when one passes
    #[arg(long)]
    stop_first: bool,
    /// Time for everything together, as in 10m
    #[arg(long, env = "FRACTAL_BUDGET", value_name = "DURATION", value_parser = duration, hide_env_values = true)]
    budget: Option<u64>,
    /// Attempts at once [default: as many as there are cores, and fit into memory]
    #[arg(short, long, env = "FRACTAL_JOBS", value_name = "N", value_parser = small_count, hide_env_values = true)]
    jobs: Option<u32>,
    /// Promote the winner, if there is one
    #[arg(long)]
    promote: bool,
    /// Say first what is known of these commands: what failed and what helped
    #[arg(long)]
    known: bool,
    #[command(flatten)]
    inside: Inside,
    /// The command of `-n`
    #[arg(last = true, value_name = "CMD", requires = "count")]
    command: Vec<String>,
    #[command(flatten)]
    bounds: Bounds,
}

/// How attempts are judged.
#[derive(clap::Args)]
pub struct Judging {
    /// A check that must pass, instead of those in fractal.toml (repeatable)
    #[arg(long, value_name = "NAME=CMD", value_parser = check)]
    pub check: Vec<Check>,
    /// A command whose last line is a number; higher is better
    #[arg(long, value_name = "CMD")]
    pub score: Option<String>,
    /// Run each check so often; one that changes its mind is flaky
    #[arg(long, value_name = "N", value_parser = small_count)]
    pub repeat: Option<u32>,
    /// copeland, weighted, lexicographic, or a command that reads JSON and prints names, best first
    #[arg(long, value_name = "METHOD", value_parser = RankBy::parse)]
    pub rank: Option<RankBy>,
}

/// The answer with what became of the winner.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    reply: &'a TryReply,
    #[serde(skip_serializing_if = "Option::is_none")]
    promotion: Option<Promotion<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Promotion<'a> {
    Done(&'a PromoteReply),
    Refused { error: &'a Error },
}

impl Try {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let (promote, known) = (self.promote, self.known);
        let asked = self.asked(session)?;
        let (engine, caller) = (session.engine()?, session.caller()?);
        if known {
            let words = asked.attempts.iter().flat_map(|one| one.command.clone());
            let checks = asked.checks.iter().map(|check| check.command.clone());
            knowledge::known(session, &engine, &caller, words.chain(checks));
        }
        let manner = live::Manner::fitting(session.is_quiet() || session.json);
        let board = live::Board::new(manner);
        let interrupt = Interrupt::take();
        let reply = board.during(|| {
            engine.try_with(&caller, asked, &|progress| board.tell(progress), &|| interrupt.came())
        })?;
        if let Some(status) = interrupt.status(&reply) {
            return interrupted(session, &reply, status);
        }
        let promoted = match board::winner(&reply).and_then(|best| best.sandbox.clone()) {
            Some(sandbox) if promote => Some(promote_winner(&engine, &caller, sandbox)),
            _ => None,
        };
        match session.json {
            true => json(session, &reply, promoted),
            false => tell(session, &reply, promoted),
        }
    }

    fn asked(self, session: &Session) -> Result<Asked, Error> {
        Ok(Asked {
            base: self.inside.base,
            run: self.inside.run(&self.bounds, session)?,
            attempts: attempts(&self.each, self.count, &self.command),
            checks: self.judging.check,
            score: self.judging.score,
            rank: self.judging.rank,
            repeat: self.judging.repeat,
            stop_first: self.stop_first,
            budget_ms: self.budget,
            jobs: self.jobs,
            ..Asked::default()
        })
    }
}

/// Signals that end a `try` in order, instead of killing it: attempts are
/// stopped, what they did so far is kept, and the journal has the story.
struct Interrupt {
    signals: Option<Signals>,
    came: AtomicI32,
}

impl Interrupt {
    fn take() -> Interrupt {
        Interrupt { signals: Signals::take(), came: AtomicI32::new(0) }
    }

    fn came(&self) -> bool {
        if let Some(signal) = self.signals.as_ref().and_then(Signals::ending) {
            self.came.store(signal, Ordering::Relaxed);
        }
        self.came.load(Ordering::Relaxed) != 0
    }

    /// The exit status of somebody who was interrupted, as a shell would show
    /// it. Whoever was not is killed by signals again from here on.
    fn status(self, reply: &TryReply) -> Option<u8> {
        let signal = self.came.load(Ordering::Relaxed);
        self.signals.into_iter().for_each(Signals::give_back);
        reply.interrupted.then_some((128 + signal) as u8)
    }
}

/// What there is of a `try` that was ended early.
fn interrupted(session: &Session, reply: &TryReply, status: u8) -> Result<u8, Failure> {
    if session.json {
        session.print_json(reply)?;
        return Ok(status);
    }
    session.print(&board::text(reply))?;
    board::remarks(reply).iter().for_each(|line| session.note(line));
    let kept: Vec<&str> =
        reply.attempts.iter().filter_map(|attempt| attempt.sandbox.as_deref()).collect();
    if !kept.is_empty() {
        session.note(&format!("kept: {} (fractal drop {})", kept.join(", "), kept.join(" ")));
    }
    Ok(status)
}

fn promote_winner(
    engine: &Engine,
    caller: &Caller,
    sandbox: String,
) -> Result<PromoteReply, Failure> {
    let asked = Promote { sandbox: Some(sandbox), ..Promote::default() };
    match engine.apply(caller, Action::Promote(Box::new(asked)))? {
        Reply::Promote(reply) => Ok(*reply),
        _ => Err(unexpected()),
    }
}

fn json(
    session: &Session,
    reply: &TryReply,
    promoted: Option<Result<PromoteReply, Failure>>,
) -> Result<u8, Failure> {
    let (promotion, status) = match &promoted {
        None => (None, status(reply)),
        Some(Ok(done)) => (Some(Promotion::Done(done)), promotion::status(done)),
        Some(Err(Failure::Error(error))) => {
            (Some(Promotion::Refused { error }), error.code.exit_status())
        }
        Some(Err(Failure::BrokenPipe)) => return Err(Failure::BrokenPipe),
    };
    session.print_json(&Answer { reply, promotion })?;
    Ok(status)
}

fn tell(
    session: &Session,
    reply: &TryReply,
    promoted: Option<Result<PromoteReply, Failure>>,
) -> Result<u8, Failure> {
    session.print(&board::text(reply))?;
    board::remarks(reply).iter().for_each(|line| session.note(line));
    knowledge::recorded(session, &reply.recorded);
    if reply.winner.is_none() {
        session.note("none passes; reality is as it was");
    }
    match promoted {
        None => {
            board::next(reply).iter().for_each(|line| session.note(line));
            Ok(status(reply))
        }
        Some(done) => {
            let done = done?;
            promotion::tell(session, &done)?;
            Ok(promotion::status(&done))
        }
    }
}

/// 0 when there is a winner.
pub fn status(reply: &TryReply) -> u8 {
    if reply.winner.is_some() { 0 } else { Code::Gate.exit_status() }
}

/// The attempts that were typed; none leaves it to fractal.toml.
fn attempts(each: &[String], count: Option<u64>, command: &[String]) -> Vec<Attempt> {
    let numbered = |number: u64| format!("a{number}");
    if let Some(count) = count {
        let attempt = |number| Attempt { name: numbered(number), command: command.to_vec() };
        // The engine says how many are too many; not all need to be made for it.
        return (1..=count.min(10_000)).map(attempt).collect();
    }
    let one = |(index, text): (usize, &String)| {
        let (name, command) = named(text);
        let name = name.map_or_else(|| numbered(index as u64 + 1), str::to_owned);
        Attempt { name, command: ["sh", "-c", command].map(str::to_owned).into() }
    };
    each.iter().enumerate().map(one).collect()
}

/// `NAME=CMD`. A shell reads `X=1 cmd` as a variable; those are written in
/// capitals, and names here are not.
fn named(text: &str) -> (Option<&str>, &str) {
    let is_name = |name: &str| {
        let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        let allowed =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        starts_well && name.chars().all(allowed)
    };
    match text.split_once('=') {
        Some((name, command)) if is_name(name) && !command.trim().is_empty() => {
            (Some(name), command)
        }
        _ => (None, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_variables() {
        let check = |text: &str, name: Option<&str>, command: &str| {
            assert_eq!(named(text), (name, command), "{text}");
        };
        check("small=git apply a.patch", Some("small"), "git apply a.patch");
        check("v1.2-rc=make X=1", Some("v1.2-rc"), "make X=1");
        check("CFLAGS=-O2 make", None, "CFLAGS=-O2 make");
        check("make X=1", None, "make X=1");
        check("my_var=1 make", None, "my_var=1 make");
        check("a=", None, "a=");
    }

    #[test]
    fn attempts_without_names_are_numbered() {
        let names = |list: Vec<Attempt>| list.into_iter().map(|a| a.name).collect::<Vec<_>>();
        assert_eq!(names(attempts(&["x".into(), "b=y".into()], None, &[])), ["a1", "b"]);
        assert_eq!(names(attempts(&[], Some(2), &["x".into()])), ["a1", "a2"]);
        assert!(attempts(&[], None, &[]).is_empty());
    }
}
