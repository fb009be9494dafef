//! `snap NAME`, `snap --list`, `snap --rollback NAME`: sealed moments of
//! this session. They cost nothing and end with the shell.

use crate::command::{Call, Output};
use std::sync::PoisonError;

const USAGE: &str = "usage: snap NAME | snap --list | snap --rollback NAME\n";

pub(super) fn call(call: &Call) -> Output {
    let words: Vec<&str> = call.args.iter().map(String::as_str).collect();
    let mut snapshots = call.own.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
    match words[..] {
        ["--list"] => {
            Output::ok(snapshots.keys().map(|name| format!("{name}\n")).collect::<String>())
        }
        ["--rollback", name] => match snapshots.get(name) {
            None => Output::fail(1, format!("snap: {name}: no such snapshot; see snap --list\n")),
            Some(tree) => match call.view.restore(tree) {
                Ok(()) => Output::default(),
                Err(error) => Output::fail(1, format!("snap: {name}: {error}\n")),
            },
        },
        [name] if !name.starts_with('-') => {
            snapshots.insert(name.to_owned(), call.view.tree());
            Output::default()
        }
        _ => Output::fail(2, USAGE),
    }
}
