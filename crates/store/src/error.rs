//! What can go wrong with the state directory, and what to type then.
//!
//! SQLite's result codes become the few cases a person can act on. Its errors
//! arrive without a path; [`StoreError::located`] adds it at the crate's door,
//! so that the code inside can use `?`.

use fractal_model::{Code, Error, Id};
use rusqlite::ErrorCode;
use std::io;
use std::path::{Path, PathBuf};

/// The result of everything the store does.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Why the store could not do it. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory could not be used.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was tried, as in "cannot *create* …".
        verb: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk under the state directory is full.
    #[error("cannot write {}: no space left on its disk", path.display())]
    Full {
        /// The database.
        path: PathBuf,
    },
    /// Reading or writing failed: a full disk also shows this way, where the
    /// database could not extend a file.
    #[error("cannot use {}: its disk is out of space or failing ({detail})", path.display())]
    Disk {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        detail: String,
    },
    /// The state directory cannot be written.
    #[error("cannot write {}: it is read-only", path.display())]
    ReadOnly {
        /// The database.
        path: PathBuf,
    },
    /// Others held the lock for longer than we wait.
    #[error("{} was locked by other processes for {} s", path.display(), crate::open::WAIT.as_secs())]
    Busy {
        /// The database or its lock.
        path: PathBuf,
    },
    /// Stored data does not read back as written.
    #[error("{} is damaged: {detail}", path.display())]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What was seen.
        detail: String,
    },
    /// A later version of fractal wrote this directory.
    #[error(
        "the state directory was made by a newer fractal (format {found}, known up to {known})"
    )]
    Newer {
        /// The version found.
        found: u32,
        /// The newest version this program reads.
        known: u32,
    },
    /// The named thing does not exist.
    #[error("there is no {what} `{name}`")]
    NotFound {
        /// `sandbox`, `layer`, `snapshot`, `run` or `volume`.
        what: &'static str,
        /// Its name or id.
        name: String,
    },
    /// The name is taken.
    #[error("{what} `{name}` exists already")]
    Exists {
        /// `sandbox`, `layer`, `snapshot`, `run` or `volume`.
        what: &'static str,
        /// Its name or id.
        name: String,
    },
    /// The sandbox moved on since the caller read it.
    #[error("sandbox {sandbox} changed meanwhile (epoch {found}, expected {expected})")]
    Stale {
        /// The sandbox.
        sandbox: Id,
        /// The epoch the caller knew.
        expected: u64,
        /// The epoch it has.
        found: u64,
    },
    /// Something runs in the sandbox, and what was asked needs it idle.
    #[error("something is running in `{name}`")]
    Running {
        /// The sandbox's name.
        name: String,
    },
    /// Another write into reality works in the same directory.
    #[error("another promotion is being written below {} (undo id {id})", root.display())]
    Applying {
        /// Where it works.
        root: PathBuf,
        /// Its id.
        id: Id,
    },
    /// The caller's own refusal from inside a transaction, passed through.
    #[error(transparent)]
    Refused(#[from] Error),
    /// Anything else SQLite says: a defect of ours.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl StoreError {
    /// Wraps an I/O error with what was tried on which path.
    pub(crate) fn io(verb: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        StoreError::Io { verb, path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn not_found(what: &'static str, name: impl ToString) -> Self {
        StoreError::NotFound { what, name: name.to_string() }
    }

    pub(crate) fn exists(what: &'static str, name: impl ToString) -> Self {
        StoreError::Exists { what, name: name.to_string() }
    }

    /// Damage found by us rather than by SQLite.
    pub(crate) fn corrupt(detail: impl Into<String>) -> Self {
        StoreError::Corrupt { path: PathBuf::new(), detail: detail.into() }
    }

    /// Names the database in an error that came from it.
    pub(crate) fn located(mut self, db: &Path) -> Self {
        match &mut self {
            StoreError::Full { path }
            | StoreError::Disk { path, .. }
            | StoreError::ReadOnly { path }
            | StoreError::Busy { path }
            | StoreError::Corrupt { path, .. }
            | StoreError::Sqlite { path, .. }
                if path.as_os_str().is_empty() =>
            {
                *path = db.to_owned();
            }
            _ => {}
        }
        self
    }

    /// Whether somebody else was faster, so that the same may work on a second
    /// try.
    pub fn is_race(&self) -> bool {
        matches!(self, StoreError::Stale { .. } | StoreError::Running { .. })
    }

    /// Whether the database itself is damaged.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, StoreError::Corrupt { .. })
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(source: rusqlite::Error) -> Self {
        use rusqlite::Error as Sql;
        let path = PathBuf::new();
        let code = source.sqlite_error_code();
        match (&source, code) {
            (_, Some(ErrorCode::DiskFull)) => StoreError::Full { path },
            (_, Some(ErrorCode::SystemIoFailure)) => {
                StoreError::Disk { path, detail: source.to_string() }
            }
            (_, Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied)) => {
                StoreError::ReadOnly { path }
            }
            (_, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) => {
                StoreError::Busy { path }
            }
            (_, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
            | (Sql::FromSqlConversionFailure(..) | Sql::InvalidColumnType(..), _)
            | (Sql::IntegralValueOutOfRange(..) | Sql::Utf8Error(..), _) => {
                StoreError::Corrupt { path, detail: source.to_string() }
            }
            // A missing table or column is damage too: only we write the schema.
            (Sql::SqlInputError { .. }, _) | (_, Some(ErrorCode::Unknown)) => {
                StoreError::Corrupt { path, detail: source.to_string() }
            }
            _ => StoreError::Sqlite { path, source },
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        let (code, hint) = match &error {
            StoreError::Refused(inner) => return inner.clone(),
            StoreError::Io { source, path, .. } => io_advice(source, path),
            StoreError::Full { .. } => {
                (Code::Limit, Some("run `fractal gc`, or free space on that disk".to_owned()))
            }
            StoreError::Disk { .. } => (
                Code::Limit,
                Some("free space there, or set FRACTAL_HOME to a directory on another disk".into()),
            ),
            StoreError::ReadOnly { .. } => (Code::Denied, Some(HOME_HINT.to_owned())),
            StoreError::Busy { .. } => {
                (Code::Busy, Some("try again, or run `fractal list` to see what runs".to_owned()))
            }
            StoreError::Corrupt { .. } => {
                (Code::Corrupt, Some("run `fractal doctor --repair`".to_owned()))
            }
            StoreError::Newer { .. } => (
                Code::Unsupported,
                Some("install that version, or set FRACTAL_HOME to another directory".to_owned()),
            ),
            StoreError::NotFound { what: "volume", .. } => {
                (Code::NotFound, Some("run `fractal volume list`".to_owned()))
            }
            StoreError::NotFound { .. } => (Code::NotFound, Some("run `fractal list`".to_owned())),
            StoreError::Exists { .. } => (Code::Exists, Some("choose another name".to_owned())),
            StoreError::Stale { .. } => {
                (Code::Conflict, Some("run `fractal show` and try again".to_owned()))
            }
            StoreError::Running { .. } => {
                (Code::Busy, Some("wait for it to end, or end it with `fractal drop`".to_owned()))
            }
            StoreError::Applying { .. } => {
                (Code::Busy, Some("try again; `fractal doctor` says if it is stuck".to_owned()))
            }
            StoreError::Sqlite { .. } => (Code::Internal, None),
        };
        Error { code, message: error.to_string(), hint }
    }
}

const HOME_HINT: &str = "set FRACTAL_HOME to a directory you can write";

fn io_advice(source: &io::Error, path: &Path) -> (Code, Option<String>) {
    use io::ErrorKind as Kind;
    match source.kind() {
        Kind::PermissionDenied
        | Kind::ReadOnlyFilesystem
        | Kind::NotADirectory
        | Kind::NotFound => (Code::Denied, Some(HOME_HINT.to_owned())),
        Kind::StorageFull | Kind::QuotaExceeded => {
            (Code::Limit, Some("run `fractal gc`, or free space on that disk".to_owned()))
        }
        _ => (Code::Internal, Some(format!("look at {} and try again", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn sqlite_codes_become_what_a_person_can_act_on() {
        let check = |raw: i32, expect: Code, hint: &str| {
            let sql = rusqlite::Error::SqliteFailure(ffi::Error::new(raw), None);
            let error: Error = StoreError::from(sql).located(Path::new("h/state.db")).into();
            assert_eq!(error.code, expect, "{raw}");
            assert!(error.message.contains("h/state.db"), "{}", error.message);
            assert!(error.hint.unwrap_or_default().contains(hint), "{raw}");
        };
        check(ffi::SQLITE_FULL, Code::Limit, "fractal gc");
        check(ffi::SQLITE_READONLY, Code::Denied, "FRACTAL_HOME");
        check(ffi::SQLITE_BUSY, Code::Busy, "try again");
        check(ffi::SQLITE_CORRUPT, Code::Corrupt, "fractal doctor --repair");
        check(ffi::SQLITE_NOTADB, Code::Corrupt, "fractal doctor --repair");
        check(ffi::SQLITE_MISUSE, Code::Internal, "");
    }

    #[test]
    fn a_refusal_passes_through_unchanged() {
        let refusal = Error::denied("no").hint("ask");
        assert_eq!(Error::from(StoreError::from(refusal.clone())), refusal);
    }
}
