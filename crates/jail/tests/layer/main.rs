//! Reading layers: against the real overlayfs, and against programs that
//! prepared them to hurt the reader.

mod attacks;
mod changes;
mod copy;
mod duplicate;
mod flatten;
mod overlay;
mod support;
mod unreadable;
mod whole;
