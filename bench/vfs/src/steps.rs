//! Single operations on a tree of many small files, a hundred to a directory.

use crate::clock::Clock;
use crate::worlds::World;
use fractal_fs::Vfs;
use sandfs_core::Workspace;
use std::hint::black_box;

pub fn path(number: usize) -> String {
    format!("/project/d{:05}/file-{number:07}.txt", number / 100)
}

pub fn fill<W: World>(entries: usize) -> W {
    let mut world = W::empty();
    for number in 0..entries {
        world.write(&path(number), format!("content of {number}").into_bytes());
    }
    world
}

pub fn main(entries: usize, rounds: usize) {
    // Both are filled first; then every round asks both, in turn.
    let ours = filled::<Vfs>(entries);
    let theirs = filled::<Workspace>(entries);
    for round in 0..rounds {
        if round % 2 == 0 {
            ask(&ours, entries, round);
            ask(&theirs, entries, round);
        } else {
            ask(&theirs, entries, round);
            ask(&ours, entries, round);
        }
    }
}

fn tell<W: World>(step: &str, start: Clock, times: usize) {
    let each = start.ns() as f64 / times as f64;
    println!("{step} {} {each:.1}", W::NAME);
}

fn filled<W: World>(entries: usize) -> W {
    let start = Clock::now();
    let world = fill::<W>(entries);
    tell::<W>("fill", start, entries);
    world
}

/// Numbers all over the tree, the same for both.
fn spread(entries: usize, count: usize, round: usize) -> Vec<String> {
    let place = |at: usize| path((at * 7919 + round * 104_729) % entries);
    (0..count).map(place).collect()
}

fn ask<W: World>(base: &W, entries: usize, round: usize) {
    const COUNT: usize = 2000;
    let paths = spread(entries, COUNT, round);

    let start = Clock::now();
    for _ in 0..COUNT {
        black_box(base.fork());
    }
    tell::<W>("fork", start, COUNT);

    let start = Clock::now();
    for path in &paths {
        black_box(base.read(path));
    }
    tell::<W>("read", start, COUNT);

    let start = Clock::now();
    for path in &paths {
        black_box(base.stat(path));
    }
    tell::<W>("stat", start, COUNT);

    let dirs: Vec<&str> =
        paths.iter().take(200).filter_map(|p| p.rsplit_once('/')).map(|p| p.0).collect();
    let start = Clock::now();
    for dir in &dirs {
        black_box(base.list(dir));
    }
    tell::<W>("list of 100", start, dirs.len());

    let contents: Vec<Vec<u8>> = paths.iter().map(|path| path.clone().into_bytes()).collect();
    let mut fork = base.fork();
    let start = Clock::now();
    for (path, content) in paths.iter().zip(contents.clone()) {
        fork.write(path, content);
    }
    tell::<W>("first write after a fork", start, COUNT);

    let start = Clock::now();
    for (path, content) in paths.iter().zip(contents.clone()) {
        fork.write(path, content);
    }
    tell::<W>("write again", start, COUNT);

    let start = Clock::now();
    black_box(fork.changes(base));
    tell::<W>("changes, for each of 2,000", start, COUNT);

    let mut fork = base.fork();
    fork.write(&paths[0], contents[0].clone());
    let start = Clock::now();
    for _ in 0..100 {
        black_box(fork.changes(base));
    }
    tell::<W>("changes, of one", start, 100);
}
