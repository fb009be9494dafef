//! `find`: what was learned, by a question; `graph` and `learned` ask the same
//! records in other ways.

use crate::knowledge::{failed, file_of, place_hits, place_learnings};
use crate::{Caller, Engine};
use fractal_model::{Error, Find, FindReply, GraphAsk, GraphReply, LearnedReply, Result};
use fractal_store::now_ms;
use std::time::Duration;

const QUESTION_BYTES_MAX: usize = 64 << 10;
/// Who asks waits so long for vectors of records that are new.
const EMBED: Duration = Duration::from_secs(2);

pub fn find(engine: &Engine, caller: &Caller, asked: &Find) -> Result<FindReply> {
    if asked.text.len() > QUESTION_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the question is longer than {} KiB",
            QUESTION_BYTES_MAX >> 10
        ))
        .hint("ask for what you would expect in the answer, in a few words"));
    }
    let mut index = engine.index(caller)?;
    let mut without = Vec::new();
    let model = match engine.model(caller) {
        Ok(model) => Some(model),
        Err(why) => {
            without.push(why);
            None
        }
    };
    if let Some(model) = &model {
        match index.embed(model.as_ref(), Some(EMBED), &mut |_, _| ()) {
            Ok(embedded) if embedded.left > 0 => {
                without.push(format!("meaning of {} records (fractal index embed)", embedded.left));
                engine.embed_behind(caller, model)?;
            }
            Ok(_) => {}
            Err(error) => without.push(format!("meaning of new records: {error}")),
        }
    }
    engine.ask_servers(caller, &mut index, model.as_ref(), &mut without);
    let mix = caller.config.mix();
    let reply = index.search(asked, model.as_deref(), mix, now_ms(), without);
    let mut reply = reply.map_err(failed)?;
    place_hits(caller, &index, &mut reply.hits);
    Ok(reply)
}

/// A part of the graph, or all of it.
pub fn graph(engine: &Engine, caller: &Caller, asked: &GraphAsk) -> Result<GraphReply> {
    let mut index = engine.index(caller)?;
    engine.ask_servers(caller, &mut index, None, &mut Vec::new());
    let needs = |what: &str| {
        Error::invalid(format!("{what} of what?")).hint("name a record: `fractal graph RECORD …`")
    };
    let reply = match (&asked.around, &asked.to) {
        (None, Some(_)) => return Err(needs("the way")),
        (None, None) if asked.fixes => return Err(needs("fixes")),
        (None, None) => index.whole(),
        (Some(from), Some(to)) => index.way(from, to),
        (Some(record), None) if asked.fixes => index.fixes(record),
        (Some(record), None) => index.around(record, asked.depth.unwrap_or(1)),
    };
    let mut reply = reply.map_err(failed)?;
    for node in &mut reply.nodes {
        if let (Some(root), Some(path)) = (&node.root, &node.path) {
            node.file = file_of(caller, &index, root, path);
        }
    }
    Ok(reply)
}

/// A digest of what was learned.
pub fn learned(engine: &Engine, caller: &Caller, since_ms: Option<u64>) -> Result<LearnedReply> {
    let index = engine.index(caller)?;
    let mut reply = index.learned(since_ms.unwrap_or(0)).map_err(failed)?;
    place_learnings(caller, &index, &mut reply.learned);
    for group in &mut reply.failures {
        place_learnings(caller, &index, &mut group.failures);
        place_learnings(caller, &index, &mut group.fixed_by);
    }
    Ok(reply)
}
