//! Our own commands, one file each.
//!
//! They are here because bashkit's interface to files loses what the tree
//! knows (hard links, owners, inodes, what is mounted, what changed), or
//! because its command is slow or bounded where ours need not be. An option
//! that ours does not have is handed to bashkit's command of the same name,
//! if there is one.

mod changes;
mod chmod;
mod chown;
mod cp;
mod diff;
mod du;
mod find;
mod flags;
mod fork;
mod glob;
mod ln;
mod ls;
mod mkdir;
mod mode;
mod mounts;
mod mv;
mod patch;
mod rm;
mod seq;
mod show;
mod snap;
mod stat;
mod zcat;
mod zip;

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
    /// The same with other arguments.
    With {
        args: Vec<String>,
        /// A file that its standard input comes from.
        input: Option<String>,
        /// Whether its standard output goes nowhere.
        silent: bool,
    },
    /// These commands, one after the other; the first one has our input.
    Run(Vec<Vec<String>>),
}

fn never(_: &Call) -> Option<Instead> {
    None
}

const fn plain(name: &'static str, call: fn(&Call) -> Output) -> OwnCommand {
    OwnCommand { name, call, instead: never }
}

const fn partly(
    name: &'static str,
    call: fn(&Call) -> Output,
    instead: fn(&Call) -> Option<Instead>,
) -> OwnCommand {
    OwnCommand { name, call, instead }
}

pub(crate) static ALL: &[OwnCommand] = &[
    plain("changes", changes::call),
    plain("chgrp", chown::call),
    partly("chmod", chmod::call, chmod::instead),
    plain("chown", chown::call),
    partly("cp", cp::call, cp::instead),
    partly("diff", diff::call, diff::instead),
    partly("du", du::call, du::instead),
    partly("find", find::call, find::instead),
    plain("fork", fork::call),
    partly("ln", ln::call, ln::instead),
    partly("ls", ls::call, ls::instead),
    partly("mkdir", mkdir::call, mkdir::instead),
    plain("mounts", mounts::call),
    partly("mv", mv::call, mv::instead),
    partly("patch", patch::call, patch::instead),
    #[cfg(feature = "python")]
    plain("python", crate::python::call),
    #[cfg(feature = "python")]
    plain("python3", crate::python::call),
    partly("rm", rm::call, rm::instead),
    plain("run-native", fork::call),
    partly("seq", seq::call, seq::instead),
    plain("snap", snap::call),
    partly("stat", stat::call, stat::instead),
    partly("unzip", zip::call, zip::instead),
    partly("zcat", zcat::call, zcat::instead),
    partly("zip", zip::call, zip::instead),
];
