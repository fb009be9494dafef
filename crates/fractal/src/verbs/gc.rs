//! `gc`: sandboxes that were forgotten, layers nobody stands on, and what is
//! kept for an undo that cannot come or is not wanted any more.

use crate::apply::holders::elsewhere;
use crate::{Caller, Engine};
use fractal_model::{GcReply, Id, Result};
use fractal_store::{Reads, SandboxRow, now_ms};
use std::collections::HashSet;

pub fn gc(
    engine: &Engine,
    caller: &Caller,
    dry_run: bool,
    undo_ms: Option<u64>,
) -> Result<GcReply> {
    let expired = engine.in_reach(caller, expired(engine)?)?;
    let mut reply = GcReply {
        expired: expired.iter().map(|row| row.name.clone()).collect(),
        ..GcReply::default()
    };
    for row in &expired {
        reply.bytes += engine.store.own_size(row)?;
        if !dry_run {
            super::drop::drop_row(engine, caller, row)?;
        }
    }
    free_kept(engine, caller, dry_run, undo_ms, &mut reply)?;
    // What nobody owns is the local user's to collect: its size would tell
    // of others.
    if !caller.reach.is_everything() {
        return Ok(reply);
    }
    if let Some(undo_ms) = undo_ms.filter(|_| !dry_run) {
        abandon(engine, undo_ms)?;
    }
    let report = engine.store.gc(dry_run)?;
    reply.layers = report.layers;
    reply.bytes += report.bytes;
    Ok(reply)
}

/// What stood in reality before a promotion is kept for good, unless the
/// promotion was taken back (then it stands there again) or it is older than
/// asked. What was written stays known.
fn free_kept(
    engine: &Engine,
    caller: &Caller,
    dry_run: bool,
    undo_ms: Option<u64>,
    reply: &mut GcReply,
) -> Result<()> {
    let oldest = undo_ms.map_or(0, |age| now_ms().saturating_sub(age));
    for row in engine.applies_in_reach(caller)?.into_iter().filter(|row| row.kept && row.is_over())
    {
        let bytes = engine.store.undo_size(row.id)?;
        if row.undone_by.is_none() && row.created_ms >= oldest {
            reply.undo_bytes += bytes;
            continue;
        }
        reply.bytes += bytes;
        reply.undos += u64::from(row.undone_by.is_none());
        if !dry_run {
            engine.store.transact(|tx| tx.forget_kept(row.id))?;
            engine.store.discard_kept(row.id)?;
        }
    }
    Ok(())
}

/// A write that a crash interrupted waits for its directory to come back: it
/// may lie on a disk that is not mounted, or under another name. Asked to give up what is old, that
/// is given up too.
fn abandon(engine: &Engine, undo_ms: u64) -> Result<()> {
    let oldest = now_ms().saturating_sub(undo_ms);
    for row in engine.store.unfinished_applies()? {
        let is_away = || !row.root.exists() || elsewhere(&engine.store, &row).is_some();
        if row.created_ms < oldest && !row.worker.is_alive() && is_away() {
            engine.store.transact(|tx| tx.delete_apply(row.id))?;
            engine.store.discard_undo(row.id)?;
        }
    }
    Ok(())
}

/// Past their time and with nothing running in them.
fn expired(engine: &Engine) -> Result<Vec<SandboxRow>> {
    let mut list = Vec::new();
    for row in engine.store.expired_sandboxes(now_ms())? {
        if !engine.is_running(row.id)? {
            list.push(row);
        }
    }
    keep_parents(engine, &mut list)?;
    Ok(list)
}

/// Whoever is above somebody who stays, stays: without it there would be no
/// way from the one to what it was made from.
fn keep_parents(engine: &Engine, list: &mut Vec<SandboxRow>) -> Result<()> {
    loop {
        let going: HashSet<Id> = list.iter().map(|row| row.id).collect();
        let mut kept = HashSet::new();
        for row in list.iter() {
            if engine.store.children(row.id)?.iter().any(|child| !going.contains(&child.id)) {
                kept.insert(row.id);
            }
        }
        if kept.is_empty() {
            return Ok(());
        }
        list.retain(|row| !kept.contains(&row.id));
    }
}

/// Drops what has expired, on the way of other verbs. What fails now is tried
/// again next time.
pub fn expire(engine: &Engine, caller: &Caller) {
    // Who happens to come by is not told to whose sandbox it was.
    let owner = Caller::owner(&caller.directory);
    let who = if caller.reach.is_everything() { caller } else { &owner };
    for row in expired(engine).unwrap_or_default() {
        let _ = super::drop::drop_row(engine, who, &row);
    }
}
