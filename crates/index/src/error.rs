//! What can go wrong: with a record, which is said and lived with, and with
//! the index itself, which stops what was asked.

use std::path::{Path, PathBuf};

/// The result of everything here that reads or writes.
pub type Result<T> = std::result::Result<T, IndexError>;

/// Something in a file that is not as it should be. The file is kept and as
/// much of it is found as can be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The line, from 1; none where the whole file is meant.
    pub line: Option<u32>,
    /// What is wrong and what is expected.
    pub what: String,
}

impl Fault {
    /// A fault of a line.
    pub fn at(line: u32, what: impl Into<String>) -> Fault {
        Fault { line: Some(line), what: what.into() }
    }

    /// A fault of a whole file.
    pub fn of_file(what: impl Into<String>) -> Fault {
        Fault { line: None, what: what.into() }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Why the index could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A file or directory could not be read or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is something by that name, and nothing is written over it.
    #[error("{} exists already", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// A directory is no bundle.
    #[error("{} is no bundle: its name ends with `_skunkworks` and it holds `problem.md`", path.display())]
    NoBundle {
        /// Which.
        path: PathBuf,
    },
    /// A link, a pipe, a device or a directory where a file is needed.
    #[error("{} is no regular file", path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
    },
    /// A record is in a state in which it is not changed.
    #[error("{}: {fault}", path.display())]
    Broken {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        fault: Fault,
    },
    /// What was given cannot be written.
    #[error("{0}")]
    Invalid(String),
    /// The database of the index does not answer as it should.
    #[error("the index in {} does not work: {source}", path.display())]
    Database {
        /// Where it lies.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// Somebody else writes the index and does not come to an end.
    #[error("the index is being written by another process for more than {seconds} s")]
    Busy {
        /// How long was waited.
        seconds: u64,
    },
    /// No record goes by this name.
    #[error("there is no record `{}`", name.escape_debug())]
    NoRecord {
        /// What was asked for.
        name: String,
    },
    /// A question that cannot be asked.
    #[error("{0}")]
    Question(String),
    /// Vectors cannot be kept or compared.
    #[error(transparent)]
    Vectors(crate::vectors::VectorsError),
    /// A server that is kept in step does not answer, or not as it should.
    /// Nothing is lost: what it missed is sent when it is back.
    #[error("{name} does not work: {why}")]
    Server {
        /// Which, without what a password could hide in.
        name: String,
        /// What it said, or what happened.
        why: String,
    },
    /// There are no vectors, and why.
    #[error(transparent)]
    Embed(#[from] crate::embed::EmbedError),
}

impl IndexError {
    /// Whether what is kept in the index is no good, so that it has to be made
    /// anew from the files.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            IndexError::Database { source, .. } => {
                matches!(source.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
            }
            _ => false,
        }
    }

    pub(crate) fn io(verb: &'static str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        IndexError::Io { verb, path: path.to_owned(), source: source.into() }
    }
}
