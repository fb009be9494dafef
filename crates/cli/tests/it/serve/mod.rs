//! `fractal serve` from outside: real sockets, real keys, real signals.

mod abuse;
mod apply;
mod askers;
mod budgets;
mod client;
mod doors;
mod faults;
mod files;
mod handed;
mod killed;
mod knowledge;
mod leaving;
mod mcp;
mod otlp;
mod servers;
mod standstill;
mod table;
mod terminals;
mod through;
mod tls;
mod tokens;
mod untold;
mod verbs;
