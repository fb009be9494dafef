//! The virtual filesystem against the real one, a plain model, and itself.

#![allow(clippy::unwrap_used, missing_docs)]

#[cfg(all(unix, feature = "archive"))]
mod archives;
mod changes;
mod common;
mod dice;
#[cfg(unix)]
mod find;
mod forks;
#[cfg(all(unix, feature = "git"))]
mod git;
#[cfg(unix)]
mod host;
mod inodes;
mod oracle;
#[cfg(unix)]
mod paths;
mod providers;
mod rules;
mod sources;
mod threads;
#[cfg(all(unix, feature = "archive"))]
mod transfer;
