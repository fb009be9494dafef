//! Tests of the engine on real sandboxes.
#![allow(clippy::unwrap_used, missing_docs)]

mod attempts;
mod checks;
mod copied;
mod crash;
mod deep;
mod histories;
mod live;
mod spawner;
mod verbs;
mod world;
