//! Opening: first use by many at once, versions, homes that cannot be.

use crate::support::{child, home, open, wait_all};
use fractal_model::{Code, Error};
use fractal_store::{FORMAT_VERSION, Reads, Store, StoreError};
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
        assert!(matches!(error, StoreError::Newer { found: 8, known: 2 }), "{error:?}");
        let error = Error::from(error);
        assert_eq!(error.code, Code::Unsupported);
        assert!(error.message.contains("newer fractal"), "{}", error.message);
    }
}

/// A database as the first version wrote it.
fn first_version(home: &std::path::Path) {
    let conn = rusqlite::Connection::open(home.join("state.db")).unwrap();
    let later = "DROP TABLE apply; DROP TABLE capture; PRAGMA user_version = 1";
    conn.execute_batch(later).unwrap();
    drop(conn);
    let _ = fs::remove_dir(home.join("undo"));
}

#[test]
fn a_home_of_the_first_version_is_brought_up_to_date_by_many_at_once() {
    let home = home();
    let store = open(&home);
    store.transact(|tx| tx.append(crate::support::record("note", None))).unwrap();
    drop(store);
    first_version(home.path());
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
    first_version(home.path());
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
