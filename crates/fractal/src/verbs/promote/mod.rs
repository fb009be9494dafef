//! `promote`: bring a sandbox's changes into its parent.
//!
//! The order never varies: choose what travels, weigh every path against what
//! the parent holds now, refuse what runs by itself, let the gate's checks
//! judge the result in a rehearsal, and only then write. Whatever stops it
//! stops it before anything changed, and is written down.

pub mod choose;
mod git;
pub mod plan;
mod reality;
pub mod rehearse;
mod sandbox;
pub mod weigh;

use crate::{Caller, Engine, record};
use fractal_model::{
    CheckReport, Code, Error, Id, Promote, PromoteReply, RecordBody, Result, Verdict,
};
use fractal_store::{Reads, SandboxRow};
use plan::Plan;
use serde_json::json;

/// The sandbox without a parent.
const REALITY: &str = "reality";

pub fn promote(engine: &Engine, caller: &Caller, asked: &Promote) -> Result<PromoteReply> {
    let row = engine.find(caller, asked.sandbox.as_deref())?;
    engine.require_idle(&row, "promote")?;
    match target(engine, &row, asked.to.as_deref())? {
        None => reality::promote(engine, caller, &row, asked),
        Some(parent) => sandbox::promote(engine, caller, &row, &parent, asked),
    }
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

/// How far a promotion came.
struct Progress<'a> {
    row: &'a SandboxRow,
    stage: &'a str,
    plan: &'a Plan,
    checks: Vec<CheckReport>,
    notes: Vec<String>,
}

impl Progress<'_> {
    fn reply(self, verdict: Verdict, undo: Option<Id>, made: Option<String>) -> PromoteReply {
        PromoteReply {
            sandbox: Some(self.row.name.clone()),
            stage: self.stage.to_owned(),
            verdict,
            applied: match verdict {
                Verdict::Applied | Verdict::Planned => self.plan.applied(),
                _ => Vec::new(),
            },
            conflicts: self.plan.conflicts.clone(),
            undo,
            checks: self.checks,
            left_out: self.plan.chosen.left_out(),
            autorun: self.plan.autorun.clone(),
            made,
            notes: self.notes,
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
