//! The rows as data, and how each is read from a query's columns.
//!
//! Column order is fixed by the `COLUMNS` constant of each row, so that a
//! query and its reader cannot drift apart.

use fractal_model::{Id, Mount, Name, Policy, Record};
use rusqlite::types::Type;
use rusqlite::{Result, Row};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A sandbox as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRow {
    /// Its id.
    pub id: Id,
    /// Its name; unique among the sandboxes of its tenant that exist.
    pub name: String,
    /// Where promote goes; `None` is reality. May name a dropped sandbox.
    pub parent: Option<Id>,
    /// The layer it started from; `None` is reality.
    pub base: Option<Id>,
    /// The layer it writes to.
    pub top: Id,
    /// What it may do.
    pub policy: Policy,
    /// The template it was made from.
    pub template: String,
    /// What is mounted in it.
    pub mounts: Vec<Mount>,
    /// The host directory it was made in.
    pub directory: PathBuf,
    /// When it was made.
    pub created_ms: u64,
    /// When it was last used.
    pub touched_ms: u64,
    /// How long it may stay untouched before it expires.
    pub ttl_ms: Option<u64>,
    /// The host's file clock at the fork: later `ctime`s are changes under it.
    pub fork_ctime_ns: i64,
    /// Grows with every move of `top`; a claim compares and swaps it.
    pub epoch: u64,
    /// Whose it is; empty for the local user's.
    pub tenant: String,
}

/// A layer as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRow {
    /// Its id, and the name of its directory.
    pub id: Id,
    /// The layer below; `None` stands on reality.
    pub below: Option<Id>,
    /// A sealed layer is never written again.
    pub sealed: bool,
    /// When it was made.
    pub created_ms: u64,
    /// Bytes in it; 0 until somebody asked for the size of a sealed layer.
    pub size_bytes: u64,
}

/// A sealed layer with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRow {
    /// Whose snapshot.
    pub sandbox: Id,
    /// Its name; unique within the sandbox.
    pub name: String,
    /// The layer.
    pub layer: Id,
    /// When it was made.
    pub created_ms: u64,
}

/// A run that lives, or whose end nobody has recorded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Its id.
    pub id: Id,
    /// Where it runs. The sandbox may have been dropped meanwhile.
    pub sandbox: Id,
    /// The process that supervises it.
    pub pid: i32,
    /// When that process started, in clock ticks since boot; with `pid` it
    /// names a process for as long as the machine is up.
    pub pid_start: u64,
    /// The sandbox's epoch when the run began.
    pub epoch: u64,
    /// Its cgroup, for cleaning up after a lost run; none for a run in memory,
    /// which has no processes of its own.
    pub cgroup: Option<String>,
    /// When it began.
    pub started_ms: u64,
}

/// A volume as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRow {
    /// Its name; unique within its tenant.
    pub name: Name,
    /// When it was made.
    pub created_ms: u64,
    /// Whose it is; empty for the local user's.
    pub tenant: String,
}

impl SandboxRow {
    pub(crate) const COLUMNS: &str = "id, name, parent, base, top, policy, template, mounts, \
         directory, created_ms, touched_ms, ttl_ms, fork_ctime_ns, epoch, tenant";

    pub(crate) fn read(row: &Row<'_>) -> Result<SandboxRow> {
        Ok(SandboxRow {
            id: id(row, 0)?,
            name: row.get(1)?,
            parent: maybe_id(row, 2)?,
            base: maybe_id(row, 3)?,
            top: id(row, 4)?,
            policy: json(row, 5)?,
            template: row.get(6)?,
            mounts: json(row, 7)?,
            directory: PathBuf::from(OsString::from_vec(row.get(8)?)),
            created_ms: row.get(9)?,
            touched_ms: row.get(10)?,
            ttl_ms: row.get(11)?,
            fork_ctime_ns: row.get(12)?,
            epoch: row.get(13)?,
            tenant: row.get(14)?,
        })
    }
}

impl LayerRow {
    pub(crate) const COLUMNS: &str = "id, below, sealed, created_ms, size_bytes";

    pub(crate) fn read(row: &Row<'_>) -> Result<LayerRow> {
        Ok(LayerRow {
            id: id(row, 0)?,
            below: maybe_id(row, 1)?,
            sealed: row.get(2)?,
            created_ms: row.get(3)?,
            size_bytes: row.get(4)?,
        })
    }
}

impl SnapshotRow {
    pub(crate) const COLUMNS: &str = "sandbox, name, layer, created_ms";

    pub(crate) fn read(row: &Row<'_>) -> Result<SnapshotRow> {
        Ok(SnapshotRow {
            sandbox: id(row, 0)?,
            name: row.get(1)?,
            layer: id(row, 2)?,
            created_ms: row.get(3)?,
        })
    }
}

impl RunRow {
    pub(crate) const COLUMNS: &str = "id, sandbox, pid, pid_start, epoch, cgroup, started_ms";

    pub(crate) fn read(row: &Row<'_>) -> Result<RunRow> {
        Ok(RunRow {
            id: id(row, 0)?,
            sandbox: id(row, 1)?,
            pid: row.get(2)?,
            pid_start: row.get(3)?,
            epoch: row.get(4)?,
            cgroup: row.get(5)?,
            started_ms: row.get(6)?,
        })
    }
}

impl VolumeRow {
    pub(crate) const COLUMNS: &str = "name, created_ms, tenant";

    pub(crate) fn read(row: &Row<'_>) -> Result<VolumeRow> {
        let text: String = row.get(0)?;
        let name = Name::parse(&text).map_err(|error| unreadable(0, error))?;
        Ok(VolumeRow { name, created_ms: row.get(1)?, tenant: row.get(2)? })
    }
}

/// Columns of the journal, for [`read_record`].
pub(crate) const RECORD_COLUMNS: &str = "seq, prev, hash, body";

pub(crate) fn read_record(row: &Row<'_>) -> Result<Record> {
    Ok(Record { seq: row.get(0)?, prev: row.get(1)?, hash: row.get(2)?, body: json(row, 3)? })
}

/// Reads one id column.
pub(crate) fn id(row: &Row<'_>, column: usize) -> Result<Id> {
    let text = row.get_ref(column)?.as_str().map_err(|error| unreadable(column, error))?;
    Id::parse(text).map_err(|error| unreadable(column, error))
}

pub(crate) fn maybe_id(row: &Row<'_>, column: usize) -> Result<Option<Id>> {
    if row.get_ref(column)? == rusqlite::types::ValueRef::Null {
        return Ok(None);
    }
    id(row, column).map(Some)
}

pub(crate) fn json<T: for<'de> serde::Deserialize<'de>>(row: &Row<'_>, column: usize) -> Result<T> {
    let text = row.get_ref(column)?.as_str().map_err(|error| unreadable(column, error))?;
    serde_json::from_str(text).map_err(|error| unreadable(column, error))
}

pub(crate) fn unreadable(
    column: usize,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}
