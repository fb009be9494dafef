//! Rows and records: what is written is read back, or nothing is.

use crate::support::{
    add_layer, add_sandbox, child, home, name, open, record, sandbox_row, wait_all,
};
use fractal_model::{Mount, MountAccess, MountSource, Network, Policy, Record};
use fractal_store::{LayerRow, Reads, RunRow, SnapshotRow, StoreError, VolumeRow, new_id};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[test]
fn every_row_reads_back_as_it_was_written() {
    let home = home();
    let store = open(&home);
    let (bottom, top) = (add_layer(&store, None), new_id());
    store.new_layer_dir(top).unwrap();
    let layer =
        LayerRow { id: top, below: Some(bottom), sealed: false, created_ms: 7, size_bytes: 9 };
    let mut row = sandbox_row("x", Some(bottom), top);
    row.parent = Some(new_id());
    row.ttl_ms = Some(1000);
    row.policy = Policy { network: Network::None, ..Policy::default() };
    row.directory = PathBuf::from(OsStr::from_bytes(b"/not/utf8/\xff"));
    let source = MountSource::Volume("v".into());
    row.mounts = vec![Mount { at: "/data".into(), source, access: MountAccess::Write }];
    let snapshot = SnapshotRow { sandbox: row.id, name: "s".into(), layer: bottom, created_ms: 3 };
    let run = RunRow {
        id: new_id(),
        sandbox: row.id,
        pid: 1,
        pid_start: 2,
        epoch: 3,
        cgroup: None,
        started_ms: 4,
    };
    let volume = VolumeRow { name: name("v"), created_ms: 8, tenant: String::new() };
    let written = store.transact(|tx| {
        tx.insert_layer(&layer)?;
        tx.insert_sandbox(&row)?;
        tx.insert_snapshot(&snapshot)?;
        tx.insert_run(&run)?;
        tx.insert_volume(&volume)?;
        tx.append(record("fork", Some(row.id)))
    });
    let written = written.unwrap();
    assert_eq!(store.sandbox(row.id).unwrap().as_ref(), Some(&row));
    assert_eq!(store.sandbox_named("", "x").unwrap().as_ref(), Some(&row));
    assert_eq!(store.sandbox_named("other", "x").unwrap(), None);
    assert_eq!(store.latest_in("", &row.directory, 1).unwrap(), vec![row.clone()]);
    assert_eq!(store.latest_in("other", &row.directory, 1).unwrap(), vec![]);
    assert_eq!(store.latest_in("", Path::new("/not"), 1).unwrap(), vec![]);
    assert_eq!(store.sandboxes().unwrap(), vec![row.clone()]);
    assert_eq!(store.children(row.parent.unwrap()).unwrap(), vec![row.clone()]);
    let stack: Vec<_> = store.stack(top).unwrap().iter().map(|layer| layer.id).collect();
    assert_eq!(stack, vec![top, bottom]);
    assert_eq!(store.layer(top).unwrap(), Some(layer));
    assert_eq!(store.snapshots(row.id).unwrap(), vec![snapshot.clone()]);
    assert_eq!(store.snapshot(row.id, "s").unwrap(), Some(snapshot));
    assert_eq!(store.runs().unwrap(), vec![run.clone()]);
    assert_eq!(store.runs_of(row.id).unwrap(), vec![run]);
    assert_eq!(store.volume("", "v").unwrap(), Some(volume));
    assert_eq!(store.journal(Some(row.id), 10).unwrap(), vec![written.clone()]);
    assert_eq!(store.journal(Some(new_id()), 10).unwrap(), vec![]);
    assert_eq!((written.seq, written.prev.as_str()), (1, Record::GENESIS));
}

#[test]
fn an_error_inside_a_transaction_leaves_nothing_behind() {
    let home = home();
    let store = open(&home);
    let refused = store.transact(|tx| {
        tx.insert_volume(&VolumeRow { name: name("v"), created_ms: 1, tenant: String::new() })?;
        tx.append(record("volume", None))?;
        Err::<(), _>(fractal_model::Error::denied("no").into())
    });
    assert!(matches!(refused, Err(StoreError::Refused(error)) if error.message == "no"));
    assert_eq!(store.volumes().unwrap(), vec![]);
    assert_eq!(store.journal(None, 10).unwrap(), vec![]);
}

#[test]
fn names_are_unique_and_references_must_exist() {
    let home = home();
    let store = open(&home);
    let first = add_sandbox(&store, "x", None);
    let second = sandbox_row("x", None, first.top);
    let error = store.transact(|tx| tx.insert_sandbox(&second)).unwrap_err();
    assert!(matches!(error, StoreError::Exists { what: "sandbox", .. }), "{error}");
    let other = add_sandbox(&store, "y", None);
    let renamed = fractal_store::SandboxRow { name: "x".into(), ..other.clone() };
    let error = store.transact(|tx| tx.update_sandbox(&renamed)).unwrap_err();
    assert!(matches!(error, StoreError::Exists { what: "sandbox", .. }), "{error}");
    let nowhere = sandbox_row("z", None, new_id());
    let error = store.transact(|tx| tx.insert_sandbox(&nowhere)).unwrap_err();
    assert!(matches!(error, StoreError::NotFound { what: "layer", .. }), "{error}");
    let bare = LayerRow { id: new_id(), below: None, sealed: false, created_ms: 0, size_bytes: 0 };
    let error = store.transact(|tx| tx.insert_layer(&bare)).unwrap_err();
    assert!(error.to_string().contains("directory of layer"), "{error}");
}

