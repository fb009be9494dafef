//! After a crash: old or new, never between.
//!
//! Whoever opens the state directory finds rows whose process is gone, claims
//! each by swapping its own pid in, and finishes it: back before the decision,
//! on after it. Every step can be repeated, so whoever recovers may die as
//! well. A write that cannot be finished now (its disk is not mounted, or
//! full, or another directory stands in its place) keeps its row and is tried
//! again by the next command; it stops no other work than writing into the
//! same directory.

use super::disk::Disk;
use super::holders::{elsewhere, holders, waits};
use super::trouble::Trouble;
use super::work::{Work, open_root, remove_stage};
use crate::Engine;
use fractal_model::{Code, Error, RecordBody, Result};
use fractal_store::{ApplyRow, ApplyState, Reads, Worker, now_ms};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;

/// Finishes what dead processes began. One query when there is nothing.
pub(crate) fn recover(engine: &Engine) -> Result<()> {
    for row in engine.store.unfinished_applies()? {
        if row.worker.is_alive() {
            continue;
        }
        let own = Worker::own();
        let claimed = engine.store.transact(|tx| tx.claim_apply(row.id, row.worker, own))?;
        if claimed {
            let disk = Disk::new(engine.fault_hook());
            let row = ApplyRow { worker: own, ..row };
            if settle(engine, &disk, row.clone()).is_err() {
                release(engine, &row);
            }
        }
    }
    Ok(())
}

fn settle(engine: &Engine, disk: &Disk, row: ApplyRow) -> std::result::Result<(), Trouble> {
    if let Some(dir) = elsewhere(&engine.store, &row) {
        return Err(waits(&row, &dir).into());
    }
    if row.state == ApplyState::Staging {
        return forget(engine, disk, &row);
    }
    let state = row.state;
    let mut work = match Work::resume(engine, disk, row.clone()) {
        Ok(work) => work,
        Err(trouble) => return bury(engine, &row, trouble),
    };
    match state {
        ApplyState::Sweeping => return work.sweep(),
        ApplyState::Back => {
            let why = Error::new(Code::Conflict, "it had been given up before");
            work.give_up(why.into(), true);
        }
        _ => {
            if let Err(trouble) = work.go_on().and_then(|()| work.finish(true)) {
                work.give_up(trouble, true);
            }
        }
    }
    Ok(())
}

/// Lets a new write pass one whose directory is elsewhere, if that one only
/// waits to tidy up there. One that was interrupted halfway does not give way:
/// nobody but its row knows that its directory is neither old nor new.
pub(super) fn make_way(engine: &Engine, new: &ApplyRow) -> Result<()> {
    let waiting = |row: &ApplyRow| row.overlaps(&new.root) && !row.worker.is_alive();
    for row in engine.store.unfinished_applies()?.into_iter().filter(waiting) {
        let Some(dir) = elsewhere(&engine.store, &row) else { continue };
        match row.state {
            ApplyState::Staging => engine.store.transact(|tx| tx.delete_apply(row.id)).map(drop)?,
            ApplyState::Sweeping => {
                let done = ApplyState::Done;
                engine.store.transact(|tx| tx.set_apply_state(row.id, row.worker, done))?;
                continue;
            }
            _ => return Err(waits(&row, &dir)),
        }
        engine.store.discard_undo(row.id)?;
    }
    Ok(())
}

/// Before the decision nothing in reality has changed: what was staged goes,
/// then what was kept, then the row.
pub(super) fn forget(
    engine: &Engine,
    disk: &Disk,
    row: &ApplyRow,
) -> std::result::Result<(), Trouble> {
    // A root that is gone took its stage with it.
    if let Ok(root) = open_root(row) {
        for holder in holders(row)? {
            remove_stage(disk, &root, &holder, row).map_err(|error| {
                Trouble::io("remove the stage in", holder.shown(&row.root), &error)
            })?;
        }
    }
    engine.store.discard_undo(row.id).map_err(Error::from)?;
    disk.commit(|| engine.store.transact(|tx| tx.delete_apply(row.id)))?;
    Ok(())
}

