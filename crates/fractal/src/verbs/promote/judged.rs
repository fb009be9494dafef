//! What is known of a sandbox that was an attempt: who was chosen, what it had
//! to pass, and whether anybody ever came to a verdict.
//!
//! Records name attempts by their sandboxes' names, which others may have
//! later: a record that is older than a sandbox is not about it.

use crate::{Caller, Engine};
use fractal_model::{Check, Code, Error, RecordBody, Result};
use fractal_store::{Reads, SandboxRow};
use serde_json::{Value, json};

/// Records that are looked at, the newest first.
const LOOK_BACK: u64 = 1_000;

/// Who names no sandbox means the best one there is, not the one that happens
/// to be left of a `try` in which all were ruled out, or that nobody judged.
pub fn refuse_ruled_out(engine: &Engine, caller: &Caller) -> Result<()> {
    // A project with stages may have nothing but them.
    let Ok(row) = engine.find(caller, None) else { return Ok(()) };
    let name = &row.name;
    let Some(why) = tried(engine, &row)?.ruled_out else { return Ok(()) };
    let all_the_same =
        format!("`fractal promote {name}` promotes it all the same, if its checks pass");
    Err(match why {
        Out::Judged(why) => {
            Error::new(Code::Gate, format!("`{name}` was {why}")).hint(all_the_same)
        }
        Out::Never(why) => Error::new(Code::Gate, format!("nobody judged `{name}`: {why}"))
            .hint(format!("look with `fractal diff {name}`; {all_the_same}")),
    })
}

/// The `try` that a sandbox was an attempt of.
pub struct Tried {
    /// The attempt that was chosen, where it was another one; none of them,
    /// where this one was ruled out with all others.
    pub winner: Option<String>,
    /// Why it cannot win.
    pub ruled_out: Option<Out>,
    /// What every attempt had to pass.
    pub checks: Vec<Check>,
}

/// Why a sandbox is not what somebody means who names none.
pub enum Out {
    /// It was compared, and lost.
    Judged(String),
    /// There was no verdict.
    Never(String),
}

pub fn tried(engine: &Engine, row: &SandboxRow) -> Result<Tried> {
    let ours = |body: &RecordBody| {
        body.tenant.as_deref().unwrap_or_default() == row.tenant
            && matches!(body.action.as_str(), "try" | "guard")
    };
    if let Some(body) = engine.store.under_way().iter().find(|body| ours(body) && has(body, row)) {
        let why = format!("the `{}` that made it has not ended yet", body.action);
        return Ok(Tried { winner: None, ruled_out: Some(Out::Never(why)), checks: checks(body) });
    }
    let records = engine.store.journal(None, LOOK_BACK)?;
    let bodies = records.iter().map(|record| &record.body);
    let mut about = bodies.filter(|body| ours(body) && body.time_ms >= row.created_ms);
    Ok(match about.find(|body| has(body, row)) {
        Some(body) => verdict(body, row),
        None => Tried { winner: None, ruled_out: None, checks: Vec::new() },
    })
}

/// Whether a sandbox is one of those that a record tells of: an attempt, or
/// the fork that held the untouched base.
fn has(body: &RecordBody, row: &SandboxRow) -> bool {
    body.detail["base"] == row.name.as_str() || attempt(body, row).is_some()
}

fn attempt<'b>(body: &'b RecordBody, row: &SandboxRow) -> Option<&'b Value> {
    let mut attempts = body.detail["attempts"].as_array().into_iter().flatten();
    attempts.find(|attempt| attempt["sandbox"] == row.name.as_str())
}

fn verdict(body: &RecordBody, row: &SandboxRow) -> Tried {
    let checks = checks(body);
    if body.detail["unjudged"] == true {
        let why = match body.error {
            Some(code) => format!("the `{}` that made it failed ({})", body.action, code.name()),
            None => format!("the `{}` that made it was killed", body.action),
        };
        return Tried { winner: None, ruled_out: Some(Out::Never(why)), checks };
    }
    let attempt = attempt(body, row).unwrap_or(&Value::Null);
    let is_out = attempt["rank"].is_null();
    let nobody = is_out.then_some("none of them");
    let winner = body.detail["winner"].as_str().or(nobody);
    let winner = winner.filter(|name| attempt["name"] != *name).map(str::to_owned);
    let why = attempt["why"].as_str().filter(|_| is_out);
    Tried { winner, ruled_out: why.map(|why| Out::Judged(why.to_owned())), checks }
}

fn checks(body: &RecordBody) -> Vec<Check> {
    serde_json::from_value(body.detail["gate"].clone()).unwrap_or_default()
}

/// What a record says of attempts without a verdict: pairs of names, of the
/// attempt and of its sandbox.
pub fn unjudged<'n>(
    attempts: impl Iterator<Item = (&'n str, &'n str)>,
    base: Option<&str>,
    gate: &[Check],
) -> Value {
    let attempt = |(name, sandbox)| json!({ "name": name, "sandbox": sandbox, "rank": null });
    json!({
        "unjudged": true, "winner": null, "base": base, "gate": gate,
        "attempts": attempts.map(attempt).collect::<Vec<_>>(),
    })
}
