//! Damage: found by verify, salvaged by repair, never made worse.

use crate::support::{add_layer, add_sandbox, age, home, name, open, record};
use fractal_model::{Code, Error};
use fractal_store::{Problem, Reads, Store, VolumeRow, new_id};
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn with_records(count: usize) -> TempDir {
    let home = home();
    let store = open(&home);
    for _ in 0..count {
        store.transact_relaxed(|tx| tx.append(record("note", Some(new_id())))).unwrap();
    }
    home
}

/// Changes the database behind the store's back.
fn tamper(home: &TempDir, sql: &str) {
    let conn = Connection::open(home.path().join("state.db")).unwrap();
    conn.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    conn.execute_batch(sql).unwrap();
}

fn count(path: &Path, table: &str) -> u64 {
    let conn = Connection::open(path).unwrap();
    conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn an_edited_removed_or_reordered_record_is_found() {
    let check = |sql: &str, at: u64| {
        let home = with_records(9);
        tamper(&home, sql);
        let problems = open(&home).verify().unwrap();
        let found = matches!(problems[..], [Problem::Chain { seq, .. }] if seq == at);
        assert!(found, "{sql}: {problems:?}");
        assert!(problems[0].to_string().contains(&format!("record {at}")));
    };
    check("UPDATE journal SET body = replace(body, 'note', 'nope') WHERE seq = 4", 4);
    check("UPDATE journal SET body = body || ' ' WHERE seq = 1", 1);
    check("DELETE FROM journal WHERE seq = 5", 6);
    check("DELETE FROM journal WHERE seq = 1", 2);
    check("DELETE FROM journal WHERE seq >= 8", 8);
    check(
        "UPDATE journal SET seq = CASE seq WHEN 3 THEN -4 ELSE -3 END WHERE seq IN (3, 4);
           UPDATE journal SET seq = -seq WHERE seq < 0",
        3,
    );
    check("UPDATE journal SET hash = prev WHERE seq = 7", 7);
    check(
        "INSERT INTO journal SELECT seq + 9, prev, hash, sandbox, body FROM journal \
           WHERE seq = 9",
        18,
    );
}

#[test]
fn a_broken_chain_is_repaired_by_keeping_both_halves() {
    let home = with_records(9);
    tamper(&home, "UPDATE journal SET body = replace(body, 'note', 'nope') WHERE seq = 4");
    let repair = Store::repair(home.path()).unwrap();
    assert_eq!((repair.records, repair.records_salvaged, repair.lossy), (3, 6, false));
    assert_eq!(repair.problems, vec![]);
    let store = open(&home);
    let records = store.journal_after(0, 99).unwrap();
    assert_eq!(records.len(), 4);
    assert_eq!(records[3].body.action, "repair");
    assert_eq!(count(&home.path().join("state.db"), "journal_salvaged"), 6);
    assert_eq!(count(&repair.moved_aside.unwrap(), "journal"), 9);
}

#[test]
fn a_sound_home_is_left_as_it_is() {
    let home = with_records(3);
    let repair = Store::repair(home.path()).unwrap();
    assert_eq!(repair, fractal_store::Repair::default());
    assert_eq!(open(&home).journal(None, 9).unwrap().len(), 3);
}

/// A home with enough of everything to fill many pages.
fn full_home() -> (TempDir, usize) {
    let home = home();
    let store = open(&home);
    let volume = VolumeRow { name: name("v"), created_ms: 1, tenant: String::new() };
    store.new_volume_dir("", &volume.name).unwrap();
    store.transact(|tx| tx.insert_volume(&volume)).unwrap();
    for index in 0..150 {
        let row = add_sandbox(&store, &format!("s{index}"), None);
        store.transact_relaxed(|tx| tx.append(record("fork", Some(row.id)))).unwrap();
    }
    drop(store);
    // Everything into the one file, where the tests put their holes.
    tamper(&home, "PRAGMA wal_checkpoint(TRUNCATE)");
    (home, 150)
}

fn root_page(home: &TempDir, table: &str) -> u64 {
    let conn = Connection::open(home.path().join("state.db")).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    conn.query_row(sql, [table], |row| row.get(0)).unwrap()
}

/// Overwrites one page (counted from 1) with noise.
fn punch(home: &TempDir, page: u64) {
    let file = fs::File::options().write(true).open(home.path().join("state.db")).unwrap();
    file.write_all_at(&[0xA5; 4096], (page - 1) * 4096).unwrap();
}

#[test]
fn a_file_that_is_no_database_is_corrupt_and_is_moved_aside() {
    let (home, sandboxes) = full_home();
    punch(&home, 1);
    let error = Error::from(Store::open(home.path()).expect_err("page 1 is noise"));
    assert_eq!(error.code, Code::Corrupt);
    assert!(error.message.contains("state.db"), "{}", error.message);
    assert_eq!(error.hint.as_deref(), Some("run `fractal doctor --repair`"));

    let repair = Store::repair(home.path()).unwrap();
    assert!(repair.lossy);
    let aside = repair.moved_aside.unwrap();
    assert_eq!(fs::read(&aside).unwrap()[..4096], [0xA5; 4096]);
    let store = open(&home);
    assert_eq!(store.sandboxes().unwrap(), vec![]);
    // Their work is still there, and gc does not finish the damage.
    let layers = || fs::read_dir(store.layers_dir()).unwrap().map(|e| e.unwrap().path());
    let paths: Vec<PathBuf> = layers().collect();
    assert_eq!(paths.len(), sandboxes);
    paths.iter().for_each(|path| age(path));
    assert_eq!(store.gc(false).unwrap().layers, 0);
    assert_eq!(layers().count(), sandboxes);
    let volume = fs::File::open(store.volumes_dir().join("v")).unwrap();
    volume.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let problems = store.verify().unwrap();
    assert!(problems.iter().all(|problem| matches!(problem, Problem::Unlisted { .. })));
    assert_eq!(problems.len(), sandboxes + 1, "all layers and the volume");
}

#[test]
fn damage_in_one_table_leaves_the_others() {
    for table in ["layer_below", "sandbox_directory", "volume", "journal_sandbox", "snapshot"] {
        let (home, sandboxes) = full_home();
        punch(&home, root_page(&home, table));
        let found = open(&home).verify().unwrap();
        assert!(matches!(found[0], Problem::Database { .. }), "{table}: {found:?}");
        let repair = Store::repair(home.path()).unwrap();
        assert!(repair.moved_aside.is_some(), "{table}");
        assert_eq!(repair.problems, vec![], "{table}");
        let store = open(&home);
        assert_eq!(store.sandboxes().unwrap().len(), sandboxes, "{table}");
        assert_eq!(store.journal(None, 999).unwrap().len(), sandboxes + 1, "{table}");
    }
}

#[test]
fn rows_on_both_sides_of_a_damaged_page_are_salvaged() {
    let (home, sandboxes) = full_home();
    let root = root_page(&home, "sandbox");
    // Leaf pages follow their root in a file that only ever grew; find one in
    // the middle by what stands in it.
    let bytes = fs::read(home.path().join("state.db")).unwrap();
    let holds = |page: &u64| {
        let content = &bytes[(*page as usize - 1) * 4096..*page as usize * 4096];
        content[0] == 0x0D && content.windows(8).any(|window| window == b"/project")
    };
    let leaves: Vec<u64> = (root..=bytes.len() as u64 / 4096).filter(holds).collect();
    assert!(leaves.len() >= 3, "the sandboxes fill several pages: {leaves:?}");
    punch(&home, leaves[leaves.len() / 2]);
    let repair = Store::repair(home.path()).unwrap();
    assert!(repair.lossy);
    let store = open(&home);
    let names: Vec<String> = store.sandboxes().unwrap().into_iter().map(|row| row.name).collect();
    assert!(names.contains(&"s0".into()) && names.contains(&"s149".into()), "{names:?}");
    assert!(names.len() < sandboxes);
    assert_eq!(store.gc(false).unwrap().layers, 0, "layers of lost sandboxes are spared");
    assert_eq!(store.verify().unwrap(), vec![]);
}

#[test]
fn a_value_nobody_can_read_is_found_and_left_out() {
    let (home, sandboxes) = full_home();
    tamper(&home, "UPDATE sandbox SET policy = '{' WHERE name = 's7'");
    let store = open(&home);
    assert!(store.sandboxes().unwrap_err().is_corrupt());
    assert!(matches!(store.verify().unwrap()[..], [Problem::Database { .. }]));
    drop(store);
    let repair = Store::repair(home.path()).unwrap();
    assert!(repair.lossy);
    assert_eq!(open(&home).sandboxes().unwrap().len(), sandboxes - 1);
}

#[test]
fn missing_directories_and_rows_are_reported_and_nothing_is_deleted() {
    let home = home();
    let store = open(&home);
    let row = add_sandbox(&store, "x", None);
    fs::remove_dir_all(store.layer_dir(row.top)).unwrap();
    assert_eq!(store.verify().unwrap(), vec![Problem::LayerDirectory { layer: row.top }]);
    let unlisted = new_id();
    store.new_layer_dir(unlisted).unwrap();
    age(&store.layer_dir(unlisted));
    tamper(&home, "DELETE FROM layer");
    drop(store);
    let repair = Store::repair(home.path()).unwrap();
    let store = open(&home);
    let expect = vec![
        Problem::LayerRow { who: "sandbox x".into(), layer: row.top.to_string() },
        Problem::Unlisted { path: store.layer_dir(unlisted) },
    ];
    assert_eq!(repair.problems, expect);
    assert!(store.layer_dir(unlisted).exists());
    assert!(store.sandbox_named("", "x").unwrap().is_some());
}

#[test]
fn an_interrupted_repair_is_refused_by_open_and_finished_by_repair() {
    let home = with_records(3);
    // As if the power went after the damaged file moved and before the
    // repaired one took its place, with the log still where it was.
    let path = |name: &str| home.path().join(name);
    fs::rename(path("state.db"), path("state.db.corrupt-1")).unwrap();
    assert!(path("state.db-wal").exists());
    let other = with_records(5);
    tamper(&other, "PRAGMA wal_checkpoint(TRUNCATE)");
    fs::copy(other.path().join("state.db"), path("state.db.repaired")).unwrap();
    assert!(Store::open(home.path()).expect_err("it is half done").is_corrupt());
    let repair = Store::repair(home.path()).unwrap();
    assert!(repair.moved_aside.is_some());
    let store = open(&home);
    assert_eq!(store.journal(None, 9).unwrap().len(), 5);
    assert_eq!(store.verify().unwrap(), vec![]);
}

#[test]
fn a_log_without_its_database_is_not_replayed_into_a_new_one() {
    let home = with_records(3);
    fs::remove_file(home.path().join("state.db")).unwrap();
    assert!(Store::open(home.path()).expect_err("someone removed it").is_corrupt());
    let repair = Store::repair(home.path()).unwrap();
    assert!(repair.lossy);
    assert_eq!(open(&home).journal(None, 9).unwrap().len(), 1);
}

#[test]
fn repair_waits_for_others_and_then_says_busy() {
    let home = with_records(1);
    let store = open(&home);
    let layer = add_layer(&store, None);
    let error = Error::from(Store::repair(home.path()).expect_err("a store is open"));
    assert_eq!(error.code, Code::Busy);
    assert!(store.layer(layer).unwrap().is_some());
}
