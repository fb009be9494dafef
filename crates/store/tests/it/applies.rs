//! Rows of writes into reality: who works on one, and what is kept of it.

use crate::support::{home, open, record};
use fractal_model::{Code, Error};
use fractal_store::{ApplyRow, ApplyState, Problem, Reads, Store, StoreError, Worker, new_id};
use std::fs;

fn row(root: &str) -> ApplyRow {
    ApplyRow {
        id: new_id(),
        state: ApplyState::Staging,
        root: root.into(),
        stages: vec![String::new(), "mnt%0a".to_owned()],
        worker: Worker::own(),
        created_ms: 5,
        sandbox: Some(new_id()),
        seq: None,
        undoes: None,
        undone_by: None,
        kept: true,
        tenant: String::new(),
    }
}

fn begin(store: &Store, root: &str) -> ApplyRow {
    let row = row(root);
    store.transact(|tx| tx.insert_apply(&row)).unwrap();
    row
}

fn finish(store: &Store, row: &ApplyRow) {
    let done = |tx: &fractal_store::Tx<'_>| {
        let record = tx.append(record("promote", row.sandbox))?;
        tx.finish_apply(row, ApplyState::Done, record.seq)
    };
    store.transact(done).unwrap();
}

#[test]
fn a_row_reads_back_and_ends_with_its_record() {
    let home = home();
    let store = open(&home);
    let first = begin(&store, "/a");
    assert_eq!(store.unfinished_applies().unwrap(), vec![first.clone()]);
    finish(&store, &first);
    let undo = ApplyRow { undoes: Some(first.id), ..row("/a") };
    store.transact(|tx| tx.insert_apply(&undo)).unwrap();
    finish(&store, &undo);
    assert!(store.unfinished_applies().unwrap().is_empty());
    let [newer, older] = &store.applies().unwrap()[..] else { panic!("two rows") };
    assert_eq!((newer.seq, newer.undoes), (Some(2), Some(first.id)));
    assert_eq!((older.seq, older.undone_by), (Some(1), Some(undo.id)));
}

#[test]
fn writes_into_one_directory_exclude_each_other() {
    let home = home();
    let store = open(&home);
    let held = begin(&store, "/a/b");
    let check = |root: &str, free: bool| {
        let row = row(root);
        let inserted = store.transact(|tx| {
            tx.insert_apply(&row)?;
            tx.delete_apply(row.id)
        });
        assert_eq!(inserted.is_ok(), free, "{root}");
        if let Err(error) = inserted {
            assert!(matches!(&error, StoreError::Applying { id, .. } if *id == held.id));
            assert_eq!(Error::from(error).code, Code::Busy);
        }
    };
    check("/a/b", false);
    check("/a/b/c", false);
    check("/a", false);
    check("/", false);
    check("/a/bc", true);
    check("/a/c", true);
}

#[test]
fn of_many_who_take_over_one_does() {
    let home = home();
    let store = open(&home);
    let dead = Worker { pid: i32::MAX - 1, start: 1 };
    assert!(!dead.is_alive() && !Worker::default().is_alive() && Worker::own().is_alive());
    let left = ApplyRow { worker: dead, ..row("/a") };
    store.transact(|tx| tx.insert_apply(&left)).unwrap();
    let claim = |pid| {
        let to = Worker { pid, start: 9 };
        store.transact(|tx| tx.claim_apply(left.id, dead, to)).unwrap()
    };
    let claims: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=8).map(|pid| scope.spawn(move || claim(pid))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(claims.iter().filter(|claimed| **claimed).count(), 1, "{claims:?}");
    // The one it was taken from cannot go on.
    let stale = store.transact(|tx| tx.set_apply_state(left.id, dead, ApplyState::Swapping));
    assert!(stale.is_err());
}

#[test]
fn verify_names_what_is_stuck_and_what_is_missing() {
    let home = home();
    let store = open(&home);
    begin(&store, "/alive");
    let dead = ApplyRow { worker: Worker::default(), ..row("/dead") };
    store.transact(|tx| tx.insert_apply(&dead)).unwrap();
    let done = begin(&store, "/done");
    finish(&store, &done);
    let missing = Problem::UndoDirectory { apply: done.id };
    let stuck = Problem::Unfinished { apply: dead.id, root: "/dead".into() };
    // Two ids of one millisecond have no order.
    let found = store.verify().unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.contains(&missing) && found.contains(&stuck), "{found:?}");
}

#[test]
fn gc_takes_directories_that_no_row_knows_and_no_other() {
    let home = home();
    let store = open(&home);
    let known = begin(&store, "/a");
    let (young, old) = (new_id(), new_id());
    for id in [known.id, young, old] {
        store.new_undo_dir(id).unwrap();
    }
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    for id in [known.id, old] {
        fs::File::open(store.undo_dir(id)).unwrap().set_modified(then).unwrap();
    }
    assert_eq!(store.verify().unwrap(), vec![Problem::Unlisted { path: store.undo_dir(old) }]);
    store.gc(false).unwrap();
    let left = |id| store.undo_dir(id).exists();
    assert_eq!((left(known.id), left(young), left(old)), (true, true, false));
}

#[test]
fn what_was_kept_goes_and_what_was_written_stays_known() {
    let home = home();
    let store = open(&home);
    let dir = store.new_undo_dir(new_id()).unwrap();
    let id = fractal_model::Id::parse(dir.file_name().unwrap().to_str().unwrap()).unwrap();
    fs::write(dir.join("plan"), "plan").unwrap();
    fs::create_dir(dir.join("0")).unwrap();
    fs::write(dir.join("0/0"), "x".repeat(10_000)).unwrap();
    let before = store.undo_size(id).unwrap();
    store.discard_kept(id).unwrap();
    assert!(store.undo_size(id).unwrap() < before);
    assert!(dir.join("plan").exists() && !dir.join("0").exists());
    store.discard_undo(id).unwrap();
    assert_eq!(store.undo_size(id).unwrap(), 0);
}
