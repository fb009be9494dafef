//! How long it takes, when `FRACTAL_TEST_SPEED` is set.

use super::bolt::Bolt;
use super::notes::{Notes, key};
use fractal_index::GraphStore;
use fractal_index::servers::Pace;
use std::time::{Duration, Instant};

const RECORDS: usize = 10_000;

pub fn of(bolt: &Bolt) {
    if std::env::var_os("FRACTAL_TEST_SPEED").is_none() {
        return;
    }
    let notes = Notes::new();
    for at in 0..RECORDS {
        let head = format!("relations:\n  - type: touches\n    file: src/f{}.rs\n", at % 500);
        let link = |step: usize| format!("[x](n{}.md)", (at * step + 1) % RECORDS);
        let body = format!("{} {} {}", link(3), link(7), link(11));
        notes.write(&format!("n{at}"), &format!("Record {at}"), &head, &body);
    }
    let started = Instant::now();
    let index = notes.index();
    let counts = index.counts().expect("it is read");
    println!("{counts:?} indexed in {:?}", started.elapsed());
    let store = bolt.store("speed");
    for batch in [500, 500, 2000] {
        index.unfollow(&store).expect("it is there");
        let started = Instant::now();
        let pace = Pace { batch, ..Pace::default() };
        index.follow(&store, pace, &mut |_, _| ()).expect("it is there");
        println!("followed in batches of {batch} in {:?}", started.elapsed());
    }
    let started = Instant::now();
    index.follow(&store, Pace::default(), &mut |_, _| ()).expect("it is there");
    println!("nothing to follow in {:?}", started.elapsed());
    println!("touching, embedded: {:?}", median(&index));
    println!("touching, server: {:?}", median(&store));
    let started = Instant::now();
    let verified = index.verify_server(&store).expect("it answers");
    println!("verified in {:?}: {:?}", started.elapsed(), verified.differs);
}

fn median(graph: &dyn GraphStore) -> Duration {
    let mut times: Vec<Duration> = (0..300)
        .map(|at| {
            let started = Instant::now();
            graph.touching(&[key(&format!("n{}", at * 31 % RECORDS))], 1000).expect("it answers");
            started.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}
