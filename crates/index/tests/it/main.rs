//! What the crate promises, from outside.
#![allow(clippy::unwrap_used)] // a test that panics has failed, which is its purpose

mod bundles;
mod dice;
mod drafts;
mod editing;
mod embed;
#[cfg(feature = "http")]
mod endpoint;
mod files;
mod index;
mod pages;
mod quality;
mod reading;
mod tiny;
mod vectors;
mod writing;
