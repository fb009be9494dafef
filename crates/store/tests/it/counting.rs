//! How much there is, and what it takes.

use crate::support::{add_sandbox, home, open};
use std::fs;

const MIB: u64 = 1 << 20;

#[test]
fn layers_are_measured_also_while_they_are_written_to() {
    let home = home();
    let store = open(&home);
    let row = add_sandbox(&store, "a", None);
    let before = store.measure_layers().unwrap();
    fs::write(store.layer_tree(row.top).join("f"), vec![1; MIB as usize]).unwrap();
    let after = store.measure_layers().unwrap();
    assert!((before + MIB..before + 2 * MIB).contains(&after), "{before} {after}");
    // Nobody notes what may change.
    assert_eq!(store.census().unwrap().layer_bytes, 0);
    store.transact(|tx| tx.seal_layer(row.top, 0)).unwrap();
    assert_eq!(store.measure_layers().unwrap(), after);
    assert_eq!(store.census().unwrap().layer_bytes, after, "a sealed one is noted");
    assert_eq!(store.measure_layers().unwrap(), after, "and not counted twice");
    // A layer whose directory is gone takes nothing, and hides no other.
    let other = add_sandbox(&store, "b", None);
    fs::remove_dir_all(store.layer_tree(other.top)).unwrap();
    assert_eq!(store.measure_layers().unwrap(), after);
}
