//! The store of vectors against a plain comparison with all of them.

use crate::dice::Dice;
use fractal_index::vectors::{Flat, VectorsError};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

type Batch = Vec<(u64, Vec<Vec<f32>>)>;
type Model = BTreeMap<u64, Vec<Vec<f32>>>;

fn all(_: u64) -> bool {
    true
}

fn cosine(left: &[f32], right: &[f32]) -> f32 {
    let dot = |left: &[f32], right: &[f32]| -> f32 {
        left.iter().zip(right).map(|(left, right)| left * right).sum()
    };
    dot(left, right) / (dot(left, left) * dot(right, right)).sqrt()
}

/// The best vector of each key, compared one by one.
fn naive(model: &Model, question: &[f32], limit: usize) -> Vec<(u64, f32)> {
    let score = |vectors: &Vec<Vec<f32>>| {
        vectors.iter().map(|vector| cosine(vector, question)).fold(f32::NEG_INFINITY, f32::max)
    };
    let mut found: Vec<_> = model.iter().map(|(key, vectors)| (*key, score(vectors))).collect();
    found.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    found.truncate(limit);
    found
}

fn check(flat: &Flat, model: &Model, dice: &mut Dice) {
    assert_eq!(flat.keys(), model.keys().copied().collect::<Vec<_>>());
    assert_eq!(flat.vectors(), model.values().map(Vec::len).sum::<usize>());
    let question = dice.vector(flat.dimensions());
    let (found, expect) = (flat.nearest(&question, 10, &all).unwrap(), naive(model, &question, 10));
    assert_eq!(found.len(), expect.len());
    for ((key, score), (other, expect)) in found.iter().zip(&expect) {
        assert!(key == other && (score - expect).abs() < 1e-5, "{found:?}\n{expect:?}");
    }
}

fn batch(dice: &mut Dice, keys: u64, dimensions: usize) -> Batch {
    let count = 1 + dice.below(20);
    let one = |dice: &mut Dice| {
        let (key, pieces) = (dice.below(keys), dice.below(4));
        (key, (0..pieces).map(|_| dice.vector(dimensions)).collect())
    };
    (0..count).map(|_| one(dice)).collect()
}

fn apply(model: &mut Model, batch: &Batch) {
    for (key, vectors) in batch {
        model.remove(key);
        if !vectors.is_empty() {
            model.insert(*key, vectors.clone());
        }
    }
}

#[test]
fn it_finds_what_comparing_with_every_vector_finds() {
    let (dir, mut dice) = (TempDir::new().unwrap(), Dice::new(1));
    let mut flat = Flat::create(dir.path(), "m", 64).unwrap();
    let batch: Batch = (0..3000).map(|key| (key * 7, vec![dice.vector(64)])).collect();
    flat.put(&batch).unwrap();
    let model = batch.into_iter().collect();
    let opened = Flat::open(dir.path()).unwrap();
    for _ in 0..40 {
        check(&flat, &model, &mut dice);
        check(&opened, &model, &mut dice);
    }
}

#[test]
fn histories_of_two_writers_end_as_a_plain_map_would() {
    for (seed, dimensions) in [(1, 3), (2, 16), (3, 40)] {
        let (dir, mut dice, mut model) = (TempDir::new().unwrap(), Dice::new(seed), Model::new());
        Flat::create(dir.path(), "m", dimensions).unwrap();
        let mut handles = [Flat::open(dir.path()).unwrap(), Flat::open(dir.path()).unwrap()];
        for _ in 0..60 {
            let flat = &mut handles[dice.below(2) as usize];
            let change = batch(&mut dice, 60, dimensions);
            flat.put(&change).unwrap();
            apply(&mut model, &change);
            let gone: Vec<u64> = (0..dice.below(4)).map(|_| dice.below(60)).collect();
            flat.remove(&gone).unwrap();
            gone.iter().for_each(|key| drop(model.remove(key)));
            check(flat, &model, &mut dice);
        }
        for flat in &mut handles {
            flat.refresh().unwrap();
            check(flat, &model, &mut dice);
        }
        check(&Flat::open(dir.path()).unwrap(), &model, &mut dice);
    }
}

