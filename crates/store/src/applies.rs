//! Writes into reality: which are on their way, which are done, what is kept.
//!
//! A row is made before the first byte is staged and says who works on it, so
//! that whoever finds that process dead can take over. What stood in reality
//! before lies in `undo/<id>/`; the directory is made after its row and goes
//! with [`Store::discard_undo`]. What is in it is the engine's business.

use crate::rows::{id, json, maybe_id, unreadable};
use crate::{Reads, Result, Store, StoreError, Tx, process_start, tree};
use fractal_model::Id;
use rusqlite::{Row, params};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How far a write into reality has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyState {
    /// New contents are being laid out; a crash means going back.
    Staging,
    /// Decided: paths are being exchanged; a crash means going on.
    Swapping,
    /// Given up: everything is being taken back.
    Back,
    /// Done and recorded; only what was staged is left to remove.
    Sweeping,
    /// Done.
    Done,
    /// Taken back but for paths that others edited; what stood there is kept.
    Left,
}

impl ApplyState {
    const NAMES: [(ApplyState, &str); 6] = [
        (ApplyState::Staging, "staging"),
        (ApplyState::Swapping, "swapping"),
        (ApplyState::Back, "back"),
        (ApplyState::Sweeping, "sweeping"),
        (ApplyState::Done, "done"),
        (ApplyState::Left, "left"),
    ];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).expect("every state has a name").1
    }

    fn parse(text: &str) -> Option<ApplyState> {
        Self::NAMES.iter().find(|row| row.1 == text).map(|row| row.0)
    }
}

/// A process: its id and when it started. The default is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Worker {
    /// Its pid; 0 is nobody.
    pub pid: i32,
    /// Its start, see [`process_start`].
    pub start: u64,
}

impl Worker {
    /// This process.
    pub fn own() -> Worker {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Worker { pid, start: process_start(pid).unwrap_or(0) }
    }

    /// Whether it still lives.
    pub fn is_alive(self) -> bool {
        self.pid != 0 && process_start(self.pid) == Some(self.start)
    }
}

/// A write into reality as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyRow {
    /// Its id, the one for `undo`, and the name of its directory.
    pub id: Id,
    /// How far it has come.
    pub state: ApplyState,
    /// The directory that all its paths lie below.
    pub root: PathBuf,
    /// Directories below the root that hold a stage, as the engine writes them.
    pub stages: Vec<String>,
    /// Who works on it.
    pub worker: Worker,
    /// When it began.
    pub created_ms: u64,
    /// The sandbox it came from. It may have been dropped meanwhile.
    pub sandbox: Option<Id>,
    /// The number of its record, once it is done.
    pub seq: Option<u64>,
    /// What it takes back, for an undo.
    pub undoes: Option<Id>,
    /// What took it back.
    pub undone_by: Option<Id>,
    /// Whether what stood there before is still kept.
    pub kept: bool,
    /// Whose it is; empty for the local user's.
    pub tenant: String,
}

impl ApplyRow {
    pub(crate) const COLUMNS: &str = "id, state, root, stages, pid, pid_start, created_ms, \
         sandbox, seq, undoes, undone_by, kept, tenant";

    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<ApplyRow> {
        let state: String = row.get(1)?;
        let state = ApplyState::parse(&state)
            .ok_or_else(|| unreadable(1, std::io::Error::other("an unknown state")))?;
        Ok(ApplyRow {
            id: id(row, 0)?,
            state,
            root: PathBuf::from(OsString::from_vec(row.get(2)?)),
            stages: json(row, 3)?,
            worker: Worker { pid: row.get(4)?, start: row.get(5)? },
            created_ms: row.get(6)?,
            sandbox: maybe_id(row, 7)?,
            seq: row.get(8)?,
            undoes: maybe_id(row, 9)?,
            undone_by: maybe_id(row, 10)?,
            kept: row.get(11)?,
            tenant: row.get(12)?,
        })
    }
}

impl ApplyRow {
    /// Whether nobody will work on it any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, ApplyState::Done | ApplyState::Left)
    }

    /// Whether it works in a directory, above it or below it.
    pub fn overlaps(&self, root: &Path) -> bool {
        self.root.starts_with(root) || root.starts_with(&self.root)
    }
}

