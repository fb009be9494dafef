//! The journal as an audit log: who did what, and whether it was tampered
//! with.

use crate::Record;
use serde::{Deserialize, Serialize};

/// The answer to `audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditReply {
    /// Newest first; oldest first where a page was asked for by `after`.
    pub records: Vec<Record>,
    /// Whether there are more in that direction.
    pub more: bool,
}

/// The answer to `audit verify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditVerifyReply {
    /// Whether every record is as it was written, and none is missing.
    pub whole: bool,
    /// How many records fit, from the first one on.
    pub checked: u64,
    /// Hash of the last one that fits, to be noted elsewhere.
    pub head: String,
    /// Where the chain breaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
}

/// The first place where the journal is not as it was written. What follows
/// it cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Broken {
    /// The number of the record.
    pub seq: u64,
    /// What does not fit, in words.
    pub why: String,
}
