//! gc: everything reachable stays, everything else goes.

use crate::support::{add_layer, add_sandbox, age, home, open, sandbox_row};
use fractal_model::Id;
use fractal_store::{LayerRow, Reads, SnapshotRow, Store, new_id};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A small generator, so that a failing seed can be named and run again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn pick(&mut self, from: &[Id]) -> Id {
        from[self.roll(from.len())]
    }
}

/// What the store is told, as plain maps.
#[derive(Default)]
struct Model {
    below: BTreeMap<Id, Option<Id>>,
    roots: Vec<Id>,
}

impl Model {
    fn reachable(&self) -> BTreeSet<Id> {
        let mut kept = BTreeSet::new();
        for root in &self.roots {
            let mut at = Some(*root);
            while let Some(id) = at {
                kept.insert(id);
                at = self.below[&id];
            }
        }
        kept
    }
}

fn random_world(store: &Store, dice: &mut Dice) -> Model {
    let mut model = Model::default();
    let mut layers: Vec<Id> = Vec::new();
    for _ in 0..5 + dice.roll(30) {
        let below = (!layers.is_empty() && dice.roll(4) > 0).then(|| dice.pick(&layers));
        let id = add_layer(store, below);
        fs::write(store.layer_tree(id).join("f"), "x").unwrap();
        model.below.insert(id, below);
        layers.push(id);
    }
    for index in 0..dice.roll(6) {
        let base = (dice.roll(2) == 0).then(|| dice.pick(&layers));
        let row = sandbox_row(&format!("s{index}"), base, dice.pick(&layers));
        store.transact(|tx| tx.insert_sandbox(&row)).unwrap();
        let mut roots = vec![row.top];
        roots.extend(base);
        for label in 0..dice.roll(3) {
            let layer = dice.pick(&layers);
            let (sandbox, name) = (row.id, format!("n{label}"));
            let snapshot = SnapshotRow { sandbox, name, layer, created_ms: 1 };
            store.transact(|tx| tx.insert_snapshot(&snapshot)).unwrap();
            roots.push(layer);
        }
        if dice.roll(4) == 0 {
            store.transact(|tx| tx.delete_sandbox(row.id)).unwrap();
        } else {
            model.roots.extend(roots);
        }
    }
    model
}

#[test]
fn exactly_the_reachable_layers_stay() {
    for seed in 1..=40u64 {
        let home = home();
        let store = open(&home);
        let model = random_world(&store, &mut Dice(0x9E37_79B9_7F4A_7C15 ^ (seed << 32)));
        let kept = model.reachable();
        let promised = store.gc(true).unwrap();
        assert_eq!(store.gc(false).unwrap(), promised, "seed {seed}");
        assert_eq!(promised.layers as usize, model.below.len() - kept.len(), "seed {seed}");
        for id in model.below.keys() {
            let stays = kept.contains(id);
            assert_eq!(store.layer(*id).unwrap().is_some(), stays, "seed {seed}, row {id}");
            assert_eq!(store.layer_tree(*id).join("f").exists(), stays, "seed {seed}, {id}");
        }
        assert_eq!(store.gc(false).unwrap().layers, 0, "seed {seed}");
        assert_eq!(store.verify().unwrap(), vec![], "seed {seed}");
    }
}

#[test]
fn a_directory_without_a_row_goes_only_when_it_is_old() {
    let home = home();
    let store = open(&home);
    let (young, old) = (new_id(), new_id());
    for id in [young, old] {
        store.new_layer_dir(id).unwrap();
    }
    age(&store.layer_dir(old));
    assert_eq!(store.gc(true).unwrap().layers, 1);
    assert!(store.layer_dir(old).exists(), "a preview removes nothing");
    assert_eq!(store.gc(false).unwrap().layers, 1);
    assert!(store.layer_dir(young).exists());
    assert!(!store.layer_dir(old).exists());
    let late = LayerRow { id: old, below: None, sealed: false, created_ms: 0, size_bytes: 0 };
    assert!(store.transact(|tx| tx.insert_layer(&late)).is_err(), "its directory is gone");
}

