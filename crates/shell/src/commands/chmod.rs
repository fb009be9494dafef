//! `chmod`, with `-R`, which bashkit's does not have.

use super::Instead;
use super::flags::{Flags, known_or_bashkits};
use super::mode::Mode;
use super::show::{self, quoted};
use crate::command::{Call, Output};
use fractal_fs::{FsError, NewMeta};
use fractal_model::EntryKind;

const SHORTS: &str = "Rfvc";
const LONGS: &[(&str, char)] = &[("recursive", 'R'), ("silent", 'f'), ("quiet", 'f')];

pub(super) fn instead(call: &Call) -> Option<Instead> {
    known_or_bashkits(call, SHORTS, LONGS)
}

pub(super) fn call(call: &Call) -> Output {
    let flags = Flags::parse(call.args, SHORTS, LONGS);
    let Some((text, files)) = flags.as_ref().and_then(|flags| flags.operands.split_first()) else {
        return Output::fail(1, "chmod: missing operand\n");
    };
    let Some(mode) = Mode::parse(text) else {
        return Output::fail(1, format!("chmod: invalid mode: {}\n", quoted(text)));
    };
    if files.is_empty() {
        return Output::fail(1, format!("chmod: missing operand after {}\n", quoted(text)));
    }
    let below = flags.as_ref().is_some_and(|flags| flags.has('R'));
    let mut out = Output::default();
    for shown in files {
        if let Err(error) = change(call, shown, &mode, below) {
            let reason = show::reason(&error);
            out.complain(1, &format!("chmod: cannot access {}: {reason}", quoted(shown)));
        }
    }
    out
}

fn change(call: &Call, shown: &str, mode: &Mode, below: bool) -> Result<(), FsError> {
    // Through a link that is named, never through one that is met.
    let stat = call.view.stat(call.path(shown))?;
    let mut waiting = vec![(call.view.resolve(call.path(shown))?, stat)];
    while let Some((path, stat)) = waiting.pop() {
        let is_dir = stat.kind == EntryKind::Directory;
        let new = NewMeta { mode: Some(mode.of(stat.meta.mode, is_dir)), ..NewMeta::default() };
        call.view.set_meta(&path, new)?;
        if below && is_dir {
            let listed = call.view.glance(&path)?;
            let real = listed.into_iter().filter(|(_, stat)| stat.kind != EntryKind::Symlink);
            waiting
                .extend(real.map(|(name, stat)| ([&path, &b"/"[..], name.bytes()].concat(), stat)));
        }
    }
    Ok(())
}
