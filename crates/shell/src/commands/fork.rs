//! `fork` and `run-native`: what only the engine around the shell can do.

use crate::command::{Call, Output};

pub(super) fn call(call: &Call) -> Output {
    let hook = match call.name {
        "fork" => &call.own.fork,
        _ => &call.own.run_native,
    };
    match hook {
        Some(command) => command.call(call),
        None => {
            let message = format!(
                "{0}: not available here: this shell has no engine around it\n\
                 {0}: start it with `fractal sh` to have it\n",
                call.name
            );
            Output::fail(125, message)
        }
    }
}
