//! `promote`: bring a sandbox's changes into its parent.

use crate::{Caller, Engine};
use fractal_model::{Code, Error, Promote, PromoteReply, Result};

pub fn promote(engine: &Engine, caller: &Caller, asked: &Promote) -> Result<PromoteReply> {
    let _ = (engine, caller, asked);
    Err(Error::new(Code::Unsupported, "not in this build yet"))
}
