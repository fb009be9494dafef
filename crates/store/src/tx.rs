//! The writes: all of them inside one transaction, with their record.
//!
//! A transaction takes the write lock at its start, so what it read stays
//! true until it commits. A closure that returns an error (or panics) leaves
//! nothing behind. Do not open a second transaction inside one: it would wait
//! for the first until it gives up with `busy`.

use crate::open::Patience;
use crate::{
    LayerRow, Reads, Result, RunRow, SandboxRow, SnapshotRow, Store, StoreError, VolumeRow, layers,
};
use fractal_model::Id;
use rusqlite::{Connection, ErrorCode, Params, params};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A transaction in progress. It answers questions too, through [`Reads`].
#[derive(Debug)]
pub struct Tx<'a> {
    pub(crate) conn: &'a Connection,
    home: &'a Path,
}

impl Store {
    /// Carries out `job` completely or not at all; durable when it returns.
    pub fn transact<T>(&self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        self.with_writer(Patience::Full, |conn| self.carry_out(conn, job))
    }

    /// The same without waiting for the disk: survives the death of this
    /// process, not a power cut. The journal stays a prefix of itself either
    /// way. For records of throw-away runs.
    pub fn transact_relaxed<T>(&self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        self.with_writer(Patience::Normal, |conn| self.carry_out(conn, job))
    }

    fn carry_out<T>(&self, conn: &Connection, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        let begun = Begun::new(conn)?;
        let value = job(&Tx::over(conn, self.home()))?;
        begun.commit()?;
        Ok(value)
    }
}

pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(crate) const COMMIT: &str = "COMMIT";

/// A transaction that rolls back unless it commits. As rusqlite's own, but
/// with statements that are compiled once.
struct Begun<'a>(&'a Connection);

