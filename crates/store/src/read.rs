//! The questions: the same on the store and inside a transaction.
//!
//! [`Reads`] has two implementors. On a [`crate::Store`] each question sees
//! the latest commit; on a [`crate::Tx`] it sees the transaction's own writes.

use crate::rows::{RECORD_COLUMNS, read_record};
use crate::{
    ApplyRow, KeyRow, LayerRow, Result, RunRow, SandboxRow, SnapshotRow, Store, Tx, VolumeRow,
};
use fractal_model::{Id, Record};
use rusqlite::{Connection, OptionalExtension, Params, Row};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where questions can be asked.
pub trait Reads {
    #[doc(hidden)]
    fn ask<T>(&self, job: impl FnOnce(&Connection) -> Result<T>) -> Result<T>;

    /// The sandbox with this id.
    fn sandbox(&self, id: Id) -> Result<Option<SandboxRow>> {
        let sql = sandbox_sql("WHERE id = ?1");
        self.ask(|conn| one(conn, &sql, [id.as_str()], SandboxRow::read))
    }

    /// The sandbox of a tenant with this name.
    fn sandbox_named(&self, tenant: &str, name: &str) -> Result<Option<SandboxRow>> {
        let sql = sandbox_sql("WHERE tenant = ?1 AND name = ?2");
        self.ask(|conn| one(conn, &sql, [tenant, name], SandboxRow::read))
    }

    /// All sandboxes with this name, of whichever tenant, oldest first.
    fn sandboxes_named(&self, name: &str) -> Result<Vec<SandboxRow>> {
        let sql = sandbox_sql("WHERE name = ?1 ORDER BY created_ms, id");
        self.ask(|conn| many(conn, &sql, [name], SandboxRow::read))
    }

    /// The sandboxes of a tenant that were made in this directory, the most
    /// recently touched first, but for those that a verb made for itself.
    fn latest_in(&self, tenant: &str, directory: &Path, limit: u32) -> Result<Vec<SandboxRow>> {
        let sql = sandbox_sql(
            "WHERE directory = ?1 AND tenant = ?2 AND template NOT IN ('gate', 'stage') \
             ORDER BY touched_ms DESC, id DESC LIMIT ?3",
        );
        let directory = directory.as_os_str().as_bytes();
        let values = rusqlite::params![directory, tenant, limit];
        self.ask(|conn| many(conn, &sql, values, SandboxRow::read))
    }

    /// All sandboxes, oldest first.
    fn sandboxes(&self) -> Result<Vec<SandboxRow>> {
        let sql = sandbox_sql("ORDER BY created_ms, id");
        self.ask(|conn| many(conn, &sql, [], SandboxRow::read))
    }

    /// Sandboxes in the order of their ids, which is that of their making:
    /// those that follow `after`, of one tenant and one template where these
    /// are given. What is made meanwhile comes on a later page, unless it was
    /// made in the millisecond that `after` was.
    fn sandboxes_after(
        &self,
        after: Option<Id>,
        tenant: Option<&str>,
        template: Option<&str>,
        limit: u32,
    ) -> Result<Vec<SandboxRow>> {
        let sql = sandbox_sql(
            "WHERE id > ?1 AND (?2 IS NULL OR tenant = ?2) \
             AND (?3 IS NULL OR template = ?3) ORDER BY id LIMIT ?4",
        );
        let after = after.as_ref().map_or("", Id::as_str);
        let values = rusqlite::params![after, tenant, template, limit];
        self.ask(|conn| many(conn, &sql, values, SandboxRow::read))
    }

    /// The sandboxes that nobody has touched for longer than they may be
    /// forgotten, oldest first.
    fn expired_sandboxes(&self, now_ms: u64) -> Result<Vec<SandboxRow>> {
        // A bound that no clock reaches is a sum that no integer holds, which
        // SQLite turns into a number with a point: it is still larger.
        let sql = sandbox_sql(
            "WHERE ttl_ms IS NOT NULL AND touched_ms + ttl_ms < ?1 ORDER BY created_ms, id",
        );
        self.ask(|conn| many(conn, &sql, [now_ms], SandboxRow::read))
    }

    /// The sandboxes whose parent this is, oldest first.
    fn children(&self, parent: Id) -> Result<Vec<SandboxRow>> {
        let sql = sandbox_sql("WHERE parent = ?1 ORDER BY created_ms, id");
        self.ask(|conn| many(conn, &sql, [parent.as_str()], SandboxRow::read))
    }

    /// One layer.
    fn layer(&self, id: Id) -> Result<Option<LayerRow>> {
        let sql = format!("SELECT {} FROM layer WHERE id = ?1", LayerRow::COLUMNS);
        self.ask(|conn| one(conn, &sql, [id.as_str()], LayerRow::read))
    }