/// A stage that is nowhere, in a directory that is the one it was made in, was
/// removed by hand, with all that could be brought
/// or put back. The tree stays as it is, and the journal says so. Anything
/// else that keeps us from going on may pass.
fn bury(engine: &Engine, row: &ApplyRow, trouble: Trouble) -> std::result::Result<(), Trouble> {
    let stage_is_gone = matches!(trouble, Trouble::Conflict(_)) && row.root.is_dir();
    if !stage_is_gone {
        return Err(trouble);
    }
    finish_left(engine, row, lost(row)).map_err(Trouble::from)
}

impl Work<'_> {
    /// Takes everything back and returns what to tell the one who asked. The
    /// row goes when the tree is as it was, stays for the next try when that
    /// fails, and ends as `left` when others work on some of the paths.
    pub(super) fn give_up(&mut self, trouble: Trouble, recovered: bool) -> Error {
        let (id, worker) = (self.row.id, self.row.worker);
        if self.row.state == ApplyState::Swapping {
            // Without this note the next one would go on instead of back,
            // which is as sound; so a full disk does not stop us here.
            let back = ApplyState::Back;
            let _ = self.engine.store.transact(|tx| tx.set_apply_state(id, worker, back));
        }
        match self.go_back().and_then(|left| self.tidy(left, &trouble, recovered)) {
            Ok(left) if left.is_empty() => trouble.into(),
            Ok(left) => left_behind(trouble.into(), &left, &self.undo_dir()),
            Err(again) => postponed(self.engine, &self.row, trouble, &again),
        }
    }

    fn tidy(
        &mut self,
        left: Vec<String>,
        trouble: &Trouble,
        recovered: bool,
    ) -> std::result::Result<Vec<String>, Trouble> {
        let why = Error::from(trouble.clone());
        let body = RecordBody {
            error: Some(why.code),
            // A record holds no path of the host, so the reason is its code.
            detail: json!({ "outcome": "taken back", "left": left.len() }),
            time_ms: now_ms(),
            ..self.plan.head.record.clone()
        };
        if !left.is_empty() {
            self.keep_left()?;
            finish_left(self.engine, &self.row, body)?;
            return Ok(left);
        }
        forget(self.engine, self.disk, &self.row)?;
        if recovered {
            let _ = self.engine.store.transact(|tx| tx.append(body));
        }
        Ok(left)
    }
}

/// A write whose thread may break off, which leaves it to the next command as
/// the end of its process would.
pub(super) struct Underway<'e>(pub &'e Engine, pub ApplyRow);

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            release(self.0, &self.1);
        }
    }
}

/// Nobody works on it: the next command may try.
fn release(engine: &Engine, row: &ApplyRow) {
    let nobody = Worker::default();
    let _ = engine.store.transact(|tx| tx.claim_apply(row.id, row.worker, nobody));
}

/// Leaves a write to the next command.
pub(super) fn postponed(
    engine: &Engine,
    row: &ApplyRow,
    trouble: Trouble,
    again: &Trouble,
) -> Error {
    release(engine, row);
    super::unfinished(trouble.into(), &again.clone().into())
}

fn finish_left(engine: &Engine, row: &ApplyRow, body: RecordBody) -> Result<()> {
    engine.store.transact(|tx| {
        let record = tx.append(body)?;
        tx.finish_apply(row, ApplyState::Left, record.seq)
    })?;
    Ok(())
}

/// The record of a write whose stage is gone, and with it the way on or back.
fn lost(row: &ApplyRow) -> RecordBody {
    RecordBody {
        time_ms: now_ms(),
        who: "owner".to_owned(),
        key: None,
        tenant: Some(row.tenant.clone()).filter(|tenant| !tenant.is_empty()),
        action: if row.undoes.is_some() { "undo" } else { "promote" }.to_owned(),
        place: Some(RecordBody::place_of(row.root.as_os_str().as_bytes())),
        sandbox: row.sandbox,
        name: None,
        before: None,
        after: None,
        error: Some(Code::Corrupt),
        detail: json!({ "outcome": "lost", "undo": row.id }),
    }
}

fn left_behind(error: Error, left: &[String], kept: &std::path::Path) -> Error {
    let message = format!(
        "{}; others wrote to {} after that, which stays as it is: what stood there is in {}",
        error.message,
        left.join(", "),
        kept.display()
    );
    Error::new(Code::Conflict, message).hint("look at these files and try again")
}