#[test]
fn equals_are_sorted_by_key_and_the_best_piece_of_a_key_counts() {
    let dir = TempDir::new().unwrap();
    let mut flat = Flat::create(dir.path(), "m", 2).unwrap();
    let (right, up) = (vec![2.0, 0.0], vec![0.0, 0.5]);
    flat.put(&[(9, vec![right.clone()]), (4, vec![up.clone(), right.clone()]), (5, vec![up])])
        .unwrap();
    let found = |limit| flat.nearest(&right, limit, &all).unwrap();
    assert_eq!(found(5), [(4, 1.0), (9, 1.0), (5, 0.0)]);
    assert_eq!(found(1), [(4, 1.0)]);
    assert_eq!(found(0), []);
}

#[test]
fn a_filter_narrows_and_is_asked_only_about_the_near() {
    let (dir, mut dice) = (TempDir::new().unwrap(), Dice::new(5));
    let mut flat = Flat::create(dir.path(), "m", 32).unwrap();
    let batch: Batch = (0..2000).map(|key| (key, vec![dice.vector(32)])).collect();
    flat.put(&batch).unwrap();
    let asked = std::cell::Cell::new(0);
    let odd = |key| {
        asked.set(asked.get() + 1);
        key % 2 == 1
    };
    let question = dice.vector(32);
    let found = flat.nearest(&question, 10, &odd).unwrap();
    let model: Model = batch.into_iter().filter(|(key, _)| key % 2 == 1).collect();
    let keys = |found: &[(u64, f32)]| found.iter().map(|(key, _)| *key).collect::<Vec<_>>();
    assert_eq!(keys(&found), keys(&naive(&model, &question, 10)));
    assert!(asked.get() < 200, "asked about {}", asked.get());
    assert_eq!(flat.nearest(&question, 10, &|_| false).unwrap(), []);
}

#[test]
fn what_cannot_be_compared_is_refused_and_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let mut flat = Flat::create(dir.path(), "m", 3).unwrap();
    flat.put(&[(1, vec![vec![1.0, 0.0, 0.0]])]).unwrap();
    for (vector, expect) in [
        (vec![1.0], "a vector has 1 numbers, not 3"),
        (
            vec![f32::NAN, 0.0, 0.0],
            "a vector of key 2 has no direction: its numbers are zero or none",
        ),
        (
            vec![f32::INFINITY, 0.0, 0.0],
            "a vector of key 2 has no direction: its numbers are zero or none",
        ),
        (vec![0.0; 3], "a vector of key 2 has no direction: its numbers are zero or none"),
    ] {
        let batch = [(1, vec![]), (2, vec![vector])];
        assert_eq!(flat.put(&batch).unwrap_err().to_string(), expect);
    }
    let error = flat.nearest(&[1.0, 2.0], 1, &all).unwrap_err();
    assert_eq!(error.to_string(), "a vector has 2 numbers, not 3");
    assert!(
        Flat::create(dir.path(), "m", 0).is_err()
            && Flat::create(dir.path(), "m", 1 << 20).is_err()
    );
    assert_eq!(Flat::open(dir.path()).unwrap().keys(), [1]);
}

#[test]
fn a_directory_without_a_store_is_empty_and_stays_so_until_a_model_is_chosen() {
    let dir = TempDir::new().unwrap();
    let place = dir.path().join("none");
    let mut flat = Flat::open(&place).unwrap();
    assert_eq!((flat.model(), flat.dimensions(), flat.keys()), ("", 0, vec![]));
    assert_eq!(flat.nearest(&[1.0], 1, &all).unwrap(), []);
    assert!(matches!(flat.put(&[(1, vec![vec![1.0]])]), Err(VectorsError::Unset)));
    assert!(!place.exists());
    flat.clear("m", 1).unwrap();
    flat.put(&[(1, vec![vec![1.0]])]).unwrap();
    assert_eq!(Flat::open(&place).unwrap().model(), "m");
}

