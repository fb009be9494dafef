//! The tables, their version, and how a connection is set up.
//!
//! `docs/format.md` describes every column; a change here changes that page
//! and [`FORMAT_VERSION`]. A database is built under a temporary name and
//! linked into place when it is complete, so that `state.db` either does not
//! exist or has all its tables, however many processes create it at once.

use crate::{Result, StoreError, answers};
use fractal_model::Record;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// The version of the state directory this program writes.
pub const FORMAT_VERSION: u32 = 3;

/// Length of the write-ahead log at which it is moved into the database. The
/// first process after a quiet time reads the whole log, so a short log keeps
/// `open` fast.
const LOG_BYTES_MAX: u64 = 256 << 10;

/// Layers may be deleted in any order within a transaction, hence the deferred
/// reference. `sandbox.parent` and `run.sandbox` are no references: both may
/// outlive what they name.
const TABLES: &str = "
CREATE TABLE layer (
    id          TEXT PRIMARY KEY NOT NULL,
    below       TEXT REFERENCES layer(id) DEFERRABLE INITIALLY DEFERRED,
    sealed      INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    size_bytes  INTEGER NOT NULL
) STRICT;
CREATE INDEX layer_below ON layer(below);

CREATE TABLE sandbox (
    id            TEXT PRIMARY KEY NOT NULL,
    name          TEXT NOT NULL UNIQUE,
    parent        TEXT,
    base          TEXT REFERENCES layer(id),
    top           TEXT NOT NULL REFERENCES layer(id),
    policy        TEXT NOT NULL,
    template      TEXT NOT NULL,
    mounts        TEXT NOT NULL,
    directory     BLOB NOT NULL,
    created_ms    INTEGER NOT NULL,
    touched_ms    INTEGER NOT NULL,
    ttl_ms        INTEGER,
    fork_ctime_ns INTEGER NOT NULL,
    epoch         INTEGER NOT NULL
) STRICT;
CREATE INDEX sandbox_parent ON sandbox(parent);
CREATE INDEX sandbox_base ON sandbox(base);
CREATE INDEX sandbox_top ON sandbox(top);
CREATE INDEX sandbox_directory ON sandbox(directory, touched_ms);

CREATE TABLE snapshot (
    sandbox     TEXT NOT NULL REFERENCES sandbox(id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    layer       TEXT NOT NULL REFERENCES layer(id),
    created_ms  INTEGER NOT NULL,
    PRIMARY KEY (sandbox, name)
) STRICT;
CREATE INDEX snapshot_layer ON snapshot(layer);

CREATE TABLE run (
    id          TEXT PRIMARY KEY NOT NULL,
    sandbox     TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    pid_start   INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    cgroup      TEXT,
    started_ms  INTEGER NOT NULL
) STRICT;
CREATE INDEX run_sandbox ON run(sandbox);

CREATE TABLE volume (
    name        TEXT PRIMARY KEY NOT NULL,
    created_ms  INTEGER NOT NULL
) STRICT;

CREATE TABLE journal (
    seq         INTEGER PRIMARY KEY NOT NULL,
    prev        TEXT NOT NULL,
    hash        TEXT NOT NULL,
    sandbox     TEXT,
    body        TEXT NOT NULL
) STRICT;
CREATE INDEX journal_sandbox ON journal(sandbox, seq);

CREATE TABLE head (
    one         INTEGER PRIMARY KEY NOT NULL CHECK (one = 1),
    seq         INTEGER NOT NULL,
    hash        TEXT NOT NULL
) STRICT;

CREATE TABLE journal_salvaged (
    repaired_ms INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    prev        TEXT NOT NULL,
    hash        TEXT NOT NULL,
    body        TEXT NOT NULL
) STRICT;
";

/// What version 2 added. `apply.sandbox` may outlive what it names, and what
/// is on its way is found without reading what is done.
const TABLES_2: &str = "
CREATE TABLE apply (
    id          TEXT PRIMARY KEY NOT NULL,
    state       TEXT NOT NULL,
    root        BLOB NOT NULL,
    stages      TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    pid_start   INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    sandbox     TEXT,
    seq         INTEGER,
    undoes      TEXT,
    undone_by   TEXT,
    kept        INTEGER NOT NULL
) STRICT;
CREATE INDEX apply_unfinished ON apply(id) WHERE state NOT IN ('done', 'left');

CREATE TABLE capture (
    key         TEXT PRIMARY KEY NOT NULL,
    layer       TEXT NOT NULL REFERENCES layer(id),
    used_ms     INTEGER NOT NULL
) STRICT;
CREATE INDEX capture_layer ON capture(layer);
";

/// What version 3 added: keys, and to whom things belong. Names are unique
/// within a tenant, and SQLite cannot change what is unique in a table, so
/// two of them are written anew. `tenant` is empty for the local user.
const TABLES_3: &str = "
CREATE TABLE key (
    id              TEXT PRIMARY KEY NOT NULL,
    name            TEXT NOT NULL,
    role            TEXT NOT NULL,
    policy          TEXT NOT NULL,
    tenant          TEXT,
    scope           TEXT NOT NULL,
    rate_per_minute INTEGER,
    concurrent      INTEGER,
    created_ms      INTEGER NOT NULL,
    expires_ms      INTEGER,
    revoked_ms      INTEGER,
    secret_hash     TEXT NOT NULL,
    old_hash        TEXT,
    old_until_ms    INTEGER
) STRICT;
CREATE UNIQUE INDEX key_name ON key(ifnull(tenant, ''), name) WHERE revoked_ms IS NULL;

CREATE TABLE sandbox_3 (
    id            TEXT PRIMARY KEY NOT NULL,
    name          TEXT NOT NULL,
    parent        TEXT,
    base          TEXT REFERENCES layer(id),
    top           TEXT NOT NULL REFERENCES layer(id),
    policy        TEXT NOT NULL,
    template      TEXT NOT NULL,
    mounts        TEXT NOT NULL,
    directory     BLOB NOT NULL,
    created_ms    INTEGER NOT NULL,
    touched_ms    INTEGER NOT NULL,
    ttl_ms        INTEGER,
    fork_ctime_ns INTEGER NOT NULL,
    epoch         INTEGER NOT NULL,
    tenant        TEXT NOT NULL,
    UNIQUE (tenant, name)
) STRICT;
INSERT INTO sandbox_3 SELECT id, name, parent, base, top, policy, template, mounts, directory,
    created_ms, touched_ms, ttl_ms, fork_ctime_ns, epoch, '' FROM sandbox;
DROP TABLE sandbox;
ALTER TABLE sandbox_3 RENAME TO sandbox;
CREATE INDEX sandbox_name ON sandbox(name);
CREATE INDEX sandbox_parent ON sandbox(parent);
CREATE INDEX sandbox_base ON sandbox(base);
CREATE INDEX sandbox_top ON sandbox(top);
CREATE INDEX sandbox_directory ON sandbox(directory, touched_ms);

CREATE TABLE volume_3 (
    name        TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    tenant      TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;
INSERT INTO volume_3 SELECT name, created_ms, '' FROM volume;
DROP TABLE volume;
ALTER TABLE volume_3 RENAME TO volume;

ALTER TABLE apply ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
";

/// Fills the empty file at `path` with all tables.
pub(crate) fn create(path: &Path) -> Result<Connection> {
    let conn = Connection::open(path)?;
    // A table that others refer to is written anew on the way.
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF; \
         BEGIN IMMEDIATE;",
    )?;
    // Built as an old one becomes a new one, so that both have the same columns.
    [TABLES, TABLES_2, TABLES_3, answers::TABLE]
        .iter()
        .try_for_each(|sql| conn.execute_batch(sql))?;
    conn.execute("INSERT INTO head VALUES (1, 0, ?1)", [Record::GENESIS])?;
    conn.pragma_update(None, "user_version", FORMAT_VERSION)?;
    conn.execute_batch("COMMIT")?;
    Ok(conn)
}

/// Opens an existing database, brings an older one up to date, refuses newer
/// ones, sets it up.
///
/// Nothing is checked beyond the version: a command line opens the database
/// in every command.
pub(crate) fn connect(path: &Path, wait: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags)?;
    conn.busy_handler(Some(patience(wait)))?;
    check_version(&conn)?;
    conn.set_prepared_statement_cache_capacity(64);
    // The log stays behind on close: moving it into the database would cost a
    // command that wrote one record three more waits for the disk.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = 0;",
    )?;
    Ok(conn)
}

