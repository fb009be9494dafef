//! `verify`: is a promotion what its attestation says?

use crate::{Caller, Engine, attest};
use fractal_model::{Code, Error, Result, VerifyReply};
use fractal_store::Reads;

pub fn verify(engine: &Engine, caller: &Caller, promotion: Option<&str>) -> Result<VerifyReply> {
    let rows = engine.applies_in_reach(caller)?;
    let row = super::undo::find(engine, &rows, promotion, &caller.directory)?;
    let checked = attest::check(engine, row.id)?;
    let byproduct = &checked.statement["predicate"]["runDetails"]["byproducts"][0]["annotations"];
    let (seq, hash) = (byproduct["seq"].as_u64(), byproduct["hash"].as_str());
    let record = seq.map_or(Ok(None), |seq| engine.store.record(seq))?;
    if record.is_none_or(|record| Some(record.hash.as_str()) != hash) {
        let message = format!("the journal's record of promotion {} is not the signed one", row.id);
        return Err(Error::new(Code::Gate, message).hint("`fractal doctor` checks the journal"));
    }
    let still = crate::apply::inverse::still_stands(engine, row)?;
    Ok(VerifyReply {
        promotion: row.id,
        keyid: checked.keyid,
        still_stands: still,
        statement: checked.statement,
    })
}
