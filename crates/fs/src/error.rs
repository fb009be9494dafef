//! What can go wrong, in the words of a filesystem.

use fractal_model::{Code, Error, SandboxPath};
use std::fmt;

/// The closed list of reasons; each has its errno for real programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Kind {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("exists already")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotADirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsADirectory,
    /// ENOTEMPTY.
    #[error("directory not empty")]
    NotEmpty,
    /// ELOOP.
    #[error("too many levels of symbolic links")]
    Loop,
    /// ENAMETOOLONG.
    #[error("name too long")]
    NameTooLong,
    /// EINVAL.
    #[error("invalid argument")]
    Invalid,
    /// EROFS.
    #[error("read-only")]
    ReadOnly,
    /// EACCES.
    #[error("not allowed")]
    Denied,
    /// ENOSPC.
    #[error("no space left: a limit of this sandbox")]
    Full,
    /// EFBIG.
    #[error("file too large")]
    TooLarge,
    /// EBUSY.
    #[error("in use")]
    Busy,
    /// ESTALE: what a compare-and-swap expected, or a frozen source holds,
    /// is no longer there.
    #[error("changed meanwhile")]
    Changed,
    /// EIO: where the entry comes from could not say.
    #[error("cannot be read from its source")]
    Source,
    /// ETIMEDOUT.
    #[error("its source took too long")]
    Timeout,
    /// ENODATA.
    #[error("no such attribute")]
    NoAttribute,
    /// EOPNOTSUPP.
    #[error("not supported here")]
    Unsupported,
}

impl Kind {
    /// The number by which Linux says it; the one table of them.
    pub fn errno(self) -> i32 {
        match self {
            Kind::NotFound => 2,
            Kind::Source => 5,
            Kind::Denied => 13,
            Kind::Busy => 16,
            Kind::Exists => 17,
            Kind::NotADirectory => 20,
            Kind::IsADirectory => 21,
            Kind::Invalid => 22,
            Kind::TooLarge => 27,
            Kind::Full => 28,
            Kind::ReadOnly => 30,
            Kind::NameTooLong => 36,
            Kind::NotEmpty => 39,
            Kind::Loop => 40,
            Kind::NoAttribute => 61,
            Kind::Unsupported => 95,
            Kind::Timeout => 110,
            Kind::Changed => 116,
        }
    }
}

/// A reason without a place: what happens inside the tree, where paths are
/// the caller's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which of the closed list.
    pub kind: Kind,
    /// What a source said, or which limit it was.
    pub reason: Option<Box<str>>,
}

impl Fault {
    /// A fault that explains itself.
    pub fn new(kind: Kind) -> Fault {
        Fault { kind, reason: None }
    }

    /// A fault with more to say.
    pub fn because(kind: Kind, reason: impl Into<String>) -> Fault {
        Fault { kind, reason: Some(reason.into().into()) }
    }

    /// The same fault, told of a path.
    pub fn at(self, path: &[u8]) -> FsError {
        FsError { kind: self.kind, reason: self.reason, path: path.into() }
    }
}

impl From<Kind> for Fault {
    fn from(kind: Kind) -> Fault {
        Fault::new(kind)
    }
}

/// What went wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsError {
    /// Which of the closed list.
    pub kind: Kind,
    /// What a source said, or which limit it was.
    pub reason: Option<Box<str>>,
    /// The path as it was asked for.
    pub path: Box<[u8]>,
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", String::from_utf8_lossy(&self.path), self.kind)?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FsError {}

/// At the engine's door there is one list of codes.
impl From<FsError> for Error {
    fn from(error: FsError) -> Error {
        let code = match error.kind {
            Kind::NotFound | Kind::NoAttribute => Code::NotFound,
            Kind::Exists => Code::Exists,
            Kind::ReadOnly | Kind::Denied => Code::Denied,
            Kind::Full | Kind::TooLarge => Code::Limit,
            Kind::Changed => Code::Conflict,
            Kind::Timeout => Code::Timeout,
            Kind::Busy => Code::Busy,
            Kind::Unsupported => Code::Unsupported,
            Kind::Source => Code::Internal,
            Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::NotEmpty
            | Kind::Loop
            | Kind::NameTooLong
            | Kind::Invalid => Code::Invalid,
        };
        Error::new(code, error.to_string())
    }
}

/// The path of a change or a rule, for an error about it.
pub(crate) fn shown(path: &SandboxPath) -> Vec<u8> {
    [b"/", path.relative()].concat()
}
