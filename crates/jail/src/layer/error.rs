//! What can go wrong while reading a layer, and how it reads at the engine's
//! door.

use fractal_model::{Code, Error, SandboxPath, format_bytes};
use rustix::io::Errno;

/// The result of everything in this module.
pub type Result<T> = std::result::Result<T, LayerError>;

/// A layer, a view or a destination that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The kernel has no `openat2`, without which no layer is safe to read.
    #[error("reading a layer needs the system call openat2 (Linux 5.6 or newer)")]
    Unsupported,
    /// Nothing stands at the path.
    #[error("`{path}` does not exist")]
    NotFound {
        /// Where.
        path: SandboxPath,
    },
    /// Something else than the wanted kind stands at the path.
    #[error("`{path}` is not a {wanted}")]
    Kind {
        /// Where.
        path: SandboxPath,
        /// What was wanted.
        wanted: &'static str,
    },
    /// Deeper or larger than we are willing to follow.
    #[error("`{path}` lies deeper, or holds more, than can be copied")]
    Bound {
        /// Where.
        path: String,
    },
    /// More attributes than we are willing to take along.
    #[error("`{path}` has more extended attributes than are taken along (128, or 64 KiB)")]
    Attributes {
        /// Where.
        path: String,
    },
    /// Whoever asked no longer wants it.
    #[error("it took too long")]
    Stopped,
    /// More than a copy may hold.
    #[error(
        "`{path}` is too large or too deep to be copied: {} found, {} is the limit",
        format_bytes(*bytes),
        format_bytes(*bytes_max)
    )]
    TooLarge {
        /// What.
        path: SandboxPath,
        /// How much was found before we stopped.
        bytes: u64,
        /// How much may be copied.
        bytes_max: u64,
    },
    /// The operating system refused.
    #[error("cannot {verb} `{path}`: {source}")]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
}

impl LayerError {
    pub(super) fn io(verb: &'static str, path: impl ToString, errno: Errno) -> LayerError {
        match errno {
            Errno::NOSYS => LayerError::Unsupported,
            errno => LayerError::Io { verb, path: path.to_string(), source: errno.into() },
        }
    }
}

impl LayerError {
    pub(super) fn attributes(path: impl ToString, errno: Errno) -> LayerError {
        match errno {
            Errno::TOOBIG => LayerError::Attributes { path: path.to_string() },
            errno => LayerError::io("read the attributes of", path, errno),
        }
    }
}

/// Whether an error is about this process and not about the entry at hand:
/// going on would report every following entry as unreadable.
pub(super) fn is_fatal(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

impl From<LayerError> for Error {
    fn from(error: LayerError) -> Error {
        let code = match &error {
            LayerError::Unsupported => Code::Unsupported,
            LayerError::NotFound { .. } => Code::NotFound,
            LayerError::Kind { .. } => Code::Invalid,
            LayerError::Bound { .. } | LayerError::Attributes { .. } => Code::Limit,
            LayerError::Stopped => Code::Busy,
            LayerError::TooLarge { .. } => Code::Limit,
            LayerError::Io { source, .. } => io_code(source),
        };
        Error::new(code, error.to_string())
    }
}

fn io_code(source: &std::io::Error) -> Code {
    use std::io::ErrorKind;
    match source.kind() {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::Exists,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::Denied,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Code::Limit,
        // A name that is too long, or goes on behind a file.
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::InvalidFilename => {
            Code::Invalid
        }
        _ => Code::Internal,
    }
}
