//! `guard`: for agents that work while nobody watches. Runs in a fork,
//! promotes what passes the gate, and otherwise leaves reality alone and the
//! evidence in the sandbox. It never asks; one record tells the story.

use super::{promote, run};
use crate::{Caller, Engine, RunIo, new_name, record};
use fractal_model::{
    Error, Guard, GuardReply, Id, Outcome, Promote, PromoteReply, RecordBody, Result, Run,
    RunReply, Verdict,
};
use fractal_store::{Reads, new_id};
use serde_json::json;

pub fn guard(engine: &Engine, caller: &Caller, asked: Guard, io: RunIo) -> Result<GuardReply> {
    let Guard { run: asked_run, promote: asked_promote } = asked;
    if asked_run.sandbox.is_some() || asked_run.discard {
        return Err(Error::invalid("guard makes a sandbox of its own, and keeps it")
            .hint("`fractal run --in S -- CMD`, then `fractal promote S`"));
    }
    let command = asked_run.command.clone();
    // Named now, so that the next command knows whose work nobody judged
    // should we die.
    let name = asked_run.name.clone().unwrap_or_else(new_name);
    let asked_run = Run { name: Some(name.clone()), ..asked_run };
    let begun = engine.store.begin(new_id(), unjudged(caller, &command, &name))?;
    let run = run::run(engine, caller, asked_run, io)?;
    // What nobody can read up on is not promoted while nobody watches.
    let succeeded = run.outcome == Outcome::Exited && run.exit == 0 && run.output_lost.is_none();
    let promotion = match run.kept && succeeded {
        true => {
            let asked = Promote { sandbox: Some(run.id.to_string()), ..asked_promote };
            Some(promote::promote(engine, caller, &asked))
        }
        false => None,
    };
    tell(engine, caller, (&command, begun.id()), &run, promotion.as_ref())?;
    if let Some(why) = &run.output_lost {
        let message = format!("cannot pass on what the program wrote: {why}; nothing is promoted");
        let kept = format!(
            "it ran, and its work is in `{0}`: `fractal diff {0}`, then `fractal promote {0}`",
            run.sandbox
        );
        let error = Error::internal(message);
        return Err(if run.kept { error.hint(kept) } else { error });
    }
    let promotion = promotion.transpose()?;
    let promoted = promotion.as_ref().is_some_and(|reply| reply.verdict == Verdict::Applied);
    Ok(GuardReply { run, promotion, promoted })
}

/// What the journal says when there is no story.
fn unjudged(caller: &Caller, command: &[String], name: &str) -> RecordBody {
    let mut body = record(caller, "guard", None);
    body.name = Some(name.to_owned());
    body.detail = promote::judged::unjudged([(name, name)].into_iter(), None, &[]);
    body.detail["command"] = json!(command);
    body.detail["outcome"] = json!("lost");
    body
}

/// The story in one record: what ran, how it ended, what became of it.
fn tell(
    engine: &Engine,
    caller: &Caller,
    (command, begun): (&[String], Id),
    run: &RunReply,
    promotion: Option<&Result<PromoteReply>>,
) -> Result<()> {
    let row = engine.store.sandbox(run.id)?;
    let mut body = record(caller, "guard", row.as_ref());
    body.sandbox = Some(run.id);
    body.name = Some(run.sandbox.clone());
    let reply = promotion.and_then(|promotion| promotion.as_ref().ok());
    body.error = promotion.and_then(|promotion| promotion.as_ref().err()).map(|error| error.code);
    let checks: Vec<_> = (reply.iter().flat_map(|reply| &reply.checks))
        .map(|check| json!({ "name": check.name, "result": check.result }))
        .collect();
    body.detail = json!({
        "command": command, "exit": run.exit, "outcome": run.outcome, "kept": run.kept,
        "changes": run.changes.len(), "wall_ms": run.usage.wall_ms,
        "verdict": reply.map(|reply| reply.verdict), "checks": checks,
        "undo": reply.and_then(|reply| reply.undo), "begun": begun,
    });
    engine.store.transact(|tx| tx.append(body))?;
    Ok(())
}
