//! A mounted view in the hands of real programs, random ones and hostile ones.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../it/dice.rs"]
mod dice;

mod hostile;
mod killed;
mod mounted;
mod oracle;
mod outside;
mod posix;
mod programs;
mod random_io;
mod threads;
