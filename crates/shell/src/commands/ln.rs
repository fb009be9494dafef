//! `ln`: symlinks, and other names of a file.

use super::Instead;
use super::flags::{Flags, known_or_bashkits};
use super::show::{self, joined, quoted};
use crate::command::{Call, Output};
use crate::name;
use fractal_fs::Kind;
use fractal_model::EntryKind;

const SHORTS: &str = "sfnvTt:LP";
const LONGS: &[(&str, char)] = &[
    ("symbolic", 's'),
    ("force", 'f'),
    ("no-dereference", 'n'),
    ("verbose", 'v'),
    ("no-target-directory", 'T'),
    ("target-directory", 't'),
];

pub(super) fn instead(call: &Call) -> Option<Instead> {
    known_or_bashkits(call, SHORTS, LONGS)
}

pub(super) fn call(call: &Call) -> Output {
    let Some(flags) = Flags::parse(call.args, SHORTS, LONGS) else {
        return Output::fail(1, "ln: invalid option\n");
    };
    let mut targets = flags.operands.clone();
    if targets.is_empty() {
        return Output::fail(1, "ln: missing file operand\n");
    }
    let dir = match flags.value('t') {
        Some(dir) => Some(dir.to_owned()),
        None if targets.len() == 1 => Some(".".into()),
        None => {
            let last = targets.pop().unwrap_or_default();
            let path = call.path(&last);
            let found = match flags.has('n') {
                true => call.view.lstat(&path),
                false => call.view.stat(&path),
            };
            let is_dir = found.is_ok_and(|stat| stat.kind == EntryKind::Directory);
            if !is_dir || flags.has('T') {
                if targets.len() > 1 {
                    let message = format!("ln: target {}: Not a directory\n", quoted(&last));
                    return Output::fail(1, message);
                }
                let mut out = Output::default();
                link(call, &flags, &targets[0], &last, &mut out);
                return out;
            }
            Some(last)
        }
    };
    let mut out = Output::default();
    for target in &targets {
        let last = target.trim_end_matches('/').rsplit('/').next().unwrap_or(target);
        let shown = joined(dir.as_deref().unwrap_or("."), &name::bytes(last));
        link(call, &flags, target, &shown, &mut out);
    }
    out
}

fn link(call: &Call, flags: &Flags, target: &str, shown: &str, out: &mut Output) {
    let path = call.path(shown);
    let make = || match flags.has('s') {
        true => call.view.symlink(&path, name::bytes(target)),
        false => call.view.link(call.path(target), &path),
    };
    let mut made = make();
    if flags.has('f') && made.as_ref().is_err_and(|error| error.kind == Kind::Exists) {
        let same = call.view.lstat(call.path(target)).ok().map(|stat| stat.inode);
        let there = call.view.lstat(&path).ok().map(|stat| stat.inode);
        if !flags.has('s') && same.is_some() && same == there {
            let message = format!("ln: {} and {} are the same file", quoted(target), quoted(shown));
            return out.complain(1, &message);
        }
        made = call.view.remove_file(&path).and_then(|()| make());
    }
    let (kind, arrow) = if flags.has('s') { ("symbolic", "->") } else { ("hard", "=>") };
    match made {
        Ok(()) if flags.has('v') => {
            let line = format!("{} {arrow} {}\n", quoted(shown), quoted(target));
            out.stdout.extend_from_slice(line.as_bytes());
        }
        Ok(()) => {}
        Err(error) if !flags.has('s') && !call.view.exists(call.path(target)) => {
            out.complain(
                1,
                &format!("ln: failed to access {}: {}", quoted(target), show::reason(&error)),
            );
        }
        Err(error) if !flags.has('s') && error.kind == Kind::Denied => {
            out.complain(1, &format!("ln: {target}: hard link not allowed for directory"));
        }
        Err(error) => {
            let reason = show::reason(&error);
            out.complain(
                1,
                &format!("ln: failed to create {kind} link {}: {reason}", quoted(shown)),
            );
        }
    }
}
