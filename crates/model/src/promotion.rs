//! Bringing a sandbox's changes into its parent, and taking them back.

use crate::{ChangeKind, Check, CheckReport, Id, Run, RunReply, TypedPath};
use serde::{Deserialize, Serialize};

/// A request to promote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Promote {
    /// The sandbox; `None` is the latest one of the caller's directory.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// The stage to walk to, or the parent's name; `None` is the first stage
    /// where the project has some, and the parent otherwise.
    #[serde(default)]
    pub to: Option<String>,
    /// Bring only what lies at or below these paths; empty means all.
    #[serde(default)]
    pub only: Vec<TypedPath>,
    /// Where both sides changed these paths, take the sandbox's.
    #[serde(default)]
    pub ours: Vec<TypedPath>,
    /// Where both sides changed these paths, leave the parent's.
    #[serde(default)]
    pub theirs: Vec<TypedPath>,
    /// Say what would happen and do nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// In which form it arrives.
    #[serde(default)]
    pub form: Form,
    /// Checks beside those of the gate.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// Bring files that run by themselves.
    #[serde(default)]
    pub allow_autorun: bool,
    /// Bring what git ignores and what was copied in.
    #[serde(default)]
    pub ignored: bool,
    /// Bring what changed inside `.git`.
    #[serde(default)]
    pub git: bool,
    /// Bring what changed outside the sandbox's directory.
    #[serde(default)]
    pub outside: bool,
    /// The experiment that it belongs to; by default that of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
}

/// How a promotion into a directory arrives there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// As files.
    #[default]
    Files,
    /// As a patch, to be applied by somebody else.
    Patch,
    /// As a commit on a new or existing branch; the working tree stays.
    Branch(String),
    /// As a commit on the current branch; the working tree stays.
    Commit,
}

/// How a promotion ended. Only `Applied` changed anything where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It was brought.
    Applied,
    /// A patch or a commit was made of it; the files are as they were.
    Made,
    /// There was nothing to bring.
    Nothing,
    /// It would be brought (`dry_run`).
    Planned,
    /// Parent and sandbox changed the same paths in different ways.
    Conflict,
    /// A check of the gate did not pass.
    Gate,
    /// Files that run by themselves, an approval that is missing, a wait that
    /// is not over, or a closed freeze window.
    Denied,
}

/// One path that was (or would be) changed in the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Applied {
    /// Where, from the root of the machine.
    pub path: String,
    /// What happened to it there.
    pub kind: ChangeKind,
    /// Set where both sides changed the file and the changes were joined.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merged: bool,
}

/// One path that both sides changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Conflict {
    /// Where.
    pub path: String,
    /// What each side did, in words.
    pub why: String,
}

/// A change that stays in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// Why, as a word: `ignored`, `git`, `outside`, `special`, `injected`, `only`, `theirs`.
    pub why: String,
    /// How many.
    pub count: u64,
    /// Some of them.
    pub paths: Vec<String>,
}

/// The answer to `promote` and `undo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromoteReply {
    /// The sandbox, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Where it went: a stage's name, a parent's, or `reality`; what was made
    /// of it instead: `patch`, `commit`, or `git:BRANCH`.
    pub stage: String,
    /// How it ended.
    pub verdict: Verdict,
    /// What changed in the target.
    pub applied: Vec<Applied>,
    /// What kept it from being brought.
    pub conflicts: Vec<Conflict>,
    /// The id for `undo`.
    pub undo: Option<Id>,
    /// What the gate said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckReport>,
    /// What stays behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Files that run by themselves among what would be brought.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub autorun: Vec<String>,
    /// The commit or patch that was made, for those forms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<String>,
    /// What a person should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Where it was written down, when it belongs to an experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<crate::Recorded>,
}

/// The answer to `verify`: the attestation holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyReply {
    /// The promotion.
    pub promotion: Id,
    /// The key that signed it, by the digest of its public half.
    pub keyid: String,
    /// Whether the files are still as they were promoted.
    pub still_stands: bool,
    /// What was signed: an in-toto statement.
    pub statement: serde_json::Value,
}

/// A request to run something unattended: in a fork, and into reality only if
/// it succeeds and the gate lets it pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Guard {
    /// What to run; a new sandbox is made for it.
    pub run: Run,
    /// How to promote it; its sandbox says nothing.
    #[serde(default)]
    pub promote: Promote,
}

/// The answer to `guard`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuardReply {
    /// How the run went.
    pub run: RunReply,
    /// How promoting went; `None` when the run failed or changed nothing.
    pub promotion: Option<PromoteReply>,
    /// Whether reality has changed.
    pub promoted: bool,
}
