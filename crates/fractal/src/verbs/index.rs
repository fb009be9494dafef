//! `index`: what questions are answered from, looked after.

use crate::knowledge::failed;
use crate::{Caller, Engine, record};
use fractal_index::Index;
use fractal_model::{Code, Error, IndexReply, IndexVerb, LintFault, Reply, Result};
use serde_json::json;
use std::time::Duration;

/// How long one piece of making vectors takes.
const PIECE: Duration = Duration::from_secs(2);

/// Told how much is done of how much.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

pub fn index(
    engine: &Engine,
    caller: &Caller,
    verb: IndexVerb,
    progress: Progress<'_>,
) -> Result<Reply> {
    match verb {
        IndexVerb::Status => status(engine, caller).map(Reply::Index),
        IndexVerb::Rebuild => {
            let index = engine.rebuild_index(caller, progress)?;
            written(engine, caller, "rebuild")?;
            let notes = on_servers(engine, caller, &index, Work::Afresh);
            reply(engine, caller, &index, notes).map(Reply::Index)
        }
        IndexVerb::Verify => {
            let index = engine.index_as_it_is(caller)?;
            let mut reply = index.verify().map_err(failed)?;
            let servers = on_servers(engine, caller, &index, Work::Compare);
            reply.faults.extend(servers.into_iter().map(|what| LintFault {
                root: "server".to_owned(),
                what,
                ..LintFault::default()
            }));
            Ok(Reply::Lint(reply))
        }
        IndexVerb::Lint => engine.index(caller)?.lint().map(Reply::Lint).map_err(failed),
        IndexVerb::Embed => embed(engine, caller, progress),
        IndexVerb::AddModel { from } => add_model(engine, caller, &from),
    }
}

fn written(engine: &Engine, caller: &Caller, verb: &str) -> Result<()> {
    let mut body = record(caller, "index", None);
    body.detail = json!({ "verb": verb });
    engine.store.transact(|tx| tx.append(body))?;
    Ok(())
}

fn status(engine: &Engine, caller: &Caller) -> Result<IndexReply> {
    let index = engine.index(caller)?;
    let notes = on_servers(engine, caller, &index, Work::Lag);
    reply(engine, caller, &index, notes)
}

/// What is done with each server that is kept in step.
enum Work {
    Lag,
    Afresh,
    Compare,
}

#[cfg(feature = "servers")]
fn on_servers(engine: &Engine, caller: &Caller, index: &Index, work: Work) -> Vec<String> {
    use crate::knowledge::servers::{afresh, compared, lag};
    let model = engine.model(caller).ok();
    let work = match work {
        Work::Lag => lag,
        Work::Afresh => afresh,
        Work::Compare => compared,
    };
    let mut told = engine.tell_servers(caller, index, model.as_ref(), &work);
    told.retain(|line| !line.is_empty());
    told
}

#[cfg(not(feature = "servers"))]
fn on_servers(_: &Engine, _: &Caller, _: &Index, _: Work) -> Vec<String> {
    Vec::new()
}

fn reply(
    engine: &Engine,
    caller: &Caller,
    index: &Index,
    mut notes: Vec<String>,
) -> Result<IndexReply> {
    let counts = index.counts().map_err(failed)?;
    let (mut model, mut without_vector) = (None, counts.records);
    match engine.model(caller) {
        Ok(found) => {
            model = Some(found.name().to_owned());
            without_vector = index.without_vector(found.as_ref()).map_err(failed)?;
        }
        Err(why) => notes.push(why),
    }
    Ok(IndexReply {
        indexed: counts.records,
        edges: counts.edges,
        size_bytes: index.size_bytes(),
        roots: index.roots().iter().map(|root| root.name.clone()).collect(),
        model,
        without_vector,
        faulty: counts.faulty,
        notes,
    })
}

fn embed(engine: &Engine, caller: &Caller, progress: Progress<'_>) -> Result<Reply> {
    let model = engine.model(caller).map_err(|why| {
        Error::new(Code::Unsupported, why).hint("`fractal model add PATH` takes one in")
    })?;
    let index = engine.index(caller)?;
    let cancel = &caller.cancel;
    let total = index.without_vector(model.as_ref()).map_err(failed)?;
    let mut done = 0;
    // In pieces, so that who no longer waits is noticed.
    loop {
        let mut tell = |now: u64, _: u64| progress((done + now).min(total), total);
        let piece = index.embed(model.as_ref(), Some(PIECE), &mut tell).map_err(failed)?;
        done += piece.done;
        if piece.left == 0 || piece.done == 0 {
            break;
        }
        if cancel.is_cancelled() {
            return Err(Error::new(Code::Timeout, "nobody waits for the vectors any more"));
        }
    }
    reply(engine, caller, &index, Vec::new()).map(Reply::Index)
}

fn add_model(engine: &Engine, caller: &Caller, from: &str) -> Result<Reply> {
    engine.refuse_host_path(caller, "add a model")?;
    let added = engine.take_model(&caller.directory.join(from))?;
    written(engine, caller, "add-model")?;
    let note = format!(
        "{}: {} numbers a text, weights sha256:{:.12}",
        added.name, added.dimensions, added.sha256
    );
    let index = engine.index(caller)?;
    reply(engine, caller, &index, vec![note]).map(Reply::Index)
}
