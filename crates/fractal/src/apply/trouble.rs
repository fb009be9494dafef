//! Why a write into reality stopped, and what a person reads then.

use fractal_model::{Code, Error};
use std::io;

/// What stops a write.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// Somebody else changed these since the plan was made.
    #[error("{}", clash(.0))]
    Conflict(Vec<Clash>),
    /// Anything else, ready for the engine's door.
    #[error(transparent)]
    Other(#[from] Error),
}

/// One path that is not as the plan says.
#[derive(Clone, Debug)]
pub(super) struct Clash {
    pub path: String,
    pub why: &'static str,
}

impl Trouble {
    pub fn conflict(path: impl ToString, why: &'static str) -> Trouble {
        Trouble::Conflict(vec![Clash { path: path.to_string(), why }])
    }

    /// A call that the system refused. What a racing rename or link does to
    /// the way to a path is a conflict, not a failure.
    pub fn io(verb: &str, path: impl ToString, error: &io::Error) -> Trouble {
        use rustix::io::Errno;
        let way = [Errno::LOOP, Errno::NOTDIR, Errno::NOENT].map(|errno| errno.raw_os_error());
        if error.raw_os_error().is_some_and(|errno| way.contains(&errno)) {
            return Trouble::conflict(path, "the way to it changed");
        }
        let message = format!("cannot {verb} {}: {error}", path.to_string());
        Error { code: code_of(error), message, hint: hint(error) }.into()
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Error {
        match trouble {
            Trouble::Other(error) => error,
            conflict => Error::new(Code::Conflict, format!("{conflict}; nothing was written"))
                .hint("look at these files and try again"),
        }
    }
}

/// The code that a person's next step depends on.
pub(super) fn code_of(error: &io::Error) -> Code {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Code::Denied,
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Code::Limit,
        Kind::ResourceBusy => Code::Busy,
        Kind::AlreadyExists => Code::Conflict,
        _ => Code::Internal,
    }
}

fn hint(error: &io::Error) -> Option<String> {
    let text = match code_of(error) {
        Code::Denied => "make it writable for you and try again",
        Code::Limit => "free space on that disk (`fractal gc` frees some) and try again",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Names a few and counts the rest.
fn clash(list: &[Clash]) -> String {
    const NAMED: usize = 5;
    let named = list.iter().take(NAMED).map(|clash| format!("{} ({})", clash.path, clash.why));
    let named = named.collect::<Vec<_>>().join(", ");
    match list.len().saturating_sub(NAMED) {
        0 => format!("changed by others meanwhile: {named}"),
        rest => format!("changed by others meanwhile: {named} and {rest} more"),
    }
}
