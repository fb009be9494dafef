//! How long the everyday steps take: `cargo run --release --example latency`.

use fractal_model::RecordBody;
use fractal_store::{LayerRow, Reads, Result, Store, new_id, now_ms};
use std::path::Path;
use std::time::Instant;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let first = Instant::now();
    drop(Store::open(home.path())?);
    println!("{:<28} {:>8} µs", "first open", first.elapsed().as_micros());
    let store = Store::open(home.path())?;
    time("transact, one record", 500, || store.transact(append).map(drop))?;
    time("transact_relaxed, one record", 500, || store.transact_relaxed(append).map(drop))?;
    time("new layer and its row", 500, || add_layer(&store))?;
    time("sandbox by name (absent)", 5000, || store.sandbox_named("", "x").map(drop))?;
    time("recover, nothing wrong", 5000, || store.recover().map(drop))?;
    time("open beside another", 500, || Store::open(home.path()).map(drop))?;
    drop(store);
    time("open alone", 500, || Store::open(home.path()).map(drop))?;
    time("open, relaxed record, close", 500, || one_command(home.path(), true))?;
    time("open, record, close", 500, || one_command(home.path(), false))?;
    Ok(())
}

/// Prints median and 95th percentile.
fn time(what: &str, rounds: usize, mut job: impl FnMut() -> Result<()>) -> Result<()> {
    let mut spent = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        job()?;
        spent.push(start.elapsed().as_nanos() as f64 / 1000.0);
    }
    spent.sort_by(f64::total_cmp);
    let (median, slow) = (spent[rounds / 2], spent[rounds * 95 / 100]);
    println!("{what:<28} {median:>8.1} µs   p95 {slow:>8.1} µs");
    Ok(())
}

fn append(tx: &fractal_store::Tx<'_>) -> Result<fractal_model::Record> {
    tx.append(RecordBody {
        time_ms: now_ms(),
        who: "owner".into(),
        key: None,
        tenant: None,
        action: "run".into(),
        place: None,
        sandbox: Some(new_id()),
        name: Some("x".into()),
        before: None,
        after: None,
        error: None,
        detail: serde_json::json!({ "command": ["true"], "exit": 0 }),
    })
}

fn add_layer(store: &Store) -> Result<()> {
    let (id, created_ms) = (new_id(), now_ms());
    store.new_layer_dir(id)?;
    let row = LayerRow { id, below: None, sealed: false, created_ms, size_bytes: 0 };
    store.transact_relaxed(|tx| tx.insert_layer(&row))
}

fn one_command(home: &Path, relaxed: bool) -> Result<()> {
    let store = Store::open(home)?;
    if relaxed { store.transact_relaxed(append) } else { store.transact(append) }.map(drop)
}
