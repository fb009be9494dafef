//! `log`: the journal, newest first.

use crate::{Caller, Engine};
use fractal_model::{LogReply, Result};
use fractal_store::Reads;

const RECORDS: u64 = 50;
const RECORDS_MAX: u64 = 100_000;

pub fn log(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    limit: Option<u64>,
) -> Result<LogReply> {
    let sandbox = selector.map(|text| sandbox_id(engine, caller, text)).transpose()?;
    let records = engine.store.journal(sandbox, limit.unwrap_or(RECORDS).min(RECORDS_MAX))?;
    Ok(LogReply { records })
}

/// Records stay when a sandbox is dropped, so a name that only the journal
/// remembers is good too.
fn sandbox_id(engine: &Engine, caller: &Caller, text: &str) -> Result<fractal_model::Id> {
    match engine.find(caller, Some(text)) {
        Ok(row) => Ok(row.id),
        Err(error) => super::drop::remembered(engine, text)?.ok_or(error),
    }
}
