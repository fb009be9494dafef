//! `verify`: is a promotion what its attestation says?
//!
//! A write into reality is judged by its plan and by the files; what came into
//! a stage's layers or on its branch by the journal, which says what it was and
//! whether it was taken back.

use crate::attest::{self, Subject};
use crate::reach::Seen;
use crate::stages::history::{Arrival, Landing};
use crate::verbs::promote::contains;
use crate::{Caller, Engine, apply, stages};
use fractal_model::{Code, Error, Id, Record, RecordBody, Result, Scope, StageKind, VerifyReply};
use fractal_store::{ApplyRow, Reads};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

/// As few characters of an id as name a promotion.
const CHARS_MIN: usize = 6;

pub fn verify(engine: &Engine, caller: &Caller, promotion: Option<&str>) -> Result<VerifyReply> {
    let rows = engine.applies_in_reach(caller)?;
    match find(engine, caller, &rows, promotion)? {
        Found::Written(row) => {
            let subject = Subject::Written(apply::digest(engine, row.id)?);
            let still = || apply::inverse::still_stands(engine, row);
            checked(engine, row.id, &subject, still)
        }
        Found::Landed(landed) => {
            let (record, arrival) = *landed;
            let id = arrival.promotion.ok_or_else(|| Error::internal("a landing has an id"))?;
            let (digest, commit) = (arrival.digest.clone(), arrival.commit.clone());
            let subject = Subject::Landed { digest, commit };
            checked(engine, id, &subject, || still_landed(engine, caller, &record, id))
        }
    }
}

fn checked(
    engine: &Engine,
    id: Id,
    subject: &Subject,
    still: impl FnOnce() -> Result<bool>,
) -> Result<VerifyReply> {
    let checked = attest::check(engine, id, subject)?;
    let byproduct = &checked.statement["predicate"]["runDetails"]["byproducts"][0]["annotations"];
    let (seq, hash) = (byproduct["seq"].as_u64(), byproduct["hash"].as_str());
    let record = seq.map_or(Ok(None), |seq| engine.store.record(seq))?;
    if record.is_none_or(|record| Some(record.hash.as_str()) != hash) {
        let message = format!("the journal's record of promotion {id} is not the signed one");
        return Err(Error::new(Code::Gate, message).hint("`fractal doctor` checks the journal"));
    }
    Ok(VerifyReply {
        promotion: id,
        keyid: checked.keyid,
        still_stands: still()?,
        statement: checked.statement,
    })
}

enum Found<'r> {
    Written(&'r ApplyRow),
    Landed(Box<(Record, Arrival)>),
}

/// What stands in the stage of that name, or the promotion with that id;
/// without a word the latest one into the caller's directory, or else the
/// latest one into a stage of it.
fn find<'r>(
    engine: &Engine,
    caller: &Caller,
    rows: &'r [ApplyRow],
    text: Option<&str>,
) -> Result<Found<'r>> {
    if let Some(landing) = text.map_or(Ok(None), |name| standing(engine, caller, name))? {
        let is_it = |arrival: &Arrival| arrival.promotion == landing.arrival.promotion;
        let found = landed(engine, caller, rows, &|_, arrival| is_it(arrival))?;
        return found.ok_or_else(|| Error::internal("what stands in a stage has a record"));
    }
    let error = match super::undo::find(engine, rows, text, &caller.directory) {
        Ok(row) => return Ok(Found::Written(row)),
        Err(error) if error.code != Code::NotFound => return Err(error),
        Err(error) => error,
    };
    let here = RecordBody::place_of(caller.directory.as_os_str().as_bytes());
    let upper = text.map(str::to_ascii_uppercase);
    let is_meant = |body: &RecordBody, arrival: &Arrival| match (&upper, arrival.promotion) {
        (Some(text), Some(id)) => text.len() >= CHARS_MIN && id.as_str().starts_with(text.as_str()),
        (None, Some(_)) => body.place.as_ref() == Some(&here),
        (_, None) => false,
    };
    landed(engine, caller, rows, &is_meant)?.ok_or(error)
}

fn standing(engine: &Engine, caller: &Caller, name: &str) -> Result<Option<Landing>> {
    // As with `stages`: who sees a part of the sandboxes sees no line.
    let line = caller.config.line().filter(|_| caller.reach.scope == Scope::All);
    let Some((line, at)) = line.and_then(|line| line.position(name).map(|at| (line, at))) else {
        return Ok(None);
    };
    let nothing = || {
        Error::not_found(format!("nothing stands in `{name}` yet"))
            .hint("`fractal stages` shows what stands where")
    };
    let row = stages::find(engine, caller, &line, at)?.ok_or_else(nothing)?;
    stages::history(engine, &row)?.stands().cloned().map(Some).ok_or_else(nothing)
}

/// The newest promotion into a stage that is meant. One that is a directory
/// stands for its write.
fn landed<'r>(
    engine: &Engine,
    caller: &Caller,
    rows: &'r [ApplyRow],
    is_meant: &dyn Fn(&RecordBody, &Arrival) -> bool,
) -> Result<Option<Found<'r>>> {
    let seen = Seen::new(engine, caller)?;
    let mut found = None;
    engine.store.each_record(None, |record| {
        let body = &record.body;
        if body.action == "promote" && body.error.is_none() && seen.has(body) {
            let arrival = serde_json::from_value::<Arrival>(body.detail.clone()).ok();
            if let Some(arrival) = arrival.filter(|arrival| is_meant(body, arrival)) {
                found = Some((record, arrival));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(found.map(|(record, arrival)| match rows.iter().find(|row| Some(row.id) == arrival.undo) {
        Some(row) => Found::Written(row),
        None => Found::Landed(Box::new((record, arrival))),
    }))
}

/// Whether nobody took it back, and the branch still has its commit.
fn still_landed(engine: &Engine, caller: &Caller, record: &Record, id: Id) -> Result<bool> {
    let row = record.body.sandbox.map_or(Ok(None), |id| engine.store.sandbox(id))?;
    let Some(row) = row else { return Ok(false) };
    let history = stages::history(engine, &row)?;
    let Some(landing) = history.landing(id).filter(|landing| !landing.undone) else {
        return Ok(false);
    };
    let line = stages::line_of(caller, &row.directory)?;
    let kind = line
        .as_ref()
        .and_then(|line| line.position(&landing.arrival.stage).map(|at| &line.stages[at].kind));
    match (kind, &landing.arrival.commit) {
        (Some(StageKind::Git(branch)), Some(commit)) => {
            contains(caller, &row.directory, branch, commit)
        }
        _ => Ok(true),
    }
}