impl<'a> Begun<'a> {
    fn new(conn: &'a Connection) -> Result<Begun<'a>> {
        conn.prepare_cached(BEGIN)?.execute([])?;
        Ok(Begun(conn))
    }

    fn commit(self) -> Result<()> {
        self.0.prepare_cached(COMMIT)?.execute([])?;
        Ok(())
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

impl<'a> Tx<'a> {
    /// Speaks for a transaction that someone else began and will commit.
    pub(crate) fn over(conn: &'a Connection, home: &'a Path) -> Tx<'a> {
        Tx { conn, home }
    }
}

impl Tx<'_> {
    /// Adds a sandbox. Its name must be free and its layers must exist.
    pub fn insert_sandbox(&self, row: &SandboxRow) -> Result<()> {
        self.require_layer(row.top)?;
        row.base.map_or(Ok(()), |base| self.require_layer(base))?;
        let sql = format!(
            "INSERT INTO sandbox ({}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15)",
            SandboxRow::COLUMNS
        );
        let values = params![
            row.id.as_str(),
            row.name,
            text(&row.parent),
            text(&row.base),
            row.top.as_str(),
            json(&row.policy)?,
            row.template,
            json(&row.mounts)?,
            row.directory.as_os_str().as_bytes(),
            row.created_ms,
            row.touched_ms,
            row.ttl_ms,
            row.fork_ctime_ns,
            row.epoch,
            row.tenant,
        ];
        self.insert("sandbox", &row.name, &sql, values)
    }

    /// Writes everything about a sandbox but `id`, `tenant`, `top`, `epoch` and
    /// when it was made; `top` and `epoch` move only through [`Tx::set_top`].
    pub fn update_sandbox(&self, row: &SandboxRow) -> Result<()> {
        row.base.map_or(Ok(()), |base| self.require_layer(base))?;
        let sql = "UPDATE sandbox SET name = ?2, parent = ?3, base = ?4, policy = ?5, \
                   template = ?6, mounts = ?7, directory = ?8, touched_ms = ?9, ttl_ms = ?10, \
                   fork_ctime_ns = ?11 WHERE id = ?1";
        let values = params![
            row.id.as_str(),
            row.name,
            text(&row.parent),
            text(&row.base),
            json(&row.policy)?,
            row.template,
            json(&row.mounts)?,
            row.directory.as_os_str().as_bytes(),
            row.touched_ms,
            row.ttl_ms,
            row.fork_ctime_ns,
        ];
        let changed = self.run(sql, values).map_err(|error| taken("sandbox", &row.name, error))?;
        found(changed, "sandbox", row.id)
    }

    /// Notes that a sandbox was used.
    pub fn touch_sandbox(&self, id: Id, touched_ms: u64) -> Result<()> {
        let sql = "UPDATE sandbox SET touched_ms = max(touched_ms, ?2) WHERE id = ?1";
        found(self.run(sql, params![id.as_str(), touched_ms])?, "sandbox", id)
    }

    /// Forgets a sandbox and its snapshots; layers wait for `gc`. Returns
    /// whether it was there, since dropping twice is no error.
    pub fn delete_sandbox(&self, id: Id) -> Result<bool> {
        Ok(self.run("DELETE FROM sandbox WHERE id = ?1", [id.as_str()])? > 0)
    }

    /// Moves the top of a sandbox if nobody else did since `epoch` was read
    /// and nothing runs in it: a run goes on writing the top it began with.
    /// Returns the new epoch.
    pub fn set_top(&self, id: Id, epoch: u64, top: Id) -> Result<u64> {
        let now = self.sandbox(id)?.ok_or_else(|| StoreError::not_found("sandbox", id))?;
        if now.epoch != epoch {
            return Err(StoreError::Stale { sandbox: id, expected: epoch, found: now.epoch });
        }
        if !self.runs_of(id)?.is_empty() {
            return Err(StoreError::Running { name: now.name });
        }
        self.require_layer(top)?;
        let next = epoch + 1;
        let sql = "UPDATE sandbox SET top = ?2, epoch = ?3 WHERE id = ?1";
        self.run(sql, params![id.as_str(), top.as_str(), next])?;
        Ok(next)
    }

    /// Moves the base of a sandbox to a layer that means the same.
    pub fn set_base(&self, id: Id, base: Id) -> Result<()> {
        self.require_layer(base)?;
        let sql = "UPDATE sandbox SET base = ?2 WHERE id = ?1";
        found(self.run(sql, [id.as_str(), base.as_str()])?, "sandbox", id)
    }

    /// Adds a layer. Its directory must exist already (see
    /// [`Store::new_layer_dir`]): since `gc` removes directories without rows
    /// inside a transaction, one that is seen here stays.
    pub fn insert_layer(&self, row: &LayerRow) -> Result<()> {
        if !layers::tree(self.home, row.id).is_dir() {
            return Err(StoreError::not_found("directory of layer", row.id));
        }
        row.below.map_or(Ok(()), |below| self.require_layer(below))?;
        let sql = format!("INSERT INTO layer ({}) VALUES (?1, ?2, ?3, ?4, ?5)", LayerRow::COLUMNS);
        let values =
            params![row.id.as_str(), text(&row.below), row.sealed, row.created_ms, row.size_bytes];
        self.insert("layer", row.id, &sql, values)
    }

    /// Seals a layer for good and notes its size.
    pub fn seal_layer(&self, id: Id, size_bytes: u64) -> Result<()> {
        let sql = "UPDATE layer SET sealed = 1, size_bytes = ?2 WHERE id = ?1";
        found(self.run(sql, params![id.as_str(), size_bytes])?, "layer", id)
    }

    /// Forgets a layer if nothing stands on it, and returns whether it did;
    /// its directory can then be discarded without waiting for `gc`.
    pub fn delete_layer_if_unused(&self, id: Id) -> Result<bool> {
        let sql = "DELETE FROM layer WHERE id = ?1 \
                   AND NOT EXISTS (SELECT 1 FROM sandbox WHERE top = ?1) \
                   AND NOT EXISTS (SELECT 1 FROM sandbox WHERE base = ?1) \
                   AND NOT EXISTS (SELECT 1 FROM snapshot WHERE layer = ?1) \
                   AND NOT EXISTS (SELECT 1 FROM capture WHERE layer = ?1) \
                   AND NOT EXISTS (SELECT 1 FROM layer AS above WHERE above.below = ?1)";
        Ok(self.run(sql, [id.as_str()])? > 0)
    }

    /// Gives a layer a name.
    pub fn insert_snapshot(&self, row: &SnapshotRow) -> Result<()> {
        self.require_layer(row.layer)?;
        self.sandbox(row.sandbox)?.ok_or_else(|| StoreError::not_found("sandbox", row.sandbox))?;
        let sql =
            format!("INSERT INTO snapshot ({}) VALUES (?1, ?2, ?3, ?4)", SnapshotRow::COLUMNS);
        let values = params![row.sandbox.as_str(), row.name, row.layer.as_str(), row.created_ms];
        self.insert("snapshot", &row.name, &sql, values)
    }

    /// Forgets a snapshot; returns whether it was there.
    pub fn delete_snapshot(&self, sandbox: Id, name: &str) -> Result<bool> {
        let sql = "DELETE FROM snapshot WHERE sandbox = ?1 AND name = ?2";
        Ok(self.run(sql, [sandbox.as_str(), name])? > 0)
    }

    /// Notes that a run lives.
    pub fn insert_run(&self, row: &RunRow) -> Result<()> {
        let sql =
            format!("INSERT INTO run ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", RunRow::COLUMNS);
        let values = params![
            row.id.as_str(),
            row.sandbox.as_str(),
            row.pid,
            row.pid_start,
            row.epoch,
            row.cgroup,
            row.started_ms
        ];
        self.insert("run", row.id, &sql, values)
    }

    /// Notes that a run ended; returns whether it was still listed, so that
    /// of two processes that notice it only one writes the record.
    pub fn delete_run(&self, id: Id) -> Result<bool> {
        Ok(self.run("DELETE FROM run WHERE id = ?1", [id.as_str()])? > 0)
    }

    /// Adds a volume.
    pub fn insert_volume(&self, row: &VolumeRow) -> Result<()> {
        let sql = "INSERT INTO volume (name, created_ms, tenant) VALUES (?1, ?2, ?3)";
        let values = params![row.name.as_str(), row.created_ms, row.tenant];
        self.insert("volume", &row.name, sql, values)
    }

    /// Forgets a volume; returns whether it was there.
    pub fn delete_volume(&self, tenant: &str, name: &str) -> Result<bool> {
        let sql = "DELETE FROM volume WHERE tenant = ?1 AND name = ?2";
        Ok(self.run(sql, [tenant, name])? > 0)
    }

    pub(crate) fn run(&self, sql: &str, params: impl Params) -> Result<usize> {
        Ok(self.conn.prepare_cached(sql)?.execute(params)?)
    }

    pub(crate) fn insert(
        &self,
        what: &'static str,
        name: impl ToString,
        sql: &str,
        params: impl Params,
    ) -> Result<()> {
        self.run(sql, params).map(drop).map_err(|error| taken(what, name, error))
    }

    fn require_layer(&self, id: Id) -> Result<()> {
        self.layer(id)?.map(drop).ok_or_else(|| StoreError::not_found("layer", id))
    }
}

fn text(id: &Option<Id>) -> Option<&str> {
    id.as_ref().map(Id::as_str)
}

pub(crate) fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| {
        StoreError::Refused(fractal_model::Error::internal(format!("cannot write JSON: {error}")))
    })
}

