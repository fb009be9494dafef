//! `try`: several ways side by side, checked, compared and ranked.
//!
//! Each attempt is an ordinary run in a fork of reality and leaves an ordinary
//! sandbox; `plan` decides, `work` carries out one attempt, `side_by_side`
//! lets several of them go at once, and this file puts them in order at the
//! end. One attempt's
//! failure is its own.

pub mod measure;
pub mod plan;
mod side_by_side;
pub mod work;

use super::promote::judged;
use crate::budget::Budget;
use crate::{Caller, Engine, RunIo, record, stale};
use fractal_jail::Input;
use fractal_model::rank::{self, Changed, Evidence, Order, Ranking};
use fractal_model::{
    AttemptReport, BaseKind, BaseReport, Error, Id, Part, RankBy, RecordBody, Result, Run, Try,
    TryReply,
};
use fractal_store::{Reads, SandboxRow, new_id, now_ms};
use plan::Plan;
use serde_json::json;
use std::time::Duration;
use work::{BaseChecks, Work};

/// What happens while attempts run.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// An attempt's command has begun.
    Running {
        /// The attempt.
        name: &'a str,
    },
    /// A check of it has begun.
    Checking {
        /// The attempt.
        name: &'a str,
        /// The check.
        check: &'a str,
    },
    /// It is over; its rank is not known yet.
    Finished(&'a AttemptReport),
    /// The checks look at the untouched base.
    Base,
}

