//! Resident memory of a tree of many small files.

use crate::steps::fill;
use crate::worlds::World;
use fractal_fs::Vfs;
use sandfs_core::Workspace;

pub fn main(who: &str, entries: usize) {
    let each = match who {
        "ours" => measure::<Vfs>(entries),
        _ => measure::<Workspace>(entries),
    };
    println!("memory {who} {each:.0}");
}

fn measure<W: World>(entries: usize) -> f64 {
    let before = resident();
    let world = fill::<W>(entries);
    let after = resident();
    drop(world);
    (after - before) as f64 / entries as f64
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: usize = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("pages");
    pages * 4096
}
