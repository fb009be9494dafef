//! `mkdir`, with `-m`, which bashkit's takes for a name.

use super::Instead;
use super::flags::{Flags, known_or_bashkits};
use super::mode::Mode;
use super::show::{self, quoted};
use crate::command::{Call, Output};
use fractal_fs::{FsError, NewMeta};

const SHORTS: &str = "pm:v";
const LONGS: &[(&str, char)] = &[("parents", 'p'), ("mode", 'm'), ("verbose", 'v')];

pub(super) fn instead(call: &Call) -> Option<Instead> {
    known_or_bashkits(call, SHORTS, LONGS)
}

pub(super) fn call(call: &Call) -> Output {
    let Some(flags) = Flags::parse(call.args, SHORTS, LONGS) else {
        return Output::fail(1, "mkdir: invalid option\n");
    };
    if flags.operands.is_empty() {
        return Output::fail(1, "mkdir: missing operand\n");
    }
    let mode = match flags.value('m') {
        None => None,
        Some(text) => match Mode::parse(text) {
            Some(mode) => Some(mode.of(0o777, true)),
            None => return Output::fail(1, format!("mkdir: invalid mode {}\n", quoted(text))),
        },
    };
    let mut out = Output::default();
    for shown in &flags.operands {
        match make(call, shown, flags.has('p'), mode) {
            Ok(true) if flags.has('v') => {
                let line = format!("mkdir: created directory {}\n", quoted(shown));
                out.stdout.extend_from_slice(line.as_bytes());
            }
            Ok(_) => {}
            Err(error) => {
                let reason = show::reason(&error);
                out.complain(
                    1,
                    &format!("mkdir: cannot create directory {}: {reason}", quoted(shown)),
                );
            }
        }
    }
    out
}

/// Whether it was made.
fn make(call: &Call, shown: &str, parents: bool, mode: Option<u32>) -> Result<bool, FsError> {
    let path = call.path(shown);
    if parents {
        let there = call.view.exists(&path);
        call.view.make_dir_all(&path)?;
        if there {
            return Ok(false);
        }
    } else {
        call.view.make_dir(&path, 0o755)?;
    }
    if mode.is_some() {
        call.view.set_meta(&path, NewMeta { mode, ..NewMeta::default() })?;
    }
    Ok(true)
}
