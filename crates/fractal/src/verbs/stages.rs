use crate::{Caller, Engine};
use fractal_model::{Result, StagesReply};
pub fn stages(_: &Engine, _: &Caller) -> Result<StagesReply> {
    todo!()
}
