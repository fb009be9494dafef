//! Servers that are kept in step, against real ones where they can be had.
//!
//! Each server is started once, by the one test that is about it; whatever
//! happens, it is gone with that test.
//!
//! `cargo test -p fractal-index --features neo4j,qdrant --test servers`; what is
//! needed for that (Maven and a JDK, Python) and not there is said. More is
//! measured with `FRACTAL_TEST_SPEED=1 … -- --nocapture`.

mod arcadedb;
mod bolt;
mod broken;
mod contract;
mod neo4j;
mod notes;
mod process;
mod qdrant;
mod qdrant_double;
mod relations;
mod speed;

/// Something that is promised, and what checks it.
type Case<T> = (&'static str, fn(&T));

/// Runs cases one after the other, and says which of them do not hold.
fn failures<T: ?Sized>(server: &T, cases: &[Case<T>]) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for (name, case) in cases {
        let started = std::time::Instant::now();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(server))).is_ok();
        println!("{}: {name} ({:?})", if done { "ok" } else { "FAILED" }, started.elapsed());
        if !done {
            failed.push(*name);
        }
    }
    failed
}
