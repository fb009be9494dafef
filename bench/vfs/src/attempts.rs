//! Eight attempts on one base: 10,000 small files and one of 256 MiB; each
//! searches all small ones, rewrites 50, adds 10, deletes 5 and lists its
//! changes.

use crate::clock::Clock;
use crate::steps::path;
use crate::worlds::World;
use fractal_fs::Vfs;
use sandfs_core::Workspace;

const FILES: usize = 10_000;

pub fn main(rounds: usize) {
    let ours = base::<Vfs>();
    let theirs = base::<Workspace>();
    for round in 0..rounds {
        if round % 2 == 0 {
            run(&ours);
            run(&theirs);
        } else {
            run(&theirs);
            run(&ours);
        }
    }
}

fn base<W: World>() -> W {
    let mut world = crate::steps::fill::<W>(FILES);
    world.write("/project/large.bin", vec![7; 256 << 20]);
    world
}

fn run<W: World>(base: &W) {
    let start = Clock::now();
    for attempt in 0..8 {
        let mut fork = base.fork();
        let mut found = 0;
        for dir in fork.names("/project").iter().filter(|name| name.starts_with('d')) {
            for name in fork.names(&format!("/project/{dir}")) {
                let word = b"of 9999";
                found += usize::from(fork.contains(&format!("/project/{dir}/{name}"), word));
            }
        }
        assert_eq!(found, 1);
        for number in 0..50 {
            fork.write(&path(attempt * 1000 + number * 3), b"rewritten".to_vec());
        }
        for number in 0..10 {
            fork.write(&format!("/project/new/{attempt}-{number}"), b"new".to_vec());
        }
        for number in 0..5 {
            fork.remove(&path(9000 + attempt * 10 + number));
        }
        assert!(fork.changes(base) >= 65);
    }
    println!("attempts {} {}", W::NAME, start.ns());
}