impl Tx<'_> {
    /// Notes that a write into reality begins. Refused while another one works
    /// in the same directory, above it or below it.
    pub fn insert_apply(&self, row: &ApplyRow) -> Result<()> {
        let mut others = self.unfinished_applies()?.into_iter();
        if let Some(other) = others.find(|other| other.overlaps(&row.root)) {
            return Err(StoreError::Applying { root: other.root, id: other.id });
        }
        let sql = format!(
            "INSERT INTO apply ({}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)",
            ApplyRow::COLUMNS
        );
        let text = |id: &Option<Id>| id.map(String::from);
        let stages = serde_json::to_string(&row.stages).expect("a list of strings is JSON");
        let values = params![
            row.id.as_str(),
            row.state.name(),
            row.root.as_os_str().as_bytes(),
            stages,
            row.worker.pid,
            row.worker.start,
            row.created_ms,
            text(&row.sandbox),
            row.seq,
            text(&row.undoes),
            text(&row.undone_by),
            row.kept,
            row.tenant,
        ];
        self.run(&sql, values).map(drop)
    }

    /// Moves a write on; its worker must still be the one given.
    pub fn set_apply_state(&self, id: Id, worker: Worker, state: ApplyState) -> Result<()> {
        let sql = "UPDATE apply SET state = ?4 WHERE id = ?1 AND pid = ?2 AND pid_start = ?3";
        let values = params![id.as_str(), worker.pid, worker.start, state.name()];
        match self.run(sql, values)? {
            0 => Err(StoreError::not_found("apply", id)),
            _ => Ok(()),
        }
    }

    /// Hands a write from one process to another; false when somebody else
    /// was faster.
    pub fn claim_apply(&self, id: Id, from: Worker, to: Worker) -> Result<bool> {
        let sql = "UPDATE apply SET pid = ?4, pid_start = ?5 \
                   WHERE id = ?1 AND pid = ?2 AND pid_start = ?3";
        let values = params![id.as_str(), from.pid, from.start, to.pid, to.start];
        Ok(self.run(sql, values)? > 0)
    }

    /// Notes how a write ended, under which record, and what it took back.
    pub fn finish_apply(&self, row: &ApplyRow, state: ApplyState, seq: u64) -> Result<()> {
        self.set_apply_state(row.id, row.worker, state)?;
        self.run("UPDATE apply SET seq = ?2 WHERE id = ?1", params![row.id.as_str(), seq])?;
        if let Some(undoes) = row.undoes.filter(|_| state != ApplyState::Left) {
            let sql = "UPDATE apply SET undone_by = ?2 WHERE id = ?1";
            self.run(sql, [undoes.as_str(), row.id.as_str()])?;
        }
        Ok(())
    }

    /// Forgets a write that was taken back completely.
    pub fn delete_apply(&self, id: Id) -> Result<bool> {
        Ok(self.run("DELETE FROM apply WHERE id = ?1", [id.as_str()])? > 0)
    }

    /// Notes that what stood there before is no longer kept.
    pub fn forget_kept(&self, id: Id) -> Result<()> {
        self.run("UPDATE apply SET kept = 0 WHERE id = ?1", [id.as_str()]).map(drop)
    }
}

impl Store {
    /// Where all kept data of writes into reality is.
    pub fn undos_dir(&self) -> PathBuf {
        self.home().join("undo")
    }

    /// Where one write keeps its plan and what stood there before.
    pub fn undo_dir(&self, id: Id) -> PathBuf {
        self.undos_dir().join(id.as_str())
    }

    /// Makes that directory; call it after the row was inserted.
    pub fn new_undo_dir(&self, id: Id) -> Result<PathBuf> {
        let path = self.undo_dir(id);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| StoreError::io("create", &path, error))?;
        Ok(path)
    }

    /// Throws it away; one that is gone already is fine.
    pub fn discard_undo(&self, id: Id) -> Result<()> {
        self.discard(&self.undo_dir(id))
    }

    /// Throws away what stood in reality and keeps the plan and whatever else
    /// says what was written. Call it after [`Tx::forget_kept`].
    pub fn discard_kept(&self, id: Id) -> Result<()> {
        let path = self.undo_dir(id);
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| StoreError::io("read", &path, error))?,
        };
        let dirs =
            entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        dirs.map(|entry| entry.path()).try_for_each(|path| self.discard(&path))
    }

    /// Disk space that it takes.
    pub fn undo_size(&self, id: Id) -> Result<u64> {
        let path = self.undo_dir(id);
        match tree::measure(&path).map_err(std::io::Error::from) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            other => other.map_err(|error| StoreError::io("measure", &path, error)),
        }
    }
}
