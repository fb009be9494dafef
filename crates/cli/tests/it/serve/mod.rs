//! `fractal serve` from outside: real sockets, real keys, real signals.

mod abuse;
mod askers;
mod client;
mod faults;
mod files;
mod killed;
mod mcp;
mod table;
mod terminals;
mod tls;
mod verbs;
