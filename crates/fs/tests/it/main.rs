//! The virtual filesystem against the real one, a plain model, and itself.

#![allow(clippy::unwrap_used, missing_docs)]

mod changes;
mod dice;
mod forks;
mod inodes;
mod oracle;
mod rules;
mod sources;
mod threads;
