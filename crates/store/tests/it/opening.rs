//! Opening: first use by many at once, versions, homes that cannot be.

use crate::support::{child, home, open, wait_all};
use fractal_model::{Code, Error, Record};
use fractal_store::{FORMAT_VERSION, Reads, SandboxRow, Store, StoreError, new_id};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn twenty_processes_open_an_empty_home_at_once() {
    let home = home();
    let nested = home.path().join("a/b/home");
    wait_all((0..20).map(|_| child("open", &nested)).collect());
    let store = Store::open(&nested).expect("it opens");
    assert_eq!(store.verify().expect("it can be read"), vec![]);
    let names = fs::read_dir(&nested).expect("it exists").map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains(".new-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn twenty_threads_open_an_empty_home_at_once() {
    let home = home();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let store = Store::open(home.path()).expect("it opens for a thread");
                let append = |_| {
                    store.transact(|tx| tx.append(crate::support::record("note", None))).unwrap();
                };
                (0..5).for_each(append);
            });
        }
    });
    let store = open(&home);
    assert_eq!(store.journal(None, 1000).unwrap().len(), 100);
    assert_eq!(store.verify().expect("it can be read"), vec![]);
}

#[test]
fn a_home_is_closed_to_others() {
    let outer = home();
    let home = outer.path().join("home");
    Store::open(&home).expect("it opens");
    let mode = |path: &str| fs::metadata(home.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(""), 0o700);
    assert_eq!(mode("layers"), 0o700);
    assert_eq!(mode("state.db"), 0o600);
}

#[test]
fn a_directory_with_files_in_it_keeps_its_mode() {
    let home = home();
    fs::write(home.path().join("mine"), "x").unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    open(&home);
    let mode = fs::metadata(home.path()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o755);
}

#[test]
fn a_home_made_by_a_newer_fractal_is_refused_and_left_alone() {
    let home = home();
    drop(open(&home));
    let conn = rusqlite::Connection::open(home.path().join("state.db")).unwrap();
    conn.pragma_update(None, "user_version", FORMAT_VERSION + 6).unwrap();
    drop(conn);
    for error in [Store::open(home.path()).err(), Store::repair(home.path()).err()] {
        let error = error.expect("a newer format is refused");
        assert!(matches!(error, StoreError::Newer { found: 9, known: 3 }), "{error:?}");
        let error = Error::from(error);
        assert_eq!(error.code, Code::Unsupported);
        assert!(error.message.contains("newer fractal"), "{}", error.message);
    }
}

/// Puts a database as an older version wrote it in the place of a new one,
/// with a record of the journal, a sandbox, a snapshot and a volume.
fn older_version(home: &std::path::Path, version: u32) {
    let _ = fs::remove_dir(home.join("undo"));
    for file in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = fs::remove_file(home.join(file));
    }
    let conn = rusqlite::Connection::open(home.join("state.db")).unwrap();
    conn.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    conn.execute_batch(include_str!("version_1.sql")).unwrap();
    if version > 1 {
        conn.execute_batch(include_str!("version_2.sql")).unwrap();
    }
    let body = r#"{"time_ms":1,"who":"owner","action":"note"}"#;
    let hash = Record::chain_hash(1, Record::GENESIS, body);
    let add = "INSERT INTO journal VALUES (1, ?1, ?2, NULL, ?3)";
    conn.execute(add, [Record::GENESIS, &hash, body]).unwrap();
    conn.execute("INSERT INTO head VALUES (1, 1, ?1)", [&hash]).unwrap();
    let layer = "0000000000000000000000000A";
    let sandbox = "0000000000000000000000000B";
    fs::create_dir_all(home.join("layers").join(layer).join("tree")).unwrap();
    fs::create_dir_all(home.join("volumes/v/data")).unwrap();
    conn.execute("INSERT INTO layer VALUES (?1, NULL, 1, 1, 0)", [layer]).unwrap();
    let add = "INSERT INTO sandbox VALUES (?1, 'x', NULL, NULL, ?2, '{}', 'clone', '[]', \
               CAST('/p' AS BLOB), 1, 2, NULL, 3, 4)";
    conn.execute(add, [sandbox, layer]).unwrap();
    conn.execute("INSERT INTO snapshot VALUES (?1, 's', ?2, 1)", [sandbox, layer]).unwrap();
    conn.execute("INSERT INTO volume VALUES ('v', 1)", []).unwrap();
    conn.pragma_update(None, "user_version", version).unwrap();
}

