//! Tests of the engine on real sandboxes.
#![allow(clippy::unwrap_used, missing_docs)]

mod copied;
mod crash;
mod histories;
mod verbs;
mod world;