#[test]
fn a_top_moves_only_for_who_knows_the_epoch() {
    let home = home();
    let store = open(&home);
    let row = add_sandbox(&store, "x", None);
    let next = add_layer(&store, Some(row.top));
    assert_eq!(store.transact(|tx| tx.set_top(row.id, 0, next)).unwrap(), 1);
    let late = store.transact(|tx| tx.set_top(row.id, 0, row.top)).unwrap_err();
    assert!(matches!(late, StoreError::Stale { expected: 0, found: 1, .. }), "{late}");
    // An update with an old row moves neither top nor epoch back.
    store.transact(|tx| tx.update_sandbox(&row)).unwrap();
    let now = store.sandbox(row.id).unwrap().unwrap();
    assert_eq!((now.top, now.epoch), (next, 1));
}

#[test]
fn a_top_does_not_move_under_a_run() {
    let home = home();
    let store = open(&home);
    let row = add_sandbox(&store, "x", None);
    let next = add_layer(&store, Some(row.top));
    let run = RunRow {
        id: new_id(),
        sandbox: row.id,
        pid: std::process::id() as i32,
        pid_start: 0,
        epoch: 0,
        cgroup: None,
        started_ms: 0,
    };
    store.transact(|tx| tx.insert_run(&run)).unwrap();
    let early = store.transact(|tx| tx.set_top(row.id, 0, next)).unwrap_err();
    assert!(matches!(early, StoreError::Running { .. }), "{early}");
    store.transact(|tx| tx.delete_run(run.id)).unwrap();
    assert_eq!(store.transact(|tx| tx.set_top(row.id, 0, next)).unwrap(), 1);
}

#[test]
fn dropping_a_sandbox_takes_its_snapshots_and_is_idempotent() {
    let home = home();
    let store = open(&home);
    let row = add_sandbox(&store, "x", None);
    let snapshot = SnapshotRow { sandbox: row.id, name: "s".into(), layer: row.top, created_ms: 1 };
    store.transact(|tx| tx.insert_snapshot(&snapshot)).unwrap();
    assert!(store.transact(|tx| tx.delete_sandbox(row.id)).unwrap());
    assert!(!store.transact(|tx| tx.delete_sandbox(row.id)).unwrap());
    assert_eq!(store.snapshots(row.id).unwrap(), vec![]);
}

#[test]
fn the_latest_sandbox_of_a_directory_is_the_last_touched() {
    let home = home();
    let store = open(&home);
    let (first, second) = (add_sandbox(&store, "a", None), add_sandbox(&store, "b", None));
    let latest = || store.latest_in("", Path::new("/project"), 1).unwrap().remove(0).name;
    store.transact(|tx| tx.touch_sandbox(second.id, second.touched_ms + 10)).unwrap();
    assert_eq!(latest(), "b");
    store.transact(|tx| tx.touch_sandbox(first.id, second.touched_ms + 20)).unwrap();
    assert_eq!(latest(), "a");
}

#[test]
fn the_journal_reads_in_both_directions_and_in_pages() {
    let home = home();
    let store = open(&home);
    for _ in 0..7 {
        store.transact_relaxed(|tx| tx.append(record("note", None))).unwrap();
    }
    let numbers = |records: Vec<Record>| records.iter().map(|r| r.seq).collect::<Vec<_>>();
    assert_eq!(numbers(store.journal(None, 3).unwrap()), [7, 6, 5]);
    assert_eq!(numbers(store.journal_after(0, 3).unwrap()), [1, 2, 3]);
    assert_eq!(numbers(store.journal_after(5, u64::MAX).unwrap()), [6, 7]);
    assert_eq!(store.journal(None, u64::MAX).unwrap().len(), 7);
}

#[test]
fn processes_that_write_at_once_keep_one_chain() {
    let home = home();
    let store = open(&home);
    wait_all((0..6).map(|_| child("append", home.path())).collect());
    let records = store.journal_after(0, u64::MAX).unwrap();
    assert_eq!(records.len(), 300);
    assert!(records.windows(2).all(|pair| pair[1].prev == pair[0].hash));
    assert_eq!(store.verify().unwrap(), vec![]);
}

#[test]
fn a_read_beside_a_transaction_sees_the_state_before_it() {
    let home = home();
    let store = open(&home);
    let seen = store.transact(|tx| {
        tx.append(record("note", None))?;
        Ok((tx.journal(None, 9)?.len(), store.journal(None, 9)?.len()))
    });
    assert_eq!(seen.unwrap(), (1, 0));
}

#[test]
fn volumes_are_made_taken_over_and_thrown_away() {
    let home = home();
    let store = open(&home);
    let volume = VolumeRow { name: name("data"), created_ms: 1, tenant: "t".into() };
    let data = store.new_volume_dir("t", &volume.name).unwrap();
    assert_ne!(data, store.volume_data("", &volume.name), "another tenant's is another");
    std::fs::write(data.join("f"), "kept").unwrap();
    assert_eq!(store.new_volume_dir("t", &volume.name).unwrap(), data);
    assert!(data.join("f").exists());
    assert!(store.volume_size(&volume).unwrap() > 0);
    let removed = store.transact(|tx| {
        tx.delete_volume("t", "data")?;
        store.discard_volume(&volume)
    });
    removed.unwrap();
    store.discard_volume(&volume).expect("a second time is no error");
    assert!(!data.exists());
    assert_eq!(std::fs::read_dir(store.trash_dir()).unwrap().count(), 0);
}

#[test]
fn the_log_stays_short_over_many_short_commands() {
    let home = home();
    let length = || std::fs::metadata(home.path().join("state.db-wal")).unwrap().len();
    for _ in 0..400 {
        let store = open(&home);
        store.transact_relaxed(|tx| tx.append(record("note", None))).unwrap();
        assert!(length() < 2 << 20, "{}", length());
    }
    assert_eq!(open(&home).verify().unwrap(), vec![]);
}
