//! The virtual filesystem against the real one, a plain model, and itself.

#![allow(clippy::unwrap_used, missing_docs)]

mod changes;
mod common;
mod dice;
mod forks;
#[cfg(unix)]
mod host;
mod oracle;
mod providers;
mod rules;
mod sources;
mod threads;