/// What stood in it is there, and is the local user's.
fn require_carried_over(store: &Store) {
    let row = store.sandbox_named("", "x").unwrap().expect("the sandbox is there");
    assert_eq!((row.epoch, row.tenant.as_str()), (4, ""));
    assert_eq!(store.snapshots(row.id).unwrap().len(), 1);
    assert!(store.volume("", "v").unwrap().is_some());
    assert!(store.keys().unwrap().is_empty());
    assert_eq!(store.verify().expect("it can be read"), vec![]);
}

#[test]
fn older_homes_keep_everything_and_take_names_of_other_tenants() {
    for version in [1, 2] {
        let home = home();
        drop(open(&home));
        older_version(home.path(), version);
        let store = open(&home);
        require_carried_over(&store);
        let row = store.sandbox_named("", "x").unwrap().unwrap();
        let add = |tenant: &str| {
            let other = SandboxRow { id: new_id(), tenant: tenant.to_owned(), ..row.clone() };
            store.transact(|tx| tx.insert_sandbox(&other))
        };
        add("t").expect("the name is free in another tenant");
        for tenant in ["", "t"] {
            assert!(matches!(add(tenant), Err(StoreError::Exists { .. })), "{tenant}");
        }
        assert_eq!(store.sandboxes_named("x").unwrap().len(), 2);
        // Rows that refer to others still do.
        assert!(store.transact(|tx| tx.delete_sandbox(row.id)).unwrap());
        assert_eq!(store.snapshots(row.id).unwrap(), vec![]);
    }
}

#[test]
fn a_migration_that_is_cut_off_leaves_the_older_home() {
    let home = home();
    drop(open(&home));
    older_version(home.path(), 2);
    let conn = rusqlite::Connection::open(home.path().join("state.db")).unwrap();
    conn.execute_batch("CREATE TABLE volume_3 (x)").unwrap();
    assert!(Store::open(home.path()).is_err());
    let version: u32 = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    let keys = "SELECT count(*) FROM sqlite_schema WHERE name = 'key'";
    let keys: u32 = conn.query_row(keys, [], |row| row.get(0)).unwrap();
    assert_eq!((version, keys), (2, 0));
    conn.execute_batch("DROP TABLE volume_3").unwrap();
    require_carried_over(&open(&home));
}

#[test]
fn a_home_of_the_first_version_is_brought_up_to_date_by_many_at_once() {
    let home = home();
    drop(open(&home));
    older_version(home.path(), 1);
    wait_all((0..8).map(|_| child("open", home.path())).collect());
    let store = open(&home);
    assert_eq!(store.journal(None, 10).unwrap().len(), 1);
    assert_eq!(store.applies().unwrap(), vec![]);
    assert_eq!(store.verify().expect("it can be read"), vec![]);
    store.new_undo_dir(fractal_store::new_id()).expect("the directory is made when needed");
}

#[test]
fn a_damaged_home_of_the_first_version_is_repaired_without_loss() {
    let home = home();
    drop(open(&home));
    older_version(home.path(), 1);
    let conn = rusqlite::Connection::open(home.path().join("state.db")).unwrap();
    conn.execute("UPDATE head SET seq = 7", []).unwrap();
    drop(conn);
    let repair = Store::repair(home.path()).expect("it can be repaired");
    assert!(repair.moved_aside.is_some() && !repair.lossy, "{repair:?}");
}

#[test]
fn a_home_below_a_file_gives_verb_path_and_hint() {
    let home = home();
    fs::write(home.path().join("file"), "x").unwrap();
    let path = home.path().join("file/home");
    let error = Error::from(Store::open(&path).expect_err("a file holds no directory"));
    assert_eq!(error.code, Code::Denied);
    assert!(error.message.starts_with("cannot "), "{}", error.message);
    assert!(error.message.contains("file/home"), "{}", error.message);
    assert!(error.hint.unwrap().contains("FRACTAL_HOME"));
}

#[test]
fn a_home_that_cannot_be_written_gives_verb_path_and_hint() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may write everywhere");
        return;
    }
    let home = home();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = Error::from(Store::open(home.path()).expect_err("nothing can be made in it"));
    assert_eq!(error.code, Code::Denied);
    assert!(error.hint.unwrap().contains("FRACTAL_HOME"));
}
