//! `undo`: take a promotion back, with the same care.

use crate::{Caller, Engine};
use fractal_model::{Code, Error, PromoteReply, Result};

pub fn undo(
    engine: &Engine,
    caller: &Caller,
    promotion: Option<&str>,
    dry_run: bool,
) -> Result<PromoteReply> {
    let _ = (engine, caller, promotion, dry_run);
    Err(Error::new(Code::Unsupported, "not in this build yet"))
}
