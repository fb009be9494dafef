//! The built binary from outside: what people type, what scripts rely on.

mod bad_input;
mod contract;
mod copied;
mod help;
mod json;
mod many;
mod pipes;
mod transcripts;
mod world;
