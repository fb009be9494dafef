//! Writing into reality, step by step and against everything that goes wrong.

#![allow(clippy::unwrap_used)]

mod basics;
mod kinds;
mod world;
