//! The database of an index: what stands in which file, ready to be asked.
//!
//! All of it is made from files and may be deleted at any time; a database of
//! another version, or one that is damaged, is thrown away and made anew.

use crate::{IndexError, Result};
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Changes with the tables, and with what is written into them.
const VERSION: i64 = 2;
/// How long somebody else may be writing.
const PATIENCE: Duration = Duration::from_secs(60);

const TABLES: &str = "
CREATE TABLE roots (name TEXT PRIMARY KEY, path TEXT NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files (
    -- Never given twice: vectors lie under it, elsewhere.
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    root TEXT NOT NULL,
    path TEXT NOT NULL,
    stamp TEXT NOT NULL,
    id TEXT,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    status TEXT NOT NULL,
    outcome TEXT NOT NULL,
    stage TEXT NOT NULL,
    tags TEXT NOT NULL,
    by TEXT NOT NULL,
    at_ms INTEGER,
    verified INTEGER NOT NULL,
    stale_after_ms INTEGER,
    sandbox TEXT,
    signature TEXT,
    print TEXT NOT NULL,
    rev INTEGER NOT NULL,
    -- What it goes by: its id where no other file has the same, else its path.
    key TEXT NOT NULL,
    UNIQUE (root, path)
);
CREATE INDEX files_by_id ON files (id) WHERE id IS NOT NULL;
CREATE INDEX files_by_key ON files (key);
CREATE INDEX files_by_signature ON files (signature) WHERE signature IS NOT NULL;
CREATE INDEX files_by_rev ON files (rev);
CREATE INDEX files_by_time ON files (at_ms);
CREATE TABLE edges (
    source INTEGER NOT NULL,
    place INTEGER NOT NULL,
    kind TEXT NOT NULL,
    to_id TEXT,
    to_root TEXT,
    to_path TEXT,
    thing TEXT,
    raw TEXT NOT NULL,
    line INTEGER,
    target INTEGER,
    PRIMARY KEY (source, place)
) WITHOUT ROWID;
CREATE INDEX edges_by_target ON edges (target, kind) WHERE target IS NOT NULL;
CREATE INDEX edges_by_id ON edges (to_id) WHERE to_id IS NOT NULL;
CREATE INDEX edges_by_path ON edges (to_root, to_path) WHERE to_path IS NOT NULL;
CREATE INDEX edges_by_thing ON edges (thing) WHERE thing IS NOT NULL;
CREATE TABLE faults (num INTEGER NOT NULL, place INTEGER NOT NULL, line INTEGER, what TEXT NOT NULL,
    PRIMARY KEY (num, place)) WITHOUT ROWID;
-- With its texts: without them a removed record would stay in the counts that
-- scores are made of, and a rebuilt index would answer otherwise.
CREATE VIRTUAL TABLE words USING fts5(title, about, body,
    tokenize='porter unicode61 remove_diacritics 2');
-- Records that are gone, for stores that are kept in step.
CREATE TABLE gone (key TEXT PRIMARY KEY, rev INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX gone_by_rev ON gone (rev);
-- How far each was brought; the epoch tells it from another of the same name.
CREATE TABLE stores (name TEXT PRIMARY KEY, rev INTEGER NOT NULL, epoch TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE embedded (num INTEGER PRIMARY KEY, print TEXT NOT NULL, rev INTEGER NOT NULL DEFAULT 0);
CREATE INDEX embedded_by_rev ON embedded (rev);
-- New vectors are a change for a store of vectors, whoever made them.
CREATE TRIGGER embedded_anew AFTER INSERT ON embedded BEGIN
    INSERT INTO facts (name, value) VALUES ('rev', '1') ON CONFLICT (name) DO UPDATE SET value = value + 1;
    UPDATE embedded SET rev = (SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'rev')
        WHERE num = NEW.num;
END;
CREATE TRIGGER embedded_again AFTER UPDATE OF print ON embedded BEGIN
    INSERT INTO facts (name, value) VALUES ('rev', '1') ON CONFLICT (name) DO UPDATE SET value = value + 1;
    UPDATE embedded SET rev = (SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'rev')
        WHERE num = NEW.num;
END;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
";

/// An open database.
pub(crate) struct Catalog {
    pub conn: Connection,
    path: PathBuf,
}

impl Catalog {
    /// Opens the database in a directory, or makes it.
    pub fn open(dir: &Path) -> Result<Catalog> {
        fs::create_dir_all(dir).map_err(|error| IndexError::io("make", dir, error))?;
        let path = dir.join("index.db");
        match Catalog::open_at(&path) {
            Err(error) if error.is_damage() => {
                discard(&path)?;
                Catalog::open_at(&path)
            }
            other => other,
        }
    }

    fn open_at(path: &Path) -> Result<Catalog> {
        let failed = |source| failed(path, source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags).map_err(failed)?;
        conn.busy_timeout(PATIENCE).map_err(failed)?;
        // Nothing here is the only copy of anything: a power cut may cost it.
        // With more pages at hand a question about common words reads none twice.
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -32768;",
        )
        .map_err(failed)?;
        conn.set_prepared_statement_cache_capacity(64);
        let catalog = Catalog { conn, path: path.to_owned() };
        catalog.make_tables()?;
        Ok(catalog)
    }

    /// Makes the tables unless somebody has. Those of another version go.
    fn make_tables(&self) -> Result<()> {
        if self.version()? == VERSION {
            return Ok(());
        }
        self.write(|conn| {
            let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
            if version == VERSION {
                return Ok(());
            }
            drop_all(conn)?;
            conn.execute_batch(TABLES)?;
            conn.pragma_update(None, "user_version", VERSION)
        })
    }

    fn version(&self) -> Result<i64> {
        self.ask(|conn| conn.pragma_query_value(None, "user_version", |row| row.get(0)))
    }

    /// The directory that it lies in.
    pub fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Reads as of one moment, whoever writes meanwhile.
    pub fn look<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.ask(|conn| {
            let moment = conn.unchecked_transaction()?;
            let value = read(&moment)?;
            moment.finish()?;
            Ok(value)
        })
    }

    /// Reads; errors name the database.
    pub fn ask<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        read(&self.conn).map_err(|source| self.failed(source))
    }

    /// Reads several times what stands there at one moment, whatever others write
    /// meanwhile; and each read is spared the taking of locks.
    pub fn still<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        self.ask(|conn| conn.execute_batch("BEGIN"))?;
        let done = read();
        let ended = self.ask(|conn| conn.execute_batch("COMMIT"));
        let value = done?;
        ended?;
        Ok(value)
    }

    /// Writes in one transaction, as the only writer.
    pub fn write<T>(&self, write: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.transact(|conn| write(conn).map_err(|source| self.failed(source)))
    }

    /// The same for work that can fail in other ways, too.
    pub fn transact<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.ask(|conn| conn.execute_batch("BEGIN IMMEDIATE"))?;
        let done = work(&self.conn);
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.ask(|conn| conn.execute_batch(end));
        let value = done?;
        ended?;
        Ok(value)
    }

    pub fn failed(&self, source: rusqlite::Error) -> IndexError {
        failed(&self.path, source)
    }
}

