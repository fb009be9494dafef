//! Links the command at a fixed address.
//!
//! A program that can be loaded anywhere has its tables of addresses filled in
//! at every start, and the virtual world brings a megabyte and a half of them:
//! hundreds of pages to copy before `main`, for a command whose start people
//! measure. Heap, stack and libraries stay at random places; SECURITY.md says
//! what that leaves.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    // Where the C library is linked in whole, rustc has told the linker more.
    let dynamic = !target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if target("OS") == "linux" && target("ENV") == "gnu" && dynamic {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
