//! Patches against the real git: what we write it must accept, and for text
//! it must be what git itself would have written.

mod apply;
mod limits;
mod same_as_git;
mod trees;
