//! `fractal serve` from outside: real sockets, real keys, real signals.

mod abuse;
mod askers;
mod client;
mod faults;
mod files;
mod terminals;
mod tls;
mod verbs;
