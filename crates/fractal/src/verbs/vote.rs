use crate::{Caller, Engine};
use fractal_model::{Result, Vote, VoteReply};
pub fn vote(_: &Engine, _: &Caller, _: &Vote, _: bool) -> Result<VoteReply> {
    todo!()
}
