//! Making a damaged directory usable again without losing anything.
//!
//! The damaged database is read row by row into a new one and then moved
//! aside, never deleted. The new one is complete under its own name before
//! the old one moves, so a crash in between leaves either the damaged state
//! or a repair that the next call finishes.

use crate::journal::Link;
use crate::layers::SALVAGED;
use crate::open::{DB, REPAIRED, beside, lock_home, make_private, publish, sync_directory};
use crate::{
    ApplyRow, KeyRow, LayerRow, Problem, Result, RunRow, SandboxRow, SnapshotRow, Store,
    StoreError, VolumeRow, gc, new_id, now_ms, schema, tx, verify,
};
use fractal_model::{Record, RecordBody};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Row, params, params_from_iter};
use rustix::fs::FlockOperation;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Where the damaged database is now; `None` when it was sound.
    pub moved_aside: Option<PathBuf>,
    /// Rows carried over (sandboxes, layers, snapshots, runs, volumes).
    pub rows: u64,
    /// Whether some rows could not be read.
    pub lossy: bool,
    /// Records carried over with their chain intact.
    pub records: u64,
    /// Records that no longer fit the chain, kept in `journal_salvaged`.
    pub records_salvaged: u64,
    /// What a person has to decide about.
    pub problems: Vec<Problem>,
}

impl Store {
    /// Repairs what can be repaired and reports the rest. Deletes nothing.
    /// Every store on this directory must be closed, or it ends with `busy`.
    pub fn repair(home: &Path) -> Result<Repair> {
        let lock = lock_home(home, FlockOperation::NonBlockingLockExclusive)?;
        let mut repair = Repair::default();
        if !home.join(DB).exists() && home.join(REPAIRED).exists() {
            repair.moved_aside = Some(put_in_place(home)?);
        } else if needs_rebuild(home)? {
            rebuild(home, &mut repair).map_err(|error| error.located(&home.join(DB)))?;
            repair.moved_aside = Some(put_in_place(home)?);
        }
        drop(lock);
        repair.problems = Store::open(home)?.verify()?;
        Ok(repair)
    }
}

fn needs_rebuild(home: &Path) -> Result<bool> {
    let db = home.join(DB);
    if !db.exists() {
        // Nothing there and nothing left over is a home not used yet.
        let layers = fs::read_dir(home.join("layers")).is_ok_and(|mut list| list.next().is_some());
        return Ok(layers || beside(&db, "-wal").exists());
    }
    let inspected = schema::connect(&db, Duration::from_secs(1))
        .and_then(|conn| verify::inspect(&conn))
        .map_err(|error| error.located(&db));
    match inspected {
        Ok(problems) => Ok(problems.iter().any(Problem::is_in_database)),
        Err(StoreError::Corrupt { .. }) => Ok(true),
        Err(other) => Err(other),
    }
}

/// Builds `state.db.repaired` from what can be read of `state.db`.
fn rebuild(home: &Path, repair: &mut Repair) -> Result<()> {
    let fresh = home.join(format!("{DB}.new-{}", new_id()));
    make_private(&fresh)?;
    let new = schema::create(&fresh)?;
    new.execute_batch("PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE")?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match Connection::open_with_flags(home.join(DB), flags) {
        Ok(old) => salvage(&old, &new, repair)?,
        Err(_) => repair.lossy = true,
    }
    if repair.lossy {
        spare_unplaced_layers(home, &new)?;
    }
    record_repair(home, &new, repair)?;
    new.execute_batch("COMMIT")?;
    new.close().map_err(|(_, error)| error)?;
    let repaired = home.join(REPAIRED);
    fs::rename(&fresh, &repaired).map_err(|error| StoreError::io("create", &repaired, error))?;
    sync_directory(home)
}

/// Moves the damaged database aside and the new one to its place.
fn put_in_place(home: &Path) -> Result<PathBuf> {
    let (db, repaired) = (home.join(DB), home.join(REPAIRED));
    let aside = home.join(format!("{DB}.corrupt-{}", now_ms()));
    for suffix in ["", "-wal", "-shm"] {
        let from = beside(&db, suffix);
        if from.exists() {
            fs::rename(&from, beside(&aside, suffix))
                .map_err(|error| StoreError::io("move aside", &from, error))?;
        }
    }
    publish(home, &repaired, &db)?;
    fs::remove_file(&repaired).map_err(|error| StoreError::io("remove", &repaired, error))?;
    Ok(aside)
}

fn salvage(old: &Connection, new: &Connection, repair: &mut Repair) -> Result<()> {
    copy(old, new, repair, "layer", LayerRow::COLUMNS, |row| LayerRow::read(row).is_ok())?;
    copy(old, new, repair, "sandbox", SandboxRow::COLUMNS, |row| SandboxRow::read(row).is_ok())?;
    copy(old, new, repair, "snapshot", SnapshotRow::COLUMNS, |row| SnapshotRow::read(row).is_ok())?;
    copy(old, new, repair, "run", RunRow::COLUMNS, |row| RunRow::read(row).is_ok())?;
    copy(old, new, repair, "volume", VolumeRow::COLUMNS, |row| VolumeRow::read(row).is_ok())?;
    if has_table(old, "apply") {
        copy(old, new, repair, "apply", ApplyRow::COLUMNS, |row| ApplyRow::read(row).is_ok())?;
    }
    if has_table(old, "key") {
        copy(old, new, repair, "key", KeyRow::COLUMNS, |row| KeyRow::read(row).is_ok())?;
    }
    // Captures are copied again when they are missing.
    let columns = "repaired_ms, seq, prev, hash, body";
    copy(old, new, repair, "journal_salvaged", columns, |_| true)?;
    salvage_journal(old, new, repair)
}