#[test]
fn a_dropped_parent_leaves_what_its_child_stands_on() {
    let home = home();
    let store = open(&home);
    let parent = add_sandbox(&store, "parent", None);
    let child = add_sandbox(&store, "child", Some(parent.top));
    store.transact(|tx| tx.delete_sandbox(parent.id)).unwrap();
    assert_eq!(store.gc(false).unwrap().layers, 0);
    store.transact(|tx| tx.delete_sandbox(child.id)).unwrap();
    assert_eq!(store.gc(false).unwrap().layers, 2);
}

#[test]
fn a_layer_is_forgotten_at_once_only_when_nothing_stands_on_it() {
    let home = home();
    let store = open(&home);
    let bottom = add_layer(&store, None);
    let row = add_sandbox(&store, "x", Some(bottom));
    let forget = |id| store.transact(|tx| tx.delete_layer_if_unused(id)).unwrap();
    assert!(!forget(bottom) && !forget(row.top));
    let snapshot = SnapshotRow { sandbox: row.id, name: "s".into(), layer: row.top, created_ms: 1 };
    store.transact(|tx| tx.insert_snapshot(&snapshot)).unwrap();
    let next = add_layer(&store, Some(row.top));
    store.transact(|tx| tx.set_top(row.id, 0, next)).unwrap();
    assert!(!forget(row.top), "a snapshot and a layer stand on it");
    store.transact(|tx| tx.delete_sandbox(row.id)).unwrap();
    assert!(!forget(row.top), "a layer stands on it");
    assert!(forget(next) && forget(row.top) && forget(bottom));
    assert!(!forget(bottom), "it is gone");
}

#[test]
fn collecting_beside_forks_never_takes_a_layer_in_use() {
    let home = home();
    let store = open(&home);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let store = &store;
            scope.spawn(move || {
                for index in 0..30 {
                    // In one transaction, as the engine forks: a layer never
                    // waits for its sandbox in between.
                    let id = new_id();
                    store.new_layer_dir(id).unwrap();
                    let layer =
                        LayerRow { id, below: None, sealed: false, created_ms: 0, size_bytes: 0 };
                    let row = sandbox_row(&format!("t{thread}-{index}"), None, id);
                    let forked = store.transact(|tx| {
                        tx.insert_layer(&layer)?;
                        tx.insert_sandbox(&row)
                    });
                    forked.unwrap();
                }
            });
        }
        scope.spawn(|| (0..30).for_each(|_| assert!(store.gc(false).is_ok())));
    });
    assert_eq!(store.sandboxes().unwrap().len(), 90);
    assert_eq!(store.verify().unwrap(), vec![]);
}

#[test]
fn the_size_of_a_sandbox_is_that_of_its_own_layers() {
    let home = home();
    let store = open(&home);
    let base = add_sandbox(&store, "base", None).top;
    fs::write(store.layer_tree(base).join("f"), vec![0u8; 1 << 20]).unwrap();
    let row = add_sandbox(&store, "x", Some(base));
    fs::write(store.layer_tree(row.top).join("f"), vec![0u8; 100_000]).unwrap();
    let size = store.own_size(&row).unwrap();
    assert!((100_000..150_000).contains(&size), "{size}");
    store.transact(|tx| tx.seal_layer(row.top, 42)).unwrap();
    assert_eq!(store.own_size(&row).unwrap(), 42);
}

#[test]
fn a_layer_is_flushed_once_until_it_is_written_again() {
    let home = home();
    let store = open(&home);
    let id = add_layer(&store, None);
    let marker = |label: &str| store.layer_dir(id).join(format!("dirty-{label}"));
    store.dirty_layer(id, "a").unwrap();
    store.dirty_layer(id, "b").unwrap();
    assert!(marker("a").exists() && marker("b").exists());
    store.sync_layer(id).unwrap();
    assert!(!marker("a").exists() && !marker("b").exists());
    store.sync_layer(id).expect("nothing to flush is fine");
}
