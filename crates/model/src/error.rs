//! The one error that leaves the engine, with a closed list of codes.
//!
//! A caller branches on [`Code`]; a person reads `message` and types what
//! `hint` says. The table in this file is the only place where a code becomes
//! an exit status or an HTTP status.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of everything that passes the engine's door.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, from a list that never grows silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The named thing does not exist.
    NotFound,
    /// The name is taken.
    Exists,
    /// The request makes no sense as written.
    Invalid,
    /// Policy or the operating system forbids it.
    Denied,
    /// A bound would be exceeded.
    Limit,
    /// The parent changed underneath.
    Conflict,
    /// A check at the gate did not pass, or an attestation does not hold.
    Gate,
    /// It took too long.
    Timeout,
    /// This machine cannot do it; the message names what is missing.
    Unsupported,
    /// Capacity is used up for now.
    Busy,
    /// A tool ran and did not do its work.
    Failed,
    /// Stored data does not read back as written.
    Corrupt,
    /// A defect in fractal.
    Internal,
}

/// One row per code: its name, exit status and HTTP status.
const TABLE: [(Code, &str, u8, u16); 13] = [
    (Code::NotFound, "not_found", 6, 404),
    (Code::Exists, "exists", 125, 409),
    (Code::Invalid, "invalid", 2, 400),
    (Code::Denied, "denied", 4, 403),
    (Code::Limit, "limit", 125, 413),
    (Code::Conflict, "conflict", 5, 409),
    (Code::Gate, "gate", 3, 422),
    (Code::Timeout, "timeout", 124, 504),
    (Code::Unsupported, "unsupported", 125, 501),
    (Code::Busy, "busy", 125, 429),
    (Code::Failed, "failed", 1, 422),
    (Code::Corrupt, "corrupt", 125, 500),
    (Code::Internal, "internal", 125, 500),
];

impl Code {
    fn row(self) -> &'static (Code, &'static str, u8, u16) {
        TABLE.iter().find(|row| row.0 == self).expect("every code has a row")
    }

    /// The code as it stands in JSON.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The exit status of the command line.
    pub fn exit_status(self) -> u8 {
        self.row().2
    }

    /// The status of the HTTP API.
    pub fn http_status(self) -> u16 {
        self.row().3
    }
}

/// A request that could not be carried out. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Error {
    /// What kind of failure.
    pub code: Code,
    /// What happened and why, in one sentence.
    pub message: String,
    /// The next command to type, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Error {
    /// An error with a message and no hint yet.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), hint: None }
    }

    /// Says what to type next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// `not_found`, for the commonest case.
    pub fn not_found(message: impl Into<String>) -> Self {
        Error::new(Code::NotFound, message)
    }

    /// `invalid`, for input that makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(Code::Invalid, message)
    }

    /// `denied`, for what policy or the system forbids.
    pub fn denied(message: impl Into<String>) -> Self {
        Error::new(Code::Denied, message)
    }

    /// `internal`, for a defect.
    pub fn internal(message: impl Into<String>) -> Self {
        Error::new(Code::Internal, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_serde_writes() {
        for (code, name, ..) in TABLE {
            let json = serde_json::to_string(&code).expect("codes serialise");
            assert_eq!(json, format!("\"{name}\""));
        }
    }

    #[test]
    fn exit_statuses_follow_the_contract() {
        let check = |code: Code, status: u8| assert_eq!(code.exit_status(), status, "{code:?}");
        check(Code::Timeout, 124);
        check(Code::Internal, 125);
        check(Code::Invalid, 2);
        check(Code::Gate, 3);
        check(Code::Denied, 4);
        check(Code::Conflict, 5);
        check(Code::NotFound, 6);
    }
}
