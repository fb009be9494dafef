//! Stages: a line of sandboxes that only promote writes, each with a gate.
//!
//! What stands where, on what evidence, who approved it and what waits before
//! it: all of it is read from the journal and the rows, and told in these
//! words.

use crate::{CheckReport, CheckResult, Id};
use serde::{Deserialize, Serialize};

/// Names of stages that have none, by their place in the line.
pub const STAGE_NAMES: [&str; 5] = ["verified", "dev", "tested", "staging", "production"];

/// An approval or a rejection of what would come into a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Vote {
    /// The sandbox, or the stage that it stands in now; by default what waits
    /// before `stage`.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// The stage that it would come into; by default the next one.
    #[serde(default)]
    pub stage: Option<String>,
    /// Why, in the voter's words.
    #[serde(default)]
    pub message: Option<String>,
}

/// The answer to `approve` and `reject`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VoteReply {
    /// The stage that it would come into.
    pub stage: String,
    /// Where it stands now.
    pub from: String,
    /// Whether it was approved or rejected.
    pub approved: bool,
    /// What exactly was judged: nothing else is approved by this.
    pub digest: String,
    /// Paths that would change.
    pub paths: u64,
    /// Approvals that count, this one included.
    pub approvals: Vec<String>,
    /// How many are needed.
    pub needed: u32,
}

/// What a stage is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StageKind {
    /// A sandbox, and nothing else.
    Virtual,
    /// The project's own directory.
    Reality,
    /// Another directory of this host.
    Directory(String),
    /// A branch of the project's repository.
    Git(String),
}

/// One check as evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// The check.
    pub name: String,
    /// What it said.
    pub result: CheckResult,
}

impl From<&CheckReport> for Evidence {
    fn from(report: &CheckReport) -> Evidence {
        Evidence { name: report.name.clone(), result: report.result }
    }
}

/// A promotion that stands in a stage, or was kept out of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Promotion {
    /// Its id; `None` for one that was kept out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// The sandbox or stage that it came from.
    pub from: String,
    /// Who promoted it.
    pub by: String,
    /// When, ISO 8601.
    pub at: String,
    /// What exactly it changed.
    pub digest: String,
    /// Paths that it changed.
    pub paths: u64,
    /// What the gate's checks said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Evidence>,
    /// Who had approved it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// The commit that it became, on a git branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The id for `undo`, in a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Id>,
    /// Whether the publish command has run; `None` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<bool>,
    /// Why it was kept out, or stands unpublished where that is not plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What stands in the stage before and has not come here yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pending {
    /// The stage before.
    pub from: String,
    /// Promotions that would come along.
    pub promotions: u64,
    /// Since when the newest of them stands there, ISO 8601.
    pub since: String,
    /// Before this it may not come, ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<String>,
}

/// One stage as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageReport {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: StageKind,
    /// The sandbox behind it, once something came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The latest promotion that stands there.
    pub stands: Option<Promotion>,
    /// What waits before it.
    pub pending: Option<Pending>,
    /// The latest promotion that was kept out since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Promotion>,
    /// Names of the checks at its gate.
    pub checks: Vec<String>,
    /// Approvals that its gate needs.
    pub approve: u32,
    /// Who approved what was last judged before it, and does so still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// Who rejected it, if nobody approved it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_by: Option<String>,
    /// Set while a freeze window is closed, ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_until: Option<String>,
}

/// The answer to `stages`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StagesReply {
    /// In the order of the line, the first one a sandbox comes into first.
    pub stages: Vec<StageReport>,
}
