//! What the server itself says, beside the engine's replies.

use fractal::model::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a request was not carried out.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailureReply {
    /// What happened, why, and what to do next.
    pub error: Error,
}

/// Which server this is.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct VersionReply {
    /// The version of fractal.
    pub version: String,
    /// The format of the state directory that it reads and writes.
    pub format: u32,
    /// The name under which the asker is known.
    pub who: String,
    /// The strongest fence that this machine can put up.
    pub isolation: Option<fractal::model::Tier>,
}

/// A part of a list, and where the next one starts.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SandboxPage {
    /// Oldest first.
    pub sandboxes: Vec<fractal::model::SandboxInfo>,
    /// What to give as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What a sandbox has used, run by run.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UsageReply {
    /// The sandbox's name.
    pub sandbox: String,
    /// Wall-clock time of all of them.
    pub wall_ms: u64,
    /// Processor time of all of them.
    pub cpu_ms: u64,
    /// The highest memory of any.
    pub memory_peak_bytes: u64,
    /// How many runs are counted here, at most 1,000.
    pub runs: u64,
    /// The latest ones, oldest first.
    pub latest: Vec<RunUsage>,
}

/// What one run used.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunUsage {
    /// When it was recorded, in milliseconds since 1970.
    pub time_ms: u64,
    /// How it ended.
    pub outcome: Option<fractal::model::Outcome>,
    /// Its wall-clock time.
    pub wall_ms: u64,
    /// Its processor time.
    pub cpu_ms: u64,
    /// Its highest memory.
    pub memory_peak_bytes: u64,
}
