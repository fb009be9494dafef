//! The built binary from outside: what people type, what scripts rely on.

mod attempts;
mod bad_input;
mod contract;
mod copied;
#[cfg(feature = "server")]
mod door;
mod full_disk;
mod help;
mod json;
mod keys;
mod killed;
mod many;
mod mounting;
mod network;
mod pipes;
mod promote;
mod python;
mod real;
mod rootless;
#[cfg(feature = "server")]
mod serve;
mod stages;
#[cfg(feature = "tools")]
mod tools;
mod transcripts;
mod trees;
mod virtually;
mod world;
