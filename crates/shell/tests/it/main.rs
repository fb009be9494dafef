//! The shell against real bash, and against whoever wants out of it.
#![allow(clippy::unwrap_used)]

mod cancel;
mod commands;
mod compare;
mod escape;
mod limits;
mod oracle;
#[cfg(feature = "python")]
mod python;
mod sessions;

use fractal_fs::Vfs;
use fractal_shell::{Outcome, Settings, Shell};

fn shell() -> Shell {
    Shell::new(Vfs::default(), Settings::default())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a script that must succeed and returns what it printed.
fn run(shell: &mut Shell, script: &str) -> String {
    let outcome = shell.run(script, b"");
    assert_eq!(outcome.exit, 0, "{script}\n{}", shown(&outcome));
    text(&outcome.stdout)
}

fn shown(outcome: &Outcome) -> String {
    let cut = |bytes: &[u8]| text(&bytes[..bytes.len().min(2000)]);
    format!(
        "{:?} {}\n{}{}",
        outcome.ended,
        outcome.exit,
        cut(&outcome.stdout),
        cut(&outcome.stderr)
    )
}
