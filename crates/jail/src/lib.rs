//! The native runner: real processes in a copy-on-write clone of the machine.
//!
//! A [`Spec`] (command, stack of layers, bounds) and [`host::Facts`] become a
//! [`plan::Plan`], which is plain data and can be printed; [`spawn`] carries
//! it out in a child. This crate knows nothing about sandboxes, names or the
//! journal. It is the only one with `unsafe` code (in `sys`) and the only one
//! that starts processes.

// libc's integer types differ between targets; a cast that is idle on one is
// needed on another.
#![allow(clippy::unnecessary_cast)]

pub mod cgroup;
mod child;
pub mod copied;
pub mod host;
pub mod landlock;
pub mod layer;
mod living;
pub mod plan;
mod pool;
pub mod probe;
pub mod proxy;
mod pump;
mod request;
mod run;
pub mod seccomp;
mod spawner;
mod spec;
pub mod step;
mod sys;
pub mod terminal;
pub mod trusted;
mod watch;
mod wire;

pub use living::{Frozen, Living, NotFrozen, end};
pub use pump::{Captured, Input, OpenDoor, Output, Streams};
pub use run::{
    Ended, Reached, Report, Running, Why, explain, run, run_when, run_with_door, settle, spawn,
};
pub use spawner::{Starts, starts, warm};
pub use spec::{LastWords, Placed, Spec, Stack, Top, door_path};

use fractal_model::{Code, Error};

/// Why a run could not be started. Nothing has changed when one is returned.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// A path or argument holds a NUL byte.
    #[error("a path or argument contains a NUL byte")]
    NulInPath,
    /// A system call of our own failed.
    #[error("could not {what}: {}", step::errno_text(*errno))]
    System {
        /// What we tried.
        what: String,
        /// Why it failed.
        errno: i32,
    },
    /// The working directory does not exist inside.
    #[error("the working directory {path} is no directory in the sandbox")]
    NoDirectory {
        /// Which.
        path: String,
    },
    /// The helper process vanished.
    #[error("the run's supervisor ended unexpectedly")]
    Lost,
    /// The tier that this machine reaches cannot do what was asked.
    #[error("{what}")]
    Unsupported {
        /// What.
        what: String,
        /// The next command to type.
        hint: String,
    },
    /// The machine cannot give the isolation that was asked.
    #[error("this machine cannot give isolation `{asked}`: {why}")]
    Isolation {
        /// The tier asked for.
        asked: &'static str,
        /// The first probe that failed.
        why: String,
    },
}

impl From<JailError> for Error {
    fn from(error: JailError) -> Error {
        let message = error.to_string();
        match error {
            JailError::NulInPath => Error::new(Code::Invalid, message),
            JailError::NoDirectory { .. } => {
                Error::new(Code::NotFound, message).hint("name an existing directory with `-w DIR`")
            }
            JailError::Unsupported { hint, .. } => {
                Error::new(Code::Unsupported, message).hint(hint)
            }
            JailError::Isolation { .. } => {
                Error::new(Code::Unsupported, message).hint("see `fractal doctor` for the fix")
            }
            JailError::System { errno: libc::ENOSPC, .. } => Error::new(Code::Limit, message)
                .hint("free some space, for example with `fractal gc`"),
            JailError::System { .. } | JailError::Lost => Error::new(Code::Internal, message)
                .hint("see `fractal doctor` for what this machine offers"),
        }
    }
}
