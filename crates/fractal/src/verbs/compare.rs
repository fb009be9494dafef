//! `compare`: the table of `try` for sandboxes that exist.

use crate::{Caller, Engine};
use fractal_model::{Check, Code, Error, RankBy, Result, TryReply};

pub fn compare(
    engine: &Engine,
    caller: &Caller,
    sandboxes: &[String],
    checks: &[Check],
    score: Option<&str>,
    rank: &RankBy,
) -> Result<TryReply> {
    let _ = (engine, caller, sandboxes, checks, score, rank);
    Err(Error::new(Code::Unsupported, "not in this build yet"))
}
