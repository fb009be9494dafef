//! A new sandbox in which nothing ran yet: a fork of reality.

use super::claim::insert_new;
use super::copied;
use super::place::decide;
use crate::{Caller, Engine, record};
use fractal_model::{Result, Run, SandboxInfo};
use serde_json::json;

/// Makes the sandbox that this run would make, and does not run. What the run
/// would be refused for is refused here.
pub fn make(engine: &Engine, caller: &Caller, run: &Run) -> Result<SandboxInfo> {
    debug_assert!(run.sandbox.is_none() && !run.discard, "a new sandbox that stays");
    let mut place = decide(engine, caller, run)?;
    copied::check(engine, caller, run, &place)?;
    let mut body = record(caller, "fork", Some(&place.row));
    body.before = None;
    body.detail = json!({ "child": place.row.id, "child_name": place.row.name, "of": "reality" });
    insert_new(engine, &mut place, true, |tx| tx.append(body).map(|_| ()))?;
    super::super::gc::expire(engine, caller);
    super::super::list::info(engine, caller, &place.row)
}
