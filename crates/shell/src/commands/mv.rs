//! `mv`: one rename in the tree; bashkit's overwrites in spite of `-n`.

use super::Instead;
use super::flags::{Flags, known_or_bashkits};
use super::show::{self, joined, quoted};
use crate::command::{Call, Output};
use crate::name;
use fractal_fs::Kind;
use fractal_model::EntryKind;

const SHORTS: &str = "fnvuTt:";
const LONGS: &[(&str, char)] = &[
    ("force", 'f'),
    ("no-clobber", 'n'),
    ("verbose", 'v'),
    ("update", 'u'),
    ("no-target-directory", 'T'),
    ("target-directory", 't'),
];

pub(super) fn instead(call: &Call) -> Option<Instead> {
    known_or_bashkits(call, SHORTS, LONGS)
}

pub(super) fn call(call: &Call) -> Output {
    let Some(flags) = Flags::parse(call.args, SHORTS, LONGS) else {
        return Output::fail(1, "mv: invalid option\n");
    };
    let mut sources = flags.operands.clone();
    let target = match flags.value('t') {
        Some(dir) => dir.to_owned(),
        None => match sources.pop() {
            None => return Output::fail(1, "mv: missing file operand\n"),
            Some(last) if sources.is_empty() => {
                let message =
                    format!("mv: missing destination file operand after {}\n", quoted(&last));
                return Output::fail(1, message);
            }
            Some(last) => last,
        },
    };
    let is_dir =
        |path: &[u8]| call.view.stat(path).is_ok_and(|stat| stat.kind == EntryKind::Directory);
    let into = !flags.has('T') && is_dir(&call.path(&target));
    if !into && (sources.len() > 1 || flags.has('t')) {
        return Output::fail(1, format!("mv: target {}: Not a directory\n", quoted(&target)));
    }
    let mut out = Output::default();
    for source in sources {
        let last = source.trim_end_matches('/').rsplit('/').next().unwrap_or(&source);
        let to = match into {
            true => joined(&target, &name::bytes(last)),
            false => target.clone(),
        };
        one(call, &flags, &source, &to, &mut out);
    }
    out
}

fn one(call: &Call, flags: &Flags, from: &str, to: &str, out: &mut Output) {
    let (source, target) = (call.path(from), call.path(to));
    let (old, there) = (call.view.lstat(&source), call.view.lstat(&target));
    let old = match old {
        Ok(old) => old,
        Err(error) => {
            let reason = show::reason(&error);
            return out.complain(1, &format!("mv: cannot stat {}: {reason}", quoted(from)));
        }
    };
    if let Ok(there) = &there {
        let newer = there.meta.modified_ns >= old.meta.modified_ns;
        // The last one of -f and -n counts.
        if flags.last_of("fn") == Some('n') || (flags.has('u') && newer) {
            return;
        }
        if there.inode == old.inode {
            let message = format!("mv: {} and {} are the same file", quoted(from), quoted(to));
            return out.complain(1, &message);
        }
    }
    match call.view.rename(&source, &target) {
        Ok(()) if flags.has('v') => {
            let line = format!("renamed {} -> {}\n", quoted(from), quoted(to));
            out.stdout.extend_from_slice(line.as_bytes());
        }
        Ok(()) => {}
        Err(error) => {
            let (from, to) = (quoted(from), quoted(to));
            let message = match error.kind {
                Kind::Invalid => {
                    format!("mv: cannot move {from} to a subdirectory of itself, {to}")
                }
                Kind::IsADirectory => {
                    format!("mv: cannot overwrite directory {to} with non-directory")
                }
                _ => format!("mv: cannot move {from} to {to}: {}", show::reason(&error)),
            };
            out.complain(1, &message);
        }
    }
}
