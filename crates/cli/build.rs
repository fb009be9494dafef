//! Links the command at a fixed address.
//!
//! A program that can be loaded anywhere has its tables of addresses filled in
//! at every start, and the virtual world brings a megabyte and a half of them:
//! hundreds of pages to copy before `main`, for a command whose start people
//! measure. Heap, stack and libraries stay at random places; SECURITY.md says
//! what that leaves.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let env = std::env::var("CARGO_CFG_TARGET_ENV").unwrap_or_default();
    // Other C libraries are linked in whole, where the linker is told by rustc.
    if os == "linux" && env == "gnu" {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
