//! What a script leaves behind besides its changes.

/// The result of one [`crate::Shell::run`]. A script that fails, is stopped
/// or hits a limit is not an error: it has an outcome like any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What it wrote to its standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error, up to the limit.
    pub stderr: Vec<u8>,
    /// Its exit status; 124 after a timeout, 130 when cancelled, 125 at a
    /// limit.
    pub exit: i32,
    /// Some output did not fit into [`crate::Settings::output_bytes_max`].
    pub truncated: bool,
    /// How it ended.
    pub ended: Ended,
}

/// How a script ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Exited,
    /// It took longer than [`crate::Settings::time_max`].
    Timeout,
    /// Someone called [`crate::Canceller::cancel`].
    Cancelled,
    /// It wanted more of something than it may have; says of what.
    Limit(String),
}

impl Ended {
    /// The exit status of a script that did not choose one.
    pub(crate) fn exit(&self) -> i32 {
        match self {
            Ended::Exited => 0,
            Ended::Timeout => 124,
            Ended::Limit(_) => 125,
            Ended::Cancelled => 130,
        }
    }
}
