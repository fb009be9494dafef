//! `zip` and `unzip`: bashkit's, which take no letters in one word and know
//! no `-q`.

use super::Instead;
use crate::command::{Call, Output};

pub(super) fn instead(call: &Call) -> Option<Instead> {
    // Compression levels and attributes change nothing here.
    let (kept, dropped) = match call.name {
        "zip" => ("r", "q0123456789Xy"),
        _ => ("lo", "q"),
    };
    let (mut args, mut silent) = (Vec::new(), false);
    for arg in call.args {
        let letters = arg.strip_prefix('-').filter(|rest| !rest.is_empty());
        let known = |letter: char| kept.contains(letter) || dropped.contains(letter);
        match letters {
            Some(letters) if letters.chars().all(known) => {
                silent |= letters.contains('q');
                let kept = letters.chars().filter(|letter| kept.contains(*letter));
                args.extend(kept.map(|letter| format!("-{letter}")));
            }
            _ => args.push(arg.clone()),
        }
    }
    Some(Instead::With { args, input: None, silent })
}

pub(super) fn call(call: &Call) -> Output {
    Output::fail(2, format!("{}: cannot read the options\n", call.name))
}
