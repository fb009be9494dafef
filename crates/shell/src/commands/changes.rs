//! `changes [PATH]…`: how the files differ from what they started as.

use crate::command::{Call, Output};
use crate::name;
use fractal_model::{ChangeKind, SandboxPath};

pub(super) fn call(call: &Call) -> Output {
    let mut within = Vec::new();
    for arg in call.args {
        let path =
            call.view.resolve(call.path(arg)).ok().and_then(|at| SandboxPath::parse(at).ok());
        match path {
            Some(path) => within.push(path),
            None => return Output::fail(1, format!("changes: {arg}: No such file or directory\n")),
        }
    }
    let changes = match call.view.changes() {
        Ok(changes) => changes,
        Err(error) => return Output::fail(1, format!("changes: {error}\n")),
    };
    let mut out = String::new();
    for change in changes {
        if !within.is_empty() && !within.iter().any(|path| change.path.is_within(path)) {
            continue;
        }
        let letter = match change.kind {
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
        };
        out.push_str(&format!("{letter} /{}\n", name::text(change.path.relative())));
    }
    Output::ok(out)
}