#[test]
fn clearing_for_another_model_stops_who_still_writes_the_old_one() {
    let dir = TempDir::new().unwrap();
    let mut old = Flat::create(dir.path(), "old", 2).unwrap();
    old.put(&[(1, vec![vec![1.0, 0.0]])]).unwrap();
    let mut new = Flat::open(dir.path()).unwrap();
    new.clear("new", 3).unwrap();
    assert_eq!(old.nearest(&[1.0, 0.0], 1, &all).unwrap(), [(1, 1.0)], "a moment stays as it was");
    let error = old.put(&[(2, vec![vec![1.0, 0.0]])]).unwrap_err();
    assert_eq!(error.to_string(), "the vectors are now those of \"new\", not those of \"old\"");
    assert_eq!((new.keys(), new.dimensions()), (vec![], 3));
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(path).unwrap())
    };
    entries.map(named).collect()
}

#[test]
fn files_are_rewritten_once_a_third_is_dead_and_readers_go_on() {
    let (dir, mut dice) = (TempDir::new().unwrap(), Dice::new(7));
    let mut flat = Flat::create(dir.path(), "m", 16).unwrap();
    let batch: Batch = (0..90).map(|key| (key, vec![dice.vector(16)])).collect();
    flat.put(&batch).unwrap();
    let reader = Flat::open(dir.path()).unwrap();
    flat.remove(&(0..30).collect::<Vec<_>>()).unwrap();
    assert_eq!(files(dir.path())["1.rows"].len(), 90 * 24);
    flat.remove(&[30]).unwrap();
    let after = files(dir.path());
    assert_eq!(after["2.rows"].len(), 59 * 24);
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        ["2.entries", "2.full", "2.rows", "lock", "manifest"]
    );
    check(&reader, &batch.iter().cloned().collect(), &mut dice);
    check(&flat, &batch.into_iter().skip(31).collect(), &mut dice);
    flat.remove(&[1000]).unwrap();
    assert_eq!(files(dir.path()), after, "removing nothing writes nothing");
}

#[test]
fn cut_anywhere_a_store_is_damaged_or_as_it_was() {
    let (dir, mut dice) = (TempDir::new().unwrap(), Dice::new(9));
    let mut flat = Flat::create(dir.path(), "m", 5).unwrap();
    let first: Batch = (0..6).map(|key| (key, vec![dice.vector(5)])).collect();
    flat.put(&first).unwrap();
    let before = files(dir.path());
    flat.put(&[(50, vec![dice.vector(5)]), (2, vec![])]).unwrap();
    let after = files(dir.path());
    let model: Model = first.into_iter().collect();
    // All that was appended may be there in part while the old manifest counts.
    for part in ["1.rows", "1.full", "1.entries"] {
        for end in 0..=after[part].len() {
            let place = TempDir::new().unwrap();
            before
                .iter()
                .for_each(|(name, bytes)| fs::write(place.path().join(name), bytes).unwrap());
            fs::write(place.path().join(part), &after[part][..end]).unwrap();
            match Flat::open(place.path()) {
                Ok(mut flat) => {
                    assert!(end >= before[part].len());
                    check(&flat, &model, &mut dice);
                    flat.put(&[(7, model[&1].clone())]).unwrap();
                    assert_eq!(Flat::open(place.path()).unwrap().keys(), [0, 1, 2, 3, 4, 5, 7]);
                }
                Err(VectorsError::Damaged { .. }) => assert!(end < before[part].len()),
                Err(other) => panic!("{other}"),
            }
        }
    }
    for end in 0..after["manifest"].len() {
        fs::write(dir.path().join("manifest"), &after["manifest"][..end]).unwrap();
        assert!(matches!(Flat::open(dir.path()), Err(VectorsError::Damaged { .. })), "{end}");
    }
    assert!(Flat::create(dir.path(), "m", 5).unwrap().keys().is_empty());
}

