//! `try`: several ways side by side, checked, compared and ranked.

use crate::{Caller, Engine};
use fractal_model::{Code, Error, Result, Try, TryReply};

pub fn try_all(engine: &Engine, caller: &Caller, asked: Try) -> Result<TryReply> {
    let _ = (engine, caller, asked);
    Err(Error::new(Code::Unsupported, "not in this build yet"))
}
