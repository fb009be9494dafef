//! The built binary from outside: what people type, what scripts rely on.

mod attempts;
mod bad_input;
mod contract;
mod copied;
mod help;
mod json;
mod many;
mod network;
mod pipes;
mod promote;
mod python;
mod real;
mod stages;
mod transcripts;
mod virtually;
mod world;
