//! Tests of the engine on real sandboxes.
#![allow(clippy::unwrap_used, missing_docs)]

mod archives;
mod attempts;
mod attested;
mod attributes;
mod audit;
mod checks;
#[cfg(feature = "virtual")]
mod code;
mod copied;
mod crash;
mod deep;
mod frozen;
mod gates;
mod histories;
mod ignored;
mod keys;
mod knowledge;
mod links;
mod live;
mod lost_updates;
mod promote;
mod spawner;
mod stages;
mod tenants;
#[cfg(feature = "tools")]
mod tools;
mod turned;
mod undo;
mod update;
mod verbs;
#[cfg(feature = "virtual")]
mod virtually;
mod world;
