//! `zcat`, which bashkit has under another name.

use super::Instead;
use crate::command::{Call, Output};

pub(super) fn instead(call: &Call) -> Option<Instead> {
    let words = ["gunzip", "-c"].map(str::to_owned).into_iter();
    Some(Instead::Run(vec![words.chain(call.args.iter().cloned()).collect()]))
}

pub(super) fn call(_: &Call) -> Output {
    Output::fail(1, "zcat: cannot read\n")
}