/// Whether there is such a table; where that cannot be read, there may be.
fn has_table(old: &Connection, name: &str) -> bool {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    old.query_row(sql, [name], |row| row.get::<_, u64>(0)).map_or(true, |count| count > 0)
}

/// The same for a column.
fn has_column(old: &Connection, table: &str, name: &str) -> bool {
    let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
    old.query_row(sql, [table, name], |row| row.get::<_, u64>(0)).map_or(true, |count| count > 0)
}

/// Copies a table's readable rows. When the scan hits a damaged page, a scan
/// from the other end finds what is behind it.
fn copy(
    old: &Connection,
    new: &Connection,
    repair: &mut Repair,
    table: &str,
    columns: &str,
    readable: impl Fn(&Row<'_>) -> bool,
) -> Result<()> {
    let count = columns.split(',').count();
    let slots = vec!["?"; count].join(",");
    let insert = format!("INSERT OR IGNORE INTO {table} ({columns}) VALUES ({slots})");
    let mut insert = new.prepare(&insert)?;
    // Before version 3 everything was the local user's.
    let columns = match has_column(old, table, "tenant") {
        true => columns.to_owned(),
        false => columns.replace("tenant", "''"),
    };
    for direction in ["ASC", "DESC"] {
        let query = format!("SELECT {columns} FROM {table} NOT INDEXED ORDER BY rowid {direction}");
        let whole = each_row(old, &query, |row| {
            let values: Vec<Value> =
                (0..count).map(|column| row.get(column)).collect::<rusqlite::Result<_>>()?;
            let copied =
                if readable(row) { insert.execute(params_from_iter(values)) } else { Ok(0) };
            match copied {
                Ok(0) | Err(_) => repair.lossy = true,
                Ok(added) => repair.rows += added as u64,
            }
            Ok(())
        });
        if whole {
            return Ok(());
        }
        repair.lossy = true;
    }
    Ok(())
}

/// Calls `job` for every row until the end or the first damage; says whether
/// the end was reached.
fn each_row(
    conn: &Connection,
    query: &str,
    mut job: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> bool {
    let mut scan = || -> rusqlite::Result<()> {
        let mut statement = conn.prepare(query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            job(row)?;
        }
        Ok(())
    };
    scan().is_ok()
}

/// The intact beginning of the journal stays the journal; what follows a
/// break is kept as it was, beside it.
fn salvage_journal(old: &Connection, new: &Connection, repair: &mut Repair) -> Result<()> {
    let (mut last, mut last_hash, mut seen) = (0, Record::GENESIS.to_owned(), 0);
    let mut intact = true;
    let query = "SELECT seq, prev, hash, body FROM journal NOT INDEXED ORDER BY seq";
    let whole = each_row(old, query, |row| {
        let link = Link::read(row)?;
        seen = link.seq;
        intact = intact && link.fault(last, &last_hash).is_none();
        if !intact {
            repair.records_salvaged += 1;
            return keep_link(new, &link);
        }
        insert_link(new, &link)?;
        repair.records += 1;
        (last, last_hash) = (link.seq, link.hash);
        Ok(())
    });
    if !whole {
        let query = format!(
            "SELECT seq, prev, hash, body FROM journal NOT INDEXED \
                             WHERE seq > {seen} ORDER BY seq DESC"
        );
        each_row(old, &query, |row| {
            repair.records_salvaged += 1;
            keep_link(new, &Link::read(row)?)
        });
    }
    new.execute("UPDATE head SET seq = ?1, hash = ?2", params![last, last_hash])?;
    Ok(())
}

fn insert_link(new: &Connection, link: &Link) -> rusqlite::Result<()> {
    let body: Option<RecordBody> = serde_json::from_str(&link.body).ok();
    let sandbox = body.and_then(|body| body.sandbox).map(String::from);
    let sql = "INSERT INTO journal (seq, prev, hash, sandbox, body) VALUES (?1,?2,?3,?4,?5)";
    let values = params![link.seq, link.prev, link.hash, sandbox, link.body];
    new.prepare_cached(sql)?.execute(values).map(drop)
}

fn keep_link(new: &Connection, link: &Link) -> rusqlite::Result<()> {
    let sql = "INSERT INTO journal_salvaged VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = params![now_ms(), link.seq, link.prev, link.hash, link.body];
    new.prepare_cached(sql)?.execute(values).map(drop)
}

/// Marks layers that no sandbox stands on any more: the sandbox's row may be
/// among those that could not be read, and `gc` must not finish the damage.
fn spare_unplaced_layers(home: &Path, new: &Connection) -> Result<()> {
    let unreachable = gc::unreachable(new)?;
    let mut spared: Vec<PathBuf> =
        unreachable.iter().map(|id| crate::layers::directory(home, *id)).collect();
    spared.extend(gc::unlisted(new, &home.join("layers"))?);
    for path in spared.iter().filter(|path| path.is_dir()) {
        let marker = path.join(SALVAGED);
        fs::write(&marker, "").map_err(|error| StoreError::io("write", &marker, error))?;
    }
    Ok(())
}

fn record_repair(home: &Path, new: &Connection, repair: &Repair) -> Result<()> {
    let body = RecordBody {
        time_ms: now_ms(),
        who: "owner".to_owned(),
        key: None,
        tenant: None,
        action: "repair".to_owned(),
        place: None,
        sandbox: None,
        name: None,
        before: None,
        after: None,
        error: None,
        detail: serde_json::json!({
            "rows": repair.rows,
            "lossy": repair.lossy,
            "records": repair.records,
            "records_salvaged": repair.records_salvaged,
        }),
    };
    tx::Tx::over(new, home).append(body).map(drop)
}
