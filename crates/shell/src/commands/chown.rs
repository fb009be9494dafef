//! `chown` and `chgrp`: bashkit's know no owners.

use super::flags::Flags;
use super::show::{self, quoted};
use crate::command::{Call, Output};
use fractal_fs::NewMeta;
use fractal_model::EntryKind;

const LONGS: &[(&str, char)] = &[("recursive", 'R'), ("no-dereference", 'h')];

pub(super) fn call(call: &Call) -> Output {
    let name = call.name;
    let Some(flags) = Flags::parse(call.args, "RhfvcLHP", LONGS) else {
        return Output::fail(1, format!("{name}: invalid option\n"));
    };
    let Some((who, files)) = flags.operands.split_first().filter(|(_, files)| !files.is_empty())
    else {
        return Output::fail(1, format!("{name}: missing operand\n"));
    };
    let new = match meta(call, who) {
        Ok(new) => new,
        Err(what) => {
            let message = format!("{name}: invalid {what}: {}\n", quoted(who));
            return Output::fail(1, message);
        }
    };
    let mut out = Output::default();
    for shown in files {
        let path = match flags.has('h') {
            true => call.path(shown),
            false => call.view.resolve(call.path(shown)).unwrap_or_else(|_| call.path(shown)),
        };
        if let Err(error) = change(call, &path, new, flags.has('R')) {
            let reason = show::reason(&error);
            out.complain(1, &format!("{name}: cannot access {}: {reason}", quoted(shown)));
        }
    }
    out
}

/// What `user`, `user:group`, `:group` or a group's name sets.
fn meta(call: &Call, who: &str) -> Result<NewMeta, &'static str> {
    let id = |name: &str, what| match name {
        "" => Ok(None),
        name => call.own.id(name).map(Some).ok_or(what),
    };
    if call.name == "chgrp" {
        return Ok(NewMeta { gid: id(who, "group")?, ..NewMeta::default() });
    }
    let (user, group) = who.split_once(':').unwrap_or((who, ""));
    Ok(NewMeta { uid: id(user, "user")?, gid: id(group, "group")?, ..NewMeta::default() })
}

fn change(call: &Call, path: &[u8], new: NewMeta, below: bool) -> Result<(), fractal_fs::FsError> {
    let mut waiting = vec![path.to_vec()];
    while let Some(path) = waiting.pop() {
        call.view.set_meta(&path, new)?;
        if below && call.view.lstat(&path)?.kind == EntryKind::Directory {
            let listed = call.view.list(&path)?;
            waiting
                .extend(listed.iter().map(|entry| [&path, &b"/"[..], entry.name.bytes()].concat()));
        }
    }
    Ok(())
}
