//! `audit`: who did what, and what was refused; and whether the journal is
//! still what was written.

use crate::reach::Seen;
use crate::{Caller, Engine};
use fractal_model::{
    AuditReply, AuditVerifyReply, Broken, Code, Error, Id, Record, RecordBody, Result,
};
use fractal_store::Reads;
use std::ops::ControlFlow;

const RECORDS: u64 = 50;
const RECORDS_MAX: u64 = 10_000;

/// Which records are wanted.
#[derive(Default)]
pub struct Asked<'a> {
    pub since_ms: Option<u64>,
    pub until_ms: Option<u64>,
    pub key: Option<&'a str>,
    pub action: Option<&'a str>,
    pub sandbox: Option<&'a str>,
    pub denied: bool,
    pub limit: Option<u64>,
    pub after: Option<u64>,
}

impl Asked<'_> {
    fn wants(&self, body: &RecordBody) -> bool {
        let is = |id: Option<Id>, name: Option<&str>, text: &str| {
            id.is_some_and(|id| id.as_str() == text) || name == Some(text)
        };
        self.since_ms.is_none_or(|since| body.time_ms >= since)
            && self.until_ms.is_none_or(|until| body.time_ms < until)
            && self.key.is_none_or(|key| is(body.key, Some(&body.who), key))
            && self.action.is_none_or(|action| body.action == action)
            && self.sandbox.is_none_or(|text| is(body.sandbox, body.name.as_deref(), text))
            && (!self.denied || body.error == Some(Code::Denied))
    }
}

pub fn audit(engine: &Engine, caller: &Caller, asked: &Asked<'_>) -> Result<AuditReply> {
    let limit = usize::try_from(asked.limit.unwrap_or(RECORDS).min(RECORDS_MAX))
        .map_err(|_| Error::invalid("too many records were asked for"))?;
    let seen = Seen::new(engine, caller)?;
    let mut reply = AuditReply { records: Vec::new(), more: false };
    engine.store.each_record(asked.after, |record: Record| {
        if !seen.has(&record.body) || !asked.wants(&record.body) {
            return ControlFlow::Continue(());
        }
        if reply.records.len() == limit {
            reply.more = true;
            return ControlFlow::Break(());
        }
        reply.records.push(record);
        ControlFlow::Continue(())
    })?;
    Ok(reply)
}

/// The chain is one for all tenants, so only who sees everything checks it.
pub fn verify(engine: &Engine, caller: &Caller, expect: Option<&str>) -> Result<AuditVerifyReply> {
    if !caller.reach.is_everything() {
        return Err(Error::denied(format!(
            "the key `{}` sees a part of the journal, and cannot check the whole",
            caller.who
        ))
        .hint("the local user, or an admin key for all tenants, can"));
    }
    let chain = engine.store.check_chain(expect)?;
    let broken = chain.fault.map(|(seq, why)| Broken { seq, why });
    let lacks = || {
        let expect = expect.filter(|_| !chain.has_expected)?;
        let expect: String = expect.chars().take(64).collect();
        let why = format!("no record has the expected hash {}", expect.escape_debug());
        Some(Broken { seq: chain.last, why })
    };
    let broken = broken.or_else(lacks);
    Ok(AuditVerifyReply {
        whole: broken.is_none(),
        checked: chain.last,
        head: chain.hash.clone(),
        broken,
    })
}