pub(crate) fn found(changed: usize, what: &'static str, id: Id) -> Result<()> {
    if changed > 0 { Ok(()) } else { Err(StoreError::not_found(what, id)) }
}

/// References are checked before, so a constraint that fails is a taken name.
fn taken(what: &'static str, name: impl ToString, error: StoreError) -> StoreError {
    match error {
        StoreError::Sqlite { source, .. }
            if source.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) =>
        {
            StoreError::exists(what, name)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synchronous(conn: &Connection) -> Result<i64> {
        Ok(conn.query_row("PRAGMA synchronous", [], |row| row.get(0))?)
    }

    #[test]
    fn only_a_relaxed_transaction_is_relaxed() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(home.path()).expect("an empty home opens");
        let (full, normal) = (2, 1);
        for _ in 0..3 {
            let inside = store.transact_relaxed(|tx| synchronous(tx.conn));
            assert_eq!(inside.expect("it commits"), normal);
            let inside = store.transact(|tx| synchronous(tx.conn));
            assert_eq!(inside.expect("it commits"), full);
        }
    }

    #[test]
    fn a_panic_inside_leaves_nothing_behind() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(home.path()).expect("an empty home opens");
        let row = VolumeRow {
            name: fractal_model::Name::parse("v").expect("a good name"),
            created_ms: 1,
            tenant: String::new(),
        };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.transact_relaxed(|tx| -> Result<()> {
                tx.insert_volume(&row)?;
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(store.volumes().expect("it reads"), vec![]);
        let level = store.transact(|tx| synchronous(tx.conn)).expect("it commits");
        assert_eq!(level, 2);
    }
}
