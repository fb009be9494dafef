//! Shows an empty view at a directory until it is unmounted.
//!
//! `cargo run -p fractal-fs --features fuse --example mount -- DIR`

use fractal_fs::Vfs;
use fractal_fs::fuse::{Options, clean, mount};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).ok_or("usage: mount DIR")?;
    // What an earlier server left when it was killed.
    clean(dir.as_ref())?;
    let mounted = mount(&Vfs::default(), dir.as_ref(), Options::default())?;
    println!("{}", mounted.dir().display());
    Ok(mounted.wait()?)
}
