//! `fractal serve` from outside: real sockets, real keys, real signals.

mod abuse;
mod apply;
mod askers;
mod client;
mod faults;
mod handed;
mod through;
mod verbs;