#[test]
fn a_byte_that_changed_is_seen_wherever_it_is() {
    let (dir, mut dice) = (TempDir::new().unwrap(), Dice::new(11));
    let mut flat = Flat::create(dir.path(), "m", 4).unwrap();
    let batch: Batch = (0..3).map(|key| (key, vec![dice.vector(4)])).collect();
    flat.put(&batch).unwrap();
    let good = files(dir.path());
    let question = flat.nearest(&batch[0].1[0], 3, &all).unwrap();
    for (name, bytes) in good.iter().filter(|(name, _)| *name != "lock") {
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            fs::write(dir.path().join(name), &bad).unwrap();
            let found =
                Flat::open(dir.path()).and_then(|flat| flat.nearest(&batch[0].1[0], 3, &all));
            match found {
                Err(VectorsError::Damaged { .. }) => {}
                // Of a number the lowest bits are below what bytes can tell.
                Ok(found) => {
                    assert!(name == "1.full", "{name} {at}");
                    let close =
                        |(one, other): (&(u64, f32), &(u64, f32))| (one.1 - other.1).abs() < 0.05;
                    assert!(found.iter().zip(&question).all(close), "{name} {at}");
                }
                Err(other) => panic!("{name} {at}: {other}"),
            }
        }
        fs::write(dir.path().join(name), bytes).unwrap();
    }
}

#[test]
fn files_that_are_gone_are_damage() {
    let dir = TempDir::new().unwrap();
    Flat::create(dir.path(), "m", 4).unwrap();
    fs::remove_file(dir.path().join("1.full")).unwrap();
    assert!(matches!(Flat::open(dir.path()), Err(VectorsError::Damaged { .. })));
}

#[test]
fn a_store_that_was_deleted_and_made_anew_is_read_from_the_beginning() {
    let (dir, mut dice) = (TempDir::new().unwrap(), Dice::new(15));
    let place = dir.path().join("store");
    let mut old = Flat::create(&place, "m", 4).unwrap();
    old.put(&[(1, vec![dice.vector(4)])]).unwrap();
    fs::remove_dir_all(&place).unwrap();
    assert!(matches!(old.put(&[(2, vec![dice.vector(4)])]), Err(VectorsError::Model { .. })));
    let mut old = Flat::create(&place, "m", 4).unwrap();
    old.put(&[(1, vec![dice.vector(4)])]).unwrap();
    fs::remove_dir_all(&place).unwrap();
    let batch: Batch = (5..9).map(|key| (key, vec![dice.vector(4)])).collect();
    Flat::create(&place, "m", 4).unwrap().put(&batch).unwrap();
    old.refresh().unwrap();
    check(&old, &batch.into_iter().collect(), &mut dice);
}

#[test]
fn writers_at_once_lose_nothing_and_readers_see_whole_batches() {
    let dir = TempDir::new().unwrap();
    Flat::create(dir.path(), "m", 8).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..3u64 {
            let dir = dir.path();
            scope.spawn(move || {
                let (mut flat, mut dice) = (Flat::open(dir).unwrap(), Dice::new(writer));
                for round in 0..20 {
                    // Ten keys that are written again and again: much is dead.
                    let keys = writer * 100..writer * 100 + 10;
                    let batch: Batch = keys.map(|key| (key, vec![dice.vector(8)])).collect();
                    flat.put(&batch).unwrap();
                    flat.put(&[(writer * 1000 + 500 + round, vec![dice.vector(8)])]).unwrap();
                }
            });
        }
        scope.spawn(|| {
            let mut dice = Dice::new(99);
            for _ in 0..100 {
                let flat = Flat::open(dir.path()).unwrap();
                assert_eq!(flat.keys().iter().filter(|key| **key < 10).count() % 10, 0);
                flat.nearest(&dice.vector(8), 5, &all).unwrap();
            }
        });
    });
    let flat = Flat::open(dir.path()).unwrap();
    assert_eq!(flat.keys().len(), 3 * (10 + 20));
}

const CHILD: &str = "FRACTAL_TEST_VECTORS";