fn failed(path: &Path, source: rusqlite::Error) -> IndexError {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseBusy, DiskFull, PermissionDenied, ReadOnly};
    let io = |kind: ErrorKind| {
        let why = std::io::Error::new(kind, source.to_string());
        IndexError::io("write", path, why)
    };
    match source.sqlite_error_code() {
        Some(DatabaseBusy) => IndexError::Busy { seconds: PATIENCE.as_secs() },
        Some(DiskFull) => io(ErrorKind::StorageFull),
        Some(CannotOpen | PermissionDenied | ReadOnly) => io(ErrorKind::PermissionDenied),
        _ => IndexError::Database { path: path.to_owned(), source },
    }
}

fn drop_all(conn: &Connection) -> rusqlite::Result<()> {
    let mut tables = conn.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
         ORDER BY sql NOT LIKE 'CREATE VIRTUAL%'",
    )?;
    let names = tables.query_map([], |row| row.get(0))?;
    let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
    drop(tables);
    for name in names {
        conn.execute_batch(&format!("DROP TABLE IF EXISTS \"{}\"", name.replace('"', "\"\"")))?;
    }
    Ok(())
}

/// Removes a database and what SQLite keeps beside it.
fn discard(path: &Path) -> Result<()> {
    for ending in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(IndexError::io("remove", Path::new(&name), error));
            }
            _ => {}
        }
    }
    Ok(())
}
