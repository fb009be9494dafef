//! `patch`: bashkit's, told what else people write: `-s`, `-i FILE`, the
//! patch as a second operand, and flags that change nothing here.

use super::Instead;
use super::flags::Flags;
use crate::command::{Call, Output};

const SHORTS: &str = "p:Rsi:uNftE";
const LONGS: &[(&str, char)] = &[
    ("strip", 'p'),
    ("reverse", 'R'),
    ("silent", 's'),
    ("quiet", 's'),
    ("input", 'i'),
    ("unified", 'u'),
    ("forward", 'N'),
    ("force", 'f'),
    ("batch", 't'),
];

pub(super) fn instead(call: &Call) -> Option<Instead> {
    let Some(flags) = Flags::parse(call.args, SHORTS, LONGS) else {
        return Some(Instead::Bashkits);
    };
    let mut args = Vec::new();
    if let Some(strip) = flags.value('p') {
        args.push(format!("-p{strip}"));
    }
    if flags.has('R') {
        args.push("-R".to_owned());
    }
    args.extend(flags.operands.first().cloned());
    let input = flags.value('i').or(flags.operands.get(1).map(String::as_str));
    Some(Instead::With { args, input: input.map(str::to_owned), silent: flags.has('s') })
}

pub(super) fn call(_: &Call) -> Output {
    Output::fail(2, "patch: cannot read the options\n")
}