    /// A layer and everything below it, top first. Ends early where a row is
    /// missing; a loop in damaged data ends after 10,000 layers.
    fn stack(&self, top: Id) -> Result<Vec<LayerRow>> {
        let sql = format!(
            "WITH RECURSIVE down(at, depth) AS (
                 SELECT ?1, 0
                 UNION ALL
                 SELECT below, depth + 1 FROM layer JOIN down ON id = at
                 WHERE below IS NOT NULL AND depth < {STACK_MAX})
             SELECT {} FROM down JOIN layer ON id = at ORDER BY depth",
            LayerRow::COLUMNS
        );
        self.ask(|conn| many(conn, &sql, [top.as_str()], LayerRow::read))
    }

    /// The snapshots of a sandbox, newest first.
    fn snapshots(&self, sandbox: Id) -> Result<Vec<SnapshotRow>> {
        let sql = format!(
            "SELECT {} FROM snapshot WHERE sandbox = ?1 ORDER BY created_ms DESC, rowid DESC",
            SnapshotRow::COLUMNS
        );
        self.ask(|conn| many(conn, &sql, [sandbox.as_str()], SnapshotRow::read))
    }

    /// One snapshot by its name.
    fn snapshot(&self, sandbox: Id, name: &str) -> Result<Option<SnapshotRow>> {
        let sql = format!(
            "SELECT {} FROM snapshot WHERE sandbox = ?1 AND name = ?2",
            SnapshotRow::COLUMNS
        );
        self.ask(|conn| one(conn, &sql, [sandbox.as_str(), name], SnapshotRow::read))
    }

    /// All runs that live, or whose end nobody has recorded, oldest first.
    fn runs(&self) -> Result<Vec<RunRow>> {
        let sql = format!("SELECT {} FROM run ORDER BY id", RunRow::COLUMNS);
        self.ask(|conn| many(conn, &sql, [], RunRow::read))
    }

    /// Those of one sandbox.
    fn runs_of(&self, sandbox: Id) -> Result<Vec<RunRow>> {
        let sql = format!("SELECT {} FROM run WHERE sandbox = ?1 ORDER BY id", RunRow::COLUMNS);
        self.ask(|conn| many(conn, &sql, [sandbox.as_str()], RunRow::read))
    }

    /// All volumes by name.
    fn volumes(&self) -> Result<Vec<VolumeRow>> {
        let sql = format!("SELECT {} FROM volume ORDER BY name, tenant", VolumeRow::COLUMNS);
        self.ask(|conn| many(conn, &sql, [], VolumeRow::read))
    }

    /// One volume of a tenant.
    fn volume(&self, tenant: &str, name: &str) -> Result<Option<VolumeRow>> {
        let sql =
            format!("SELECT {} FROM volume WHERE tenant = ?1 AND name = ?2", VolumeRow::COLUMNS);
        self.ask(|conn| one(conn, &sql, [tenant, name], VolumeRow::read))
    }

    /// The key with this id.
    fn key(&self, id: Id) -> Result<Option<KeyRow>> {
        let sql = format!("SELECT {} FROM key WHERE id = ?1", KeyRow::COLUMNS);
        self.ask(|conn| one(conn, &sql, [id.as_str()], KeyRow::read))
    }

    /// All keys, also those that have ended, oldest first.
    fn keys(&self) -> Result<Vec<KeyRow>> {
        let sql = format!("SELECT {} FROM key ORDER BY id", KeyRow::COLUMNS);
        self.ask(|conn| many(conn, &sql, [], KeyRow::read))
    }

    /// Writes into reality that are on their way, oldest first.
    fn unfinished_applies(&self) -> Result<Vec<ApplyRow>> {
        let sql = apply_sql("WHERE state NOT IN ('done', 'left') ORDER BY id");
        self.ask(|conn| many(conn, &sql, [], ApplyRow::read))
    }

    /// All writes into reality, newest first.
    fn applies(&self) -> Result<Vec<ApplyRow>> {
        let sql = apply_sql("ORDER BY id DESC");
        self.ask(|conn| many(conn, &sql, [], ApplyRow::read))
    }

    /// One record by its number.
    fn record(&self, seq: u64) -> Result<Option<Record>> {
        let sql = format!("SELECT {RECORD_COLUMNS} FROM journal WHERE seq = ?1");
        self.ask(|conn| one(conn, &sql, [seq], read_record))
    }

    /// The newest records first, of one sandbox or of all.
    fn journal(&self, sandbox: Option<Id>, limit: u64) -> Result<Vec<Record>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let wanted = if sandbox.is_some() { "WHERE sandbox = ?2" } else { "" };
        let sql =
            format!("SELECT {RECORD_COLUMNS} FROM journal {wanted} ORDER BY seq DESC LIMIT ?1");
        self.ask(|conn| match sandbox {
            Some(id) => many(conn, &sql, rusqlite::params![limit, id.as_str()], read_record),
            None => many(conn, &sql, [limit], read_record),
        })
    }

    /// Shows records one by one until there are no more, or until `wanted`
    /// says that it has seen enough: those that follow number `after`, oldest
    /// first, or all of them, newest first.
    fn each_record(
        &self,
        after: Option<u64>,
        mut wanted: impl FnMut(Record) -> ControlFlow<()>,
    ) -> Result<()> {
        let (rest, number) = match after {
            Some(seq) => ("WHERE seq > ?1 ORDER BY seq", seq.min(i64::MAX as u64)),
            None => ("WHERE seq > ?1 ORDER BY seq DESC", 0),
        };
        let sql = format!("SELECT {RECORD_COLUMNS} FROM journal {rest}");
        self.ask(|conn| {
            let mut statement = conn.prepare_cached(&sql)?;
            let mut rows = statement.query([number])?;
            while let Some(row) = rows.next()? {
                if wanted(read_record(row)?).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Records that follow number `seq` (0 for all), oldest first: for tailing
    /// the journal, or reading it in pages.
    fn journal_after(&self, seq: u64, limit: u64) -> Result<Vec<Record>> {
        let (seq, limit) = (seq.min(i64::MAX as u64), limit.min(i64::MAX as u64));
        let sql =
            format!("SELECT {RECORD_COLUMNS} FROM journal WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        self.ask(|conn| many(conn, &sql, [seq, limit], read_record))
    }
}

/// More layers than any kernel stacks; bounds the walk down.
const STACK_MAX: u32 = 10_000;

impl Reads for Store {
    fn ask<T>(&self, job: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.with_connection(job)
    }
}

impl Reads for Tx<'_> {
    fn ask<T>(&self, job: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        job(self.conn)
    }
}

impl Store {
    /// Bytes in a sandbox's own layers, those above its base.
    pub fn own_size(&self, sandbox: &SandboxRow) -> Result<u64> {
        let mut own = self.stack(sandbox.top)?;
        if let Some(base) = sandbox.base {
            // Not always in its stack: a rollback may lead to a snapshot that
            // stands on layers which the base was flattened from.
            let base = self.stack(base)?;
            own.retain(|layer| base.iter().all(|other| other.id != layer.id));
        }
        own.iter().map(|layer| self.known_size(layer)).sum()
    }

    /// Bytes in all layers that are under `tops` and not under `ground`, each
    /// of them once, and without those in `left_out`, whatever is under these.
    /// Those that go away meanwhile count for nothing.
    pub fn size_above(&self, tops: &[Id], ground: &[Id], left_out: &[Id]) -> Result<u64> {
        let mut seen: std::collections::HashSet<Id> = left_out.iter().copied().collect();
        for id in ground {
            seen.extend(self.stack(*id)?.into_iter().map(|layer| layer.id));
        }
        let mut sum = 0u64;
        for id in tops {
            for layer in self.stack(*id)? {
                if seen.insert(layer.id) {
                    sum = sum.saturating_add(self.known_size(&layer).unwrap_or(0));
                }
            }
        }
        Ok(sum)
    }

    /// A layer's size as noted, or as measured now. Sealing takes the same time
    /// for any size, so it notes none; whoever asks first does it.
    pub(crate) fn known_size(&self, layer: &LayerRow) -> Result<u64> {
        if layer.sealed && layer.size_bytes > 0 {
            return Ok(layer.size_bytes);
        }
        let size = self.layer_size(layer.id)?;
        if layer.sealed {
            // Only a note: without it the next one measures again.
            let _ = self.transact_relaxed(|tx| tx.seal_layer(layer.id, size));
        }
        Ok(size)
    }
}

fn sandbox_sql(rest: &str) -> String {
    format!("SELECT {} FROM sandbox {rest}", SandboxRow::COLUMNS)
}

fn apply_sql(rest: &str) -> String {
    format!("SELECT {} FROM apply {rest}", ApplyRow::COLUMNS)
}

pub(crate) fn one<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    Ok(conn.prepare_cached(sql)?.query_row(params, read).optional()?)
}

pub(crate) fn many<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map(params, read)?.collect::<rusqlite::Result<_>>()?;
    Ok(rows)
}
