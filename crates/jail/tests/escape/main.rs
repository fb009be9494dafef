//! Escapes: programs that try to get out, one file per attack. Passing means
//! that the attack failed.
//!
//! Each attack runs as root in tiers `clone` and `masked`, as an unprivileged
//! user in tier `rootless`, and as both in tier `copied`; what does not apply
//! there says so and why. Where it does no harm the same attack
//! is also made outside the jail, where it must succeed: an attack that cannot
//! succeed proves nothing.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod harness;
mod arena;
mod attacks;
