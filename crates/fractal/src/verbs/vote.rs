//! `approve` and `reject`: what people say about a change before a stage.
//!
//! A vote is about exactly what would come in, by its digest: a change of one
//! byte asks for new ones.

use super::promote::stage::candidate;
use crate::{Caller, Engine, record};
use fractal_model::{Code, Error, Result, Scope, Vote, VoteReply};
use serde_json::json;

pub fn vote(engine: &Engine, caller: &Caller, asked: &Vote, approved: bool) -> Result<VoteReply> {
    if matches!(caller.reach.scope, Scope::Sandbox(_)) {
        engine.require_target_within(caller, None)?;
    }
    let step = candidate(engine, caller, asked)?;
    let (stage, from) = (step.stage().name.clone(), step.from());
    let weighed = step.weigh()?;
    if let Some(conflict) = weighed.plan.conflicts.first() {
        let message = format!("`{from}` clashes with `{stage}` at {}", conflict.path);
        return Err(Error::new(Code::Conflict, message)
            .hint(format!("`fractal promote {from} --dry-run` lists every conflict")));
    }
    if weighed.plan.wishes.is_empty() {
        return Err(Error::not_found(format!("`{stage}` has all that `{from}` holds"))
            .hint("`fractal stages` shows what stands where"));
    }
    if approved && step.authors().contains(&caller.who) {
        let message =
            format!("`{}` made this change, so somebody else must approve it", caller.who);
        return Err(Error::denied(message)
            .hint("another key approves it; on this command line that is `--who NAME`"));
    }
    let mut body = record(caller, if approved { "approve" } else { "reject" }, Some(step.row()));
    let paths = weighed.plan.wishes.len() as u64;
    body.detail = json!({
        "stage": stage, "from": from, "digest": weighed.digest, "paths": paths,
        "message": asked.message,
    });
    engine.store.transact(|tx| tx.append(body))?;
    let again = candidate(
        engine,
        caller,
        &Vote { sandbox: Some(from.clone()), stage: Some(stage.clone()), message: None },
    )?;
    Ok(VoteReply {
        approvals: again.tally(&weighed.digest).approvals,
        needed: step.stage().approve,
        digest: weighed.digest,
        stage,
        from,
        approved,
        paths,
    })
}