/// Empties the log when it has grown long and nobody else uses it right now.
///
/// SQLite's own checkpoint leaves the log's length and only notes in shared
/// memory that it was copied. That note dies with the last process, so a
/// series of short commands would copy an ever longer log at every commit.
pub(crate) fn shorten_log(conn: &mut Connection, log: &Path, wait: Duration) -> Result<()> {
    if std::fs::metadata(log).map_or(0, |metadata| metadata.len()) < LOG_BYTES_MAX {
        return Ok(());
    }
    // Without patience: whoever commits next will try again.
    conn.busy_handler(None::<fn(i32) -> bool>)?;
    let emptied = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    conn.busy_handler(Some(patience(wait)))?;
    Ok(emptied?)
}

fn check_version(conn: &Connection) -> Result<()> {
    match version(conn)? {
        FORMAT_VERSION => Ok(()),
        0 => Err(StoreError::corrupt("it holds no fractal state")),
        found if found > FORMAT_VERSION => Err(StoreError::Newer { found, known: FORMAT_VERSION }),
        _ => bring_up_to_date(conn),
    }
}

fn version(conn: &Connection) -> Result<u32> {
    Ok(conn.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

/// Adds what later versions added, in one transaction.
fn bring_up_to_date(conn: &Connection) -> Result<()> {
    conn.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE")?;
    // Another process may have been here while we waited for the lock.
    let added = version(conn).and_then(|found| {
        let missing: &[&str] = match found {
            1 => &[TABLES_2, TABLES_3, answers::TABLE],
            2 => &[TABLES_3, answers::TABLE],
            _ => return Ok(()),
        };
        missing.iter().try_for_each(|sql| conn.execute_batch(sql))?;
        Ok(conn.pragma_update(None, "user_version", FORMAT_VERSION)?)
    });
    conn.execute_batch(if added.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    added
}

/// Waits for a lock in short naps. SQLite's own handler sleeps up to 100 ms
/// between tries, during which fifty processes that commit in a millisecond
/// each pass by one that waits.
fn patience(wait: Duration) -> impl FnMut(i32) -> bool + Send + 'static {
    let mut since = std::time::Instant::now();
    move |tries| {
        if tries == 0 {
            since = std::time::Instant::now();
        }
        let nap = if tries < 20 { 1 } else { 4 };
        std::thread::sleep(Duration::from_millis(nap));
        since.elapsed() < wait
    }
}