/// Not a test of its own: what the next one starts and kills.
#[test]
fn a_process_that_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let (mut flat, mut dice) = (Flat::open(Path::new(&dir)).unwrap(), Dice::new(17));
    for round in 0u64.. {
        // All keys of a round have the same vector, and few keys live long.
        let vector = dice.vector(32);
        let batch: Batch = (0..20).map(|key| (key, vec![vector.clone(); 2])).collect();
        flat.put(&batch).unwrap();
        flat.remove(&[round % 20]).unwrap();
    }
}

#[test]
fn a_writer_that_is_killed_leaves_what_it_had_finished() {
    let dir = TempDir::new().unwrap();
    Flat::create(dir.path(), "m", 32).unwrap();
    let mut dice = Dice::new(19);
    for _ in 0..12 {
        let name = "vectors::a_process_that_writes_until_it_is_killed";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(CHILD, dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(20 + dice.below(60)));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut flat = Flat::open(dir.path()).unwrap();
        let found = flat.nearest(&dice.vector(32), 100, &all).unwrap();
        assert!([0, 19, 20].contains(&found.len()), "{} keys", found.len());
        assert!(found.iter().all(|(_, score)| *score == found[0].1), "batches are mixed");
        flat.put(&[(0, vec![dice.vector(32)])]).unwrap();
        flat.remove(&flat.keys()).unwrap();
        assert_eq!(files(dir.path()).len(), 5, "what was left behind is cleaned up");
    }
}

/// Many vectors that lie close together, and a question among them.
fn crowd(flat: &mut Flat, dice: &mut Dice) -> Vec<f32> {
    let middle = dice.vector(384);
    let near = |dice: &mut Dice| -> Vec<f32> {
        let off = dice.vector(384);
        middle.iter().zip(off).map(|(value, off)| value * 5.0 + off).collect()
    };
    let batch: Batch = (0..20_000).map(|key| (key, vec![near(dice)])).collect();
    flat.put(&batch).unwrap();
    near(dice)
}

#[test]
#[ignore = "figures, for a release build"]
fn figures_for_a_hundred_thousand() {
    let (dir, mut dice) = (TempDir::new().unwrap(), Dice::new(13));
    let mut flat = Flat::create(dir.path(), "m", 384).unwrap();
    let start = Instant::now();
    for part in 0..100u64 {
        let keys = part * 1000..(part + 1) * 1000;
        let batch: Batch = keys.map(|key| (key, vec![dice.vector(384)])).collect();
        flat.put(&batch).unwrap();
    }
    println!("100 x put of 1000 (with making them): {:?}", start.elapsed());
    let median = |what: &str, each: &mut dyn FnMut()| {
        let mut times: Vec<_> = (0..21)
            .map(|_| {
                let start = Instant::now();
                each();
                start.elapsed()
            })
            .collect();
        times.sort();
        println!("{what}: median {:?}, worst {:?}", times[10], times[20]);
    };
    median("open", &mut || drop(Flat::open(dir.path()).unwrap()));
    let question = dice.vector(384);
    median("open and first question", &mut || {
        drop(Flat::open(dir.path()).unwrap().nearest(&question, 10, &all).unwrap());
    });
    median("nearest 10", &mut || drop(flat.nearest(&dice.vector(384), 10, &all).unwrap()));
    median("nearest 100", &mut || drop(flat.nearest(&dice.vector(384), 100, &all).unwrap()));
    median("nearest 10 of each tenth key", &mut || {
        drop(flat.nearest(&dice.vector(384), 10, &|key| key % 10 == 0).unwrap());
    });
    median("put of one", &mut || flat.put(&[(5, vec![dice.vector(384)])]).unwrap());
    median("refresh of nothing", &mut || flat.refresh().unwrap());
    let near = crowd(&mut flat, &mut dice);
    median("nearest 10 in a crowd of 20,000", &mut || drop(flat.nearest(&near, 10, &all).unwrap()));
    let start = Instant::now();
    flat.remove(&(0..40_000).collect::<Vec<_>>()).unwrap();
    println!("remove 40,000 and compact: {:?}", start.elapsed());
}
