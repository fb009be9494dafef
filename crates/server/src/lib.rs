//! Doors of fractal for other programs: HTTP on a socket and a port, with
//! keys, limits, and numbers.
//!
//! A request becomes an `Action`, a `Reply` becomes JSON; what may be done is
//! decided by the engine, from the key that came with the request. This crate
//! decides who asks, how much happens at once, and how it ends: a server that
//! is told to stop finishes what runs, and one that is killed loses nothing,
//! because the engine writes everything down before it answers.

mod admission;
mod agents;
mod api;
mod arrival;
mod asker;
mod body;
mod e2b;
mod extract;
mod failure;
mod handed;
mod idempotent;
mod inputs;
mod inside;
mod limits;
mod listen;
mod mcp;
mod measure;
mod metrics;
mod openapi;
mod otlp;
mod owner;
mod reply;
mod routes;
mod serve;
mod state;
mod stream;
mod swerex;
mod terminal;
mod tls;
mod tokens;
mod work;

pub use admission::Budget;
pub use asker::Authenticate;
pub use e2b::{ENVD, dressed_key};
pub use inside::open_doors;
pub use otlp::Collector;
pub use serve::{Settings, serve, serve_mcp};
pub use swerex::REXD;
pub use tls::TlsFiles;
pub use tokens::Tokens;

/// The description of the interface as it is served.
pub fn openapi() -> serde_json::Value {
    openapi::document(&routes::all().operations)
}