/// Who wants to know. Called from several threads.
pub type Watch<'a> = &'a (dyn Fn(Progress<'_>) + Sync);

/// Asked again and again whether everything is to end now.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// An attempt that is over.
pub struct Done {
    pub report: AttemptReport,
    pub changed: Changed,
    pub notes: Vec<String>,
    /// Why it could not be started.
    pub error: Option<Error>,
}

pub fn try_all(
    engine: &Engine,
    caller: &Caller,
    asked: Try,
    watch: Watch<'_>,
    stop: Stop<'_>,
) -> Result<TryReply> {
    let plan = Plan::new(engine, caller, asked)?;
    let began = unjudged(caller, &plan);
    // Should we die, the next command knows that nobody judged them.
    let mut lost = began.clone();
    lost.detail["outcome"] = json!("lost");
    let begun = engine.store.begin(new_id(), lost)?;
    let homes: Vec<String> = plan.attempts.iter().map(|one| one.sandbox.clone()).collect();
    let done = carry_out(engine, caller, plan, begun.id(), watch, stop);
    done.inspect_err(|error| {
        let home = caller.reach.home();
        let is_kept = |name: &String| matches!(engine.store.sandbox_named(home, name), Ok(Some(_)));
        if homes.iter().any(is_kept) {
            let body = RecordBody { time_ms: now_ms(), error: Some(error.code), ..began };
            let _ = engine.store.transact(|tx| tx.append(body));
        }
    })
}

/// What the journal says of attempts that came to no verdict.
fn unjudged(caller: &Caller, plan: &Plan) -> RecordBody {
    let names = plan.attempts.iter().map(|one| (one.name.as_str(), one.sandbox.as_str()));
    let mut body = record(caller, "try", None);
    body.detail = judged::unjudged(names, Some(&plan.base_name), &plan.judging.checks);
    body
}

fn carry_out(
    engine: &Engine,
    caller: &Caller,
    mut plan: Plan,
    begun: Id,
    watch: Watch<'_>,
    stop: Stop<'_>,
) -> Result<TryReply> {
    let budget = Budget::of_ms(plan.budget_ms);
    let base_budget = budget.beside();
    let work = Work {
        engine,
        caller,
        plan: &plan,
        budget: &budget,
        base_budget: &base_budget,
        watch,
        stop,
    };
    if plan.run.base == BaseKind::Frozen {
        work.make_base()?;
    }
    let (mut done, checks) = side_by_side::carry_out(&work);
    let left = work.drop_base().err();
    if let Some(error) = all_refused(&mut done) {
        return Err(error);
    }
    if budget.is_interrupted() {
        // Whoever wants to leave does not wait for a command.
        plan.judging.ranking.by = RankBy::default();
    }
    let order = in_order(engine, caller, &plan.judging.ranking, &done)
        .map_err(|error| still_there(error, &done))?;
    let mut reply = answer(done, order, checks);
    let named =
        |report: &AttemptReport| Some((report.name.clone(), row_of(engine, caller, report)?));
    let rows: Vec<_> = reply.attempts.iter().filter_map(named).collect();
    // Not knowing leaves them called clashes, which they may be.
    let _ = measure::find_joins(engine, &rows, &mut reply.overlap);
    reply.base.kind = plan.run.base;
    reply.base.behind = behind(engine, caller, &reply);
    reply.notes.extend(left.map(|error| format!("{} is still there: {error}", plan.base_name)));
    if budget.is_interrupted() {
        reply.interrupted = true;
        // Not everybody had the chance.
        reply.winner = None;
        reply.notes.push("interrupted: whoever had not ended was stopped".to_owned());
    } else if budget.is_spent() {
        reply.notes.push("the budget was used up".to_owned());
    }
    if plan.judging.checks.is_empty() {
        reply.notes.push("no checks: whoever exits 0 passes (--check NAME='CMD')".to_owned());
    }
    write_down(engine, caller, &plan, begun, &reply)?;
    Ok(reply)
}

/// The first error, when not a single attempt could be started: then nothing
/// has happened, and it is the request that was wrong.
fn all_refused(done: &mut [Done]) -> Option<Error> {
    let refused = done.iter().all(|one| one.error.is_some());
    if refused { done.first_mut()?.error.take() } else { None }
}

/// Puts evidence in order, with a command's help if one was named.
pub fn in_order(
    engine: &Engine,
    caller: &Caller,
    ranking: &Ranking,
    done: &[Done],
) -> Result<Order> {
    let evidence: Vec<Evidence<'_>> =
        done.iter().map(|one| Evidence { report: &one.report, changed: &one.changed }).collect();
    let RankBy::Command(command) = &ranking.by else { return Ok(rank::rank(&evidence, ranking)) };
    let passing: Vec<&AttemptReport> =
        done.iter().map(|one| &one.report).filter(|r| rank::ruled_out(r).is_none()).collect();
    if passing.is_empty() {
        return Ok(rank::rank(&evidence, ranking));
    }
    let text = json!({ "attempts": passing }).to_string();
    let run = Run {
        command: ["sh", "-c", command].map(str::to_owned).into(),
        discard: true,
        part: Part::Rank,
        ..Run::default()
    };
    let io = RunIo::capturing(Input::Bytes(text.into_bytes()));
    let reply = super::run::run(engine, caller, run, io)?;
    if reply.exit != 0 {
        let last = reply.stderr.lines().last().unwrap_or_default().to_owned();
        let what = format!("the rank command returned {}: {last}", reply.exit);
        return Err(Error::invalid(what.trim_end_matches([':', ' ']).to_owned())
            .hint("it gets JSON on its input and prints the attempts' names, best first"));
    }
    rank::rank_as_said(&evidence, ranking, &reply.stdout)
}

/// An order that could not be found does not undo the attempts.
fn still_there(error: Error, done: &[Done]) -> Error {
    let names = done.iter().filter_map(|one| one.report.sandbox.as_deref());
    let names = names.collect::<Vec<_>>().join(" ");
    let hint = error.hint.clone().map(|hint| format!("{hint}; ")).unwrap_or_default();
    error.hint(format!("{hint}the attempts are kept: `fractal compare {names}`"))
}

/// The reply, best first.
pub fn answer(mut done: Vec<Done>, order: Order, base: Result<BaseChecks>) -> TryReply {
    for (one, (rank, why)) in done.iter_mut().zip(order.ranks.iter().zip(order.whys)) {
        (one.report.rank, one.report.why) = (*rank, why);
    }
    let winner = order.winner.map(|at| done[at].report.name.clone());
    let overlap = {
        let kept = done.iter().filter(|one| one.report.sandbox.is_some());
        measure::overlap(
            &kept.map(|one| (one.report.name.as_str(), &one.changed)).collect::<Vec<_>>(),
        )
    };
    let mut notes: Vec<String> = done.iter().flat_map(|one| one.notes.clone()).collect();
    notes.extend(order.notes);
    let base = base.unwrap_or_else(|error| {
        notes.push(format!("the untouched base could not be checked: {error}"));
        BaseChecks::default()
    });
    let mut reports: Vec<Option<AttemptReport>> =
        done.into_iter().map(|one| Some(one.report)).collect();
    let attempts: Vec<AttemptReport> =
        rank::table_order(&order.ranks).iter().filter_map(|at| reports[*at].take()).collect();
    notes.extend(rank::suspects(&attempts, &base.checks));
    TryReply {
        attempts,
        winner,
        base: BaseReport {
            checks: base.checks,
            not_run: base.not_run.map(str::to_owned),
            ..BaseReport::default()
        },
        interrupted: false,
        notes,
        overlap,
        recorded: Vec::new(),
    }
}

/// The sandbox of an attempt.
fn row_of(engine: &Engine, caller: &Caller, report: &AttemptReport) -> Option<SandboxRow> {
    engine.find(caller, Some(report.sandbox.as_deref()?)).ok()
}

/// How long a large project is searched for edits outside: whoever waits for
/// an answer would rather have it than the exact number.
const LOOK: Duration = Duration::from_millis(500);

/// Files that changed outside since the forks.
fn behind(engine: &Engine, caller: &Caller, reply: &TryReply) -> u64 {
    let mut rows = reply.attempts.iter().filter_map(|one| row_of(engine, caller, one));
    let stale = rows.next().and_then(|row| stale::watch(engine, &row).within(LOOK));
    stale.map_or(0, |stale| stale.changed.len() as u64)
}

/// One record for all, on the winner if there is one; and the winner becomes
/// the latest sandbox of the directory, which verbs without a name mean.
fn write_down(
    engine: &Engine,
    caller: &Caller,
    plan: &Plan,
    begun: Id,
    reply: &TryReply,
) -> Result<()> {
    let best = reply.attempts.first().filter(|_| reply.winner.is_some());
    let winner = best.and_then(|report| row_of(engine, caller, report));
    let mut body = record(caller, "try", winner.as_ref());
    let attempt = |one: &AttemptReport| json!({ "name": one.name, "sandbox": one.sandbox, "exit": one.exit, "rank": one.rank, "why": one.why });
    let checks: Vec<&str> = plan.judging.checks.iter().map(|check| check.name.as_str()).collect();
    body.detail = json!({
        "attempts": reply.attempts.iter().map(attempt).collect::<Vec<_>>(),
        "winner": reply.winner, "checks": checks, "gate": plan.judging.checks, "rank": plan.judging.ranking.by.to_string(),
        "begun": begun,
    });
    if reply.interrupted {
        body.detail["interrupted"] = json!(true);
    }
    engine.store.transact(|tx| {
        if let Some(row) = &winner {
            tx.touch_sandbox(row.id, now_ms())?;
        }
        tx.append(body)
    })?;
    Ok(())
}
