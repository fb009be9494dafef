//! `log`: the journal, newest first.

use crate::reach::Seen;
use crate::{Caller, Engine};
use fractal_model::{Code, Id, LogReply, Record, RecordBody, Result};
use fractal_store::Reads;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

const RECORDS: u64 = 50;
const RECORDS_MAX: u64 = 100_000;

/// Which records are wanted.
pub struct Asked<'a> {
    pub sandbox: Option<&'a str>,
    pub limit: Option<u64>,
    pub here: bool,
    pub whole: bool,
}

pub fn log(engine: &Engine, caller: &Caller, asked: &Asked<'_>) -> Result<LogReply> {
    let sandbox = asked.sandbox.map(|text| sandbox_id(engine, caller, text)).transpose()?;
    let limit = asked.limit.unwrap_or(RECORDS).min(RECORDS_MAX);
    let seen = Seen::new(engine, caller)?;
    let here = asked.here.then(|| Here::new(engine, caller)).transpose()?;
    let is_wanted = |record: &Record| {
        seen.has(&record.body)
            && here.as_ref().is_none_or(|here| here.has(&record.body))
            && !(asked.whole && record.body.is_part())
    };
    // What is asked for may lie far behind others' records.
    let mut look_back = limit;
    loop {
        let mut records = engine.store.journal(sandbox, look_back)?;
        let is_all = (records.len() as u64) < look_back || look_back >= RECORDS_MAX;
        records.retain(is_wanted);
        if is_all || records.len() as u64 >= limit {
            records.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            return Ok(LogReply { records });
        }
        look_back = look_back.saturating_mul(8).clamp(RECORDS, RECORDS_MAX);
    }
}

/// What belongs to the caller's directory: what happened there, and to
/// sandboxes that were made there.
struct Here {
    place: String,
    sandboxes: HashSet<Id>,
}

impl Here {
    fn new(engine: &Engine, caller: &Caller) -> Result<Here> {
        let rows = engine.store.sandboxes()?;
        let ours = rows.iter().filter(|row| row.directory == caller.directory);
        Ok(Here {
            place: RecordBody::place_of(caller.directory.as_os_str().as_bytes()),
            sandboxes: ours.map(|row| row.id).collect(),
        })
    }

    fn has(&self, body: &RecordBody) -> bool {
        body.place.as_ref() == Some(&self.place)
            || body.sandbox.is_some_and(|id| self.sandboxes.contains(&id))
    }
}

/// Records stay when a sandbox is dropped, so a name that only the journal
/// remembers is good too.
fn sandbox_id(engine: &Engine, caller: &Caller, text: &str) -> Result<Id> {
    match engine.find(caller, Some(text)) {
        Ok(row) => Ok(row.id),
        Err(error) if error.code != Code::NotFound => Err(error),
        Err(error) => super::drop::remembered(engine, caller, text)?.ok_or(error),
    }
}
