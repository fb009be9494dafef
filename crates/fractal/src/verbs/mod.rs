//! One file per verb.

pub mod attempt;
pub mod compare;
pub mod copy;
pub mod diff;
pub mod drop;
pub mod export;
pub mod fork;
pub mod gc;
pub mod guard;
pub mod import;
pub mod list;
pub mod log;
pub mod promote;
pub mod rollback;
pub mod run;
pub mod seal;
pub mod show;
pub mod snapshot;
pub mod stages;
#[cfg(feature = "virtual")]
pub mod tree;
pub mod undo;
pub mod update;
pub mod verify;
pub mod volume;
pub mod vote;
