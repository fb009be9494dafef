//! Writing into reality, step by step and against everything that goes wrong.

#![allow(clippy::unwrap_used)]

mod basics;
mod details;
mod edits;
mod elsewhere;
mod faults;
mod kill;
mod kinds;
mod names;
mod notes;
mod thousand;
mod world;
