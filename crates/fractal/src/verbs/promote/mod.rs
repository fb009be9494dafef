//! `promote`: bring a sandbox's changes into its parent.
//!
//! The order never varies: choose what travels, weigh every path against what
//! the parent holds now, refuse what runs by itself, let the gate's checks
//! judge the result in a rehearsal, and only then write. Whatever stops it
//! stops it before anything changed, and is written down.

pub mod choose;
mod evidence;
mod git;
mod ignore;
mod inner;
pub mod judged;
mod links;
pub mod plan;
mod reality;
pub mod rehearse;
mod sandbox;
pub mod stage;
pub mod weigh;

pub use git::contains;
pub use weigh::Wish;

use crate::stages::is_stage;
use crate::{Caller, Engine, record};
use fractal_model::{
    CheckReport, Code, Error, Id, Promote, PromoteReply, RecordBody, Result, Scope, Verdict,
};
use fractal_store::{LayerHold, Reads, SandboxRow};
use judged::{refuse_ruled_out, tried};
use plan::Plan;
use serde_json::json;
use std::time::{Duration, Instant};

/// The sandbox without a parent.
const REALITY: &str = "reality";

pub fn promote(engine: &Engine, caller: &Caller, asked: &Promote) -> Result<PromoteReply> {
    if asked.outside {
        engine.refuse_host_path(caller, "promote")?;
    }
    if asked.sandbox.is_none() {
        refuse_ruled_out(engine, caller)?;
    }
    // What was found to be within reach is what is written, whatever is dropped
    // or made anew meanwhile.
    if let Some((row, parent)) = below(engine, caller, asked)?
        && !is_stage(&parent)
    {
        engine.require_idle(&row, "promote")?;
        return sandbox::promote(engine, caller, &row, &parent, asked);
    }
    if let Some(reply) = stage::promote(engine, caller, asked)? {
        return Ok(reply);
    }
    let row = engine.find(caller, asked.sandbox.as_deref())?;
    engine.require_idle(&row, "promote")?;
    match target(engine, &row, asked.to.as_deref())? {
        None => reality::promote(engine, caller, &row, asked),
        Some(parent) => sandbox::promote(engine, caller, &row, &parent, asked),
    }
}

/// A key for one sandbox promotes forks of it into it, and nothing further:
/// gives what goes where.
fn below(
    engine: &Engine,
    caller: &Caller,
    asked: &Promote,
) -> Result<Option<(SandboxRow, SandboxRow)>> {
    if !matches!(caller.reach.scope, Scope::Sandbox(_)) {
        return Ok(None);
    }
    let row = engine.find(caller, asked.sandbox.as_deref())?;
    let parent = row.parent.map_or(Ok(None), |parent| engine.store.sandbox(parent))?;
    engine.require_target_within(caller, parent.as_ref())?;
    if let (Some(to), Some(parent)) = (asked.to.as_deref(), &parent) {
        // A parent may have been given that name on purpose.
        if to != parent.name || to == REALITY {
            engine.require_target_within(caller, None)?;
        }
    }
    Ok(parent.map(|parent| (row, parent)))
}

/// Where it goes; `None` is reality.
fn target(engine: &Engine, row: &SandboxRow, to: Option<&str>) -> Result<Option<SandboxRow>> {
    let parent = row.parent.map_or(Ok(None), |parent| engine.store.sandbox(parent))?;
    match to {
        None => Ok(parent),
        Some(REALITY) => Ok(None),
        Some(name) => match parent {
            Some(parent) if parent.name == name => Ok(Some(parent)),
            _ => Err(Error::not_found(format!(
                "`{name}` is neither `reality` nor the parent of `{}`",
                row.name
            ))
            .hint(format!("`fractal show {}` names its parent", row.name))),
        },
    }
}

/// Keeps others from running in the sandbox. A run that has just ended may
/// still be on its way out.
fn hold(engine: &Engine, row: &SandboxRow) -> Result<LayerHold> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let start = Instant::now();
    loop {
        if let Some(hold) = engine.store.hold_layer(row.top, true)? {
            return Ok(hold);
        }
        if start.elapsed() > PATIENCE {
            return Err(crate::living::busy(row, "something else starts, ends or is sealed in it"));
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// How far a promotion came.
struct Progress<'a> {
    row: &'a SandboxRow,
    stage: &'a str,
    plan: &'a Plan,
    checks: Vec<CheckReport>,
    notes: Vec<String>,
    /// The attempt that would have been promoted without a person's word.
    overruled: Option<String>,
}

impl Progress<'_> {
    fn reply(self, verdict: Verdict, undo: Option<Id>, made: Option<String>) -> PromoteReply {
        PromoteReply {
            sandbox: Some(self.row.name.clone()),
            stage: self.stage.to_owned(),
            verdict,
            applied: match verdict {
                Verdict::Applied | Verdict::Made | Verdict::Planned => self.plan.applied(),
                _ => Vec::new(),
            },
            conflicts: self.plan.conflicts.clone(),
            undo,
            checks: self.checks,
            left_out: self.plan.chosen.left_out(),
            autorun: self.plan.autorun.clone(),
            made,
            notes: self.notes,
            recorded: None,
        }
    }

    /// The journal's words for it.
    fn record(&self, caller: &Caller) -> RecordBody {
        let mut body = record(caller, "promote", Some(self.row));
        let checks: Vec<_> = self
            .checks
            .iter()
            .map(|check| json!({ "name": check.name, "result": check.result }))
            .collect();
        body.detail = json!({
            "stage": self.stage, "paths": self.plan.wishes.len(),
            "merged": self.plan.wishes.iter().filter(|wish| wish.merged).count(),
            "conflicts": self.plan.conflicts.len(), "checks": checks,
        });
        if let Some(winner) = &self.overruled {
            body.detail["overruled"] = json!(winner);
        }
        body
    }

    /// Writes down what stopped it; nothing has changed.
    fn refuse(
        self,
        engine: &Engine,
        caller: &Caller,
        verdict: Verdict,
        code: Code,
    ) -> Result<PromoteReply> {
        let mut body = self.record(caller);
        body.error = Some(code);
        engine.store.transact(|tx| tx.append(body))?;
        Ok(self.reply(verdict, None, None))
    }
}

/// What stops a promotion before the gate.
fn stopped(plan: &Plan, allow_autorun: bool) -> Option<(Verdict, Code)> {
    if !plan.conflicts.is_empty() {
        Some((Verdict::Conflict, Code::Conflict))
    } else if !plan.autorun.is_empty() && !allow_autorun {
        Some((Verdict::Denied, Code::Denied))
    } else {
        None
    }
}
