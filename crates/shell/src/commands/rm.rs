//! `rm`; bashkit's is silent about anything that goes wrong after `-f`.

use super::Instead;
use super::flags::{Flags, known_or_bashkits};
use super::show::{self, joined, quoted};
use crate::command::{Call, Output};
use fractal_fs::{FsError, Kind};
use fractal_model::EntryKind;

const SHORTS: &str = "rRfdv";
const LONGS: &[(&str, char)] =
    &[("recursive", 'r'), ("force", 'f'), ("dir", 'd'), ("verbose", 'v')];

pub(super) fn instead(call: &Call) -> Option<Instead> {
    known_or_bashkits(call, SHORTS, LONGS)
}

pub(super) fn call(call: &Call) -> Output {
    let Some(flags) = Flags::parse(call.args, SHORTS, LONGS) else {
        return Output::fail(1, "rm: invalid option\n");
    };
    if flags.operands.is_empty() && !flags.has('f') {
        return Output::fail(1, "rm: missing operand\n");
    }
    let mut out = Output::default();
    for shown in &flags.operands {
        if call.stopped() {
            break;
        }
        one(call, &flags, shown, &mut out);
    }
    out
}

fn one(call: &Call, flags: &Flags, shown: &str, out: &mut Output) {
    let path = call.path(shown);
    let recursive = flags.has('r') || flags.has('R');
    let kind = match call.view.lstat_known(&path) {
        Ok(stat) => stat.kind,
        // What is not there need not be removed.
        Err(error) if flags.has('f') && is_missing(&error) => return,
        Err(error) => return complain(shown, &error, out),
    };
    let is_dir = kind == EntryKind::Directory;
    if is_dir && !recursive && !flags.has('d') {
        return out.complain(1, &format!("rm: cannot remove {}: Is a directory", quoted(shown)));
    }
    if is_dir && let Some(refusal) = refusal(shown, recursive) {
        return out.complain(1, &refusal);
    }
    let mut told = String::new();
    if flags.has('v') {
        tell(call, shown, kind, &mut told);
    }
    let gone = match (is_dir, recursive) {
        (true, true) => call.view.remove_all(&path),
        (true, false) => call.view.remove_dir(&path),
        (false, _) => call.view.remove_file(&path),
    };
    match gone {
        Ok(()) => out.stdout.extend_from_slice(told.as_bytes()),
        Err(error) => complain(shown, &error, out),
    }
}

fn is_missing(error: &FsError) -> bool {
    matches!(error.kind, Kind::NotFound | Kind::NotADirectory)
}

fn complain(shown: &str, error: &FsError, out: &mut Output) {
    let reason = show::reason(error);
    out.complain(1, &format!("rm: cannot remove {}: {reason}", quoted(shown)));
}

/// Directories that are more than they look.
fn refusal(shown: &str, recursive: bool) -> Option<String> {
    let bare = shown.trim_end_matches('/');
    let last = bare.rsplit('/').next().unwrap_or(bare);
    if last == "." || last == ".." {
        let skipped = quoted(shown);
        return Some(format!("rm: refusing to remove '.' or '..' directory: skipping {skipped}"));
    }
    (bare.is_empty() && recursive).then(|| {
        "rm: it is dangerous to operate recursively on '/'\n\
         rm: use --no-preserve-root to override this failsafe"
            .to_owned()
    })
}

/// A line for everything that goes, what lies in a directory first.
fn tell(call: &Call, shown: &str, kind: EntryKind, out: &mut String) {
    if kind != EntryKind::Directory {
        return out.push_str(&format!("removed {}\n", quoted(shown)));
    }
    for listed in call.view.list(call.path(shown)).unwrap_or_default() {
        tell(call, &joined(shown, listed.name.bytes()), listed.kind, out);
    }
    out.push_str(&format!("removed directory {}\n", quoted(shown)));
}
