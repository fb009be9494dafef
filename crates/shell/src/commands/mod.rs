//! Our own commands, one file each.
//!
//! They are here because bashkit's interface to files loses what the tree
//! knows (hard links, owners, inodes, what is mounted, what changed), or
//! because its command is slow or bounded where ours need not be. An option
//! that ours does not have is handed to bashkit's command of the same name,
//! if there is one.

mod changes;
mod chown;
mod cp;
mod du;
mod find;
mod flags;
mod fork;
mod glob;
mod ln;
mod ls;
mod mounts;
mod seq;
mod show;
mod snap;
mod stat;

use crate::command::{Call, Output};

/// One of our commands.
pub(crate) struct OwnCommand {
    pub(crate) name: &'static str,
    pub(crate) call: fn(&Call) -> Output,
    /// What to do instead of calling it, if it cannot do this itself.
    pub(crate) instead: fn(&Call) -> Option<Instead>,
}

/// What happens in place of a command of ours.
pub(crate) enum Instead {
    /// bashkit's command of the same name.
    Bashkits,
    /// These commands, one after the other.
    Run(Vec<Vec<String>>),
}

fn never(_: &Call) -> Option<Instead> {
    None
}

const fn plain(name: &'static str, call: fn(&Call) -> Output) -> OwnCommand {
    OwnCommand { name, call, instead: never }
}

pub(crate) static ALL: &[OwnCommand] = &[
    plain("changes", changes::call),
    plain("chgrp", chown::call),
    plain("chown", chown::call),
    OwnCommand { name: "cp", call: cp::call, instead: cp::instead },
    OwnCommand { name: "du", call: du::call, instead: du::instead },
    OwnCommand { name: "find", call: find::call, instead: find::instead },
    plain("fork", fork::call),
    OwnCommand { name: "ln", call: ln::call, instead: ln::instead },
    OwnCommand { name: "ls", call: ls::call, instead: ls::instead },
    plain("mounts", mounts::call),
    plain("run-native", fork::call),
    OwnCommand { name: "seq", call: seq::call, instead: seq::instead },
    plain("snap", snap::call),
    OwnCommand { name: "stat", call: stat::call, instead: stat::instead },
];

/// Whether a command of this name is ours.
pub(crate) fn is_own(name: &str) -> bool {
    ALL.iter().any(|command| command.name == name)
}
