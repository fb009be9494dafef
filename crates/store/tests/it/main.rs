//! The state directory from outside: many processes, crashes, damage.
#![allow(missing_docs, clippy::unwrap_used)]

mod applies;
mod collecting;
mod counting;
mod crash;
mod damage;
mod hostile;
mod opening;
mod support;
mod writing;
