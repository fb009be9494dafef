//! What is carried out here although a server runs.
//!
//! A server does what is done in a moment and looks or moves pointers. What a
//! person may want to end with Ctrl-C, and what happens with rights that only
//! the caller's process has, is done by that process. Beside the actions below
//! these verbs open the state directory themselves: `enter`, `sh`, `py`,
//! `mount`, and `run` on a terminal, which live with the caller's terminal and
//! memory; `try`, `compare` and `guard`, which tell what happens while it does;
//! `diff` as text, which is written as it is read; `serve` and `mcp`, which
//! are servers; `doctor`, which must work when nothing else does.

use crate::verbs::Style;
use fractal::model::{VolumeVerb, World};
use fractal::{Action, Run};
use std::io::{IsTerminal, stderr, stdin, stdout};

/// Why no server is asked for this action.
pub fn reason(action: &Action) -> Option<&'static str> {
    match action {
        Action::Copy { .. }
        | Action::Export { .. }
        | Action::Import { .. }
        | Action::Volume(VolumeVerb::Import { .. }) => {
            Some("host files are read and written with the caller's groups and umask")
        }
        Action::Note(_) | Action::Skunk(_) | Action::Index(_) => {
            Some("records are files, written with the caller's umask")
        }
        Action::Run(_)
        | Action::Try(_)
        | Action::Compare { .. }
        | Action::Guard(_)
        | Action::Tool(_)
        | Action::Calls(_) => Some("programs run, and end when their caller is ended"),
        Action::Promote(_) | Action::Update { .. } | Action::Undo { .. } => {
            Some("it can take long, and who ends it must have ended it")
        }
        _ => None,
    }
}

/// Why no server is asked for this run.
pub fn run_reason(run: &Run, style: Style, is_captured: bool) -> Option<&'static str> {
    let writes_to_terminal = !is_captured && (stdout().is_terminal() || stderr().is_terminal());
    let reads_terminal = style.interactive && stdin().is_terminal();
    if style.tty || writes_to_terminal || reads_terminal {
        return Some("a terminal belongs to the processes that were started on it");
    }
    if run.world == Some(World::Virtual) {
        return Some("a script in memory runs in the process that asked for it");
    }
    None
}
