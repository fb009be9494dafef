//! Our errors as the exceptions that Python programs already catch.

use fractal::{Code, Error};
use fractal_fs::{Fault, FsError};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// `OSError` finds its own subclass by the number: `FileNotFoundError`,
/// `IsADirectoryError`, `TimeoutError` and so on.
pub fn of_fs(error: FsError) -> PyErr {
    let text = match error.reason {
        Some(reason) => format!("{}: {reason}", error.kind),
        None => error.kind.to_string(),
    };
    PyOSError::new_err((error.kind.errno(), text, OsString::from_vec(error.path.into_vec())))
}

/// A fault of something that stands at a place of the host.
pub fn of_fault(fault: Fault, path: &[u8]) -> PyErr {
    of_fs(fault.at(path))
}

/// The engine's errors. `code` and `hint` of the exception are the engine's.
pub fn of_engine(py: Python<'_>, error: Error) -> PyErr {
    let text = match &error.hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message.clone(),
    };
    let raised = match errno(error.code) {
        Some(number) => PyOSError::new_err((number, text)),
        None if error.code == Code::Invalid => PyValueError::new_err(text),
        None => PyRuntimeError::new_err(text),
    };
    let value = raised.value(py);
    // An exception that takes no attributes is told without them.
    let _ = value.setattr("code", error.code.name());
    let _ = value.setattr("hint", error.hint);
    raised
}

/// The number that Linux has for it, where there is one.
fn errno(code: Code) -> Option<i32> {
    match code {
        Code::NotFound => Some(2),
        Code::Corrupt => Some(5),
        Code::Denied | Code::Gate => Some(13),
        Code::Busy => Some(16),
        Code::Exists => Some(17),
        Code::Limit => Some(28),
        Code::Unsupported => Some(95),
        Code::Timeout => Some(110),
        Code::Conflict => Some(116),
        Code::Invalid | Code::Failed | Code::Internal => None,
    }
}
