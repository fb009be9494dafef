//! The verbs as data: what every surface asks, and what the engine answers.
//!
//! The command line, HTTP, MCP and Python all produce an [`Action`]; one
//! function carries it out and returns a [`Reply`].

use crate::{
    AuditReply, AuditVerifyReply, Change, ExtractReply, Find, FindReply, GraphAsk, GraphReply,
    Guard, GuardReply, Id, IndexReply, IndexVerb, Key, KeyMade, KeyVerb, LearnedReply, LintReply,
    Note, NoteReply, Policy, Promote, PromoteReply, Record, Recorded, Role, SkunkInfo, SkunkReply,
    SkunkVerb, StagesReply, Tier, ToolCall, ToolCalls, ToolReply, ToolsReply, Try, TryReply,
    TypedPath, Verb, VerifyReply, Vote, VoteReply,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A request. `sandbox: None` means the latest one of the caller's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "action", rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Action {
    Run(Run),
    Fork {
        sandbox: Option<String>,
        name: Option<String>,
        #[serde(default)]
        ask: Policy,
        /// The network that was asked for, which must be within the parent's.
        #[serde(default)]
        network: Option<crate::Network>,
        ttl_ms: Option<u64>,
        /// How runs in the child happen where they do not say; as in the
        /// parent by default.
        #[serde(default)]
        world: Option<World>,
    },
    Snapshot {
        sandbox: Option<String>,
        name: Option<String>,
    },
    Rollback {
        sandbox: Option<String>,
        to: String,
    },
    /// Changes against the base, or against a snapshot of the same sandbox.
    Diff {
        sandbox: Option<String>,
        since: Option<String>,
    },
    List,
    Show {
        sandbox: Option<String>,
    },
    Log {
        sandbox: Option<String>,
        limit: Option<u64>,
        /// Only what happened in the caller's directory.
        #[serde(default)]
        here: bool,
        /// Leave out runs that were part of another verb.
        #[serde(default)]
        whole: bool,
    },
    Drop {
        sandboxes: Vec<String>,
        #[serde(default)]
        force: bool,
    },
    /// Copies into or out of a sandbox; exactly one side names a sandbox.
    Copy {
        from: String,
        to: String,
    },
    Export {
        sandbox: Option<String>,
        to: String,
        /// With its snapshots; only for archives of changes.
        #[serde(default)]
        history: bool,
    },
    Import {
        from: String,
        name: Option<String>,
    },
    Volume(VolumeVerb),
    Gc {
        #[serde(default)]
        dry_run: bool,
        /// Give up what is kept for `undo` of promotions older than this.
        #[serde(default)]
        undo_ms: Option<u64>,
    },
    /// Forks once per attempt, runs them side by side, checks and ranks.
    Try(Box<Try>),
    /// The table of `try` for sandboxes that exist.
    Compare {
        sandboxes: Vec<String>,
        #[serde(default)]
        checks: Vec<crate::Check>,
        #[serde(default)]
        score: Option<String>,
        #[serde(default)]
        rank: Option<crate::RankBy>,
        #[serde(default)]
        repeat: Option<u32>,
    },
    Promote(Box<Promote>),
    /// Checks the attestation of a promotion.
    Verify {
        promotion: Option<String>,
    },
    /// Moves a sandbox onto today's reality, with its own changes.
    Update {
        sandbox: Option<String>,
        /// Where both sides changed these paths, keep the sandbox's.
        #[serde(default)]
        ours: Vec<TypedPath>,
        /// Where both sides changed these paths, take what is outside.
        #[serde(default)]
        theirs: Vec<TypedPath>,
        #[serde(default)]
        dry_run: bool,
    },
    /// Runs unattended and promotes what passes.
    Guard(Box<Guard>),
    /// Takes a promotion back; the latest one of the caller's directory by
    /// default.
    Undo {
        promotion: Option<String>,
        /// Only what lies at or below these paths; empty means all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        only: Vec<TypedPath>,
        #[serde(default)]
        dry_run: bool,
    },
    /// Says that exactly this may come into a stage.
    Approve(Vote),
    /// Says that it may not, until somebody approves it anew.
    Reject(Vote),
    /// Where everything stands, and on what evidence.
    Stages,
    Key(KeyVerb),
    /// Who did what, and what was refused.
    Audit {
        #[serde(default)]
        since_ms: Option<u64>,
        #[serde(default)]
        until_ms: Option<u64>,
        /// A key by id or name; `owner` for the local user.
        #[serde(default)]
        key: Option<String>,
        /// A verb, as records have it.
        #[serde(default, rename = "verb")]
        action: Option<String>,
        /// By id, or by the name it had then.
        #[serde(default)]
        sandbox: Option<String>,
        /// Only what was refused.
        #[serde(default)]
        denied: bool,
        #[serde(default)]
        limit: Option<u64>,
        /// For paging: records that follow this number (0 for all), oldest
        /// first. Without it the newest ones, newest first.
        #[serde(default)]
        after: Option<u64>,
    },
    /// Walks the whole chain of records.
    #[serde(rename = "audit-verify")]
    AuditVerify {
        /// The hash of the last record as somebody noted it elsewhere; it must
        /// still be in the chain.
        #[serde(default)]
        expect: Option<String>,
    },
    /// Uses a tool.
    Tool(Box<ToolCall>),
    /// Uses several tools at once.
    Calls(ToolCalls),
    /// The tools that may be used, in a sandbox or in a new one.
    Tools {
        #[serde(default)]
        sandbox: Option<String>,
    },
    /// Writes down a learning.
    Note(Box<Note>),
    /// Asks what was learned.
    Find(Box<Find>),
    /// What stands in relation to what.
    Graph(GraphAsk),
    /// What was learned in a time.
    Learned {
        #[serde(default)]
        since_ms: Option<u64>,
    },
    Skunk(Box<SkunkVerb>),
    Index(IndexVerb),
}

impl Action {
    /// The verb, as it stands in policies and in the journal.
    pub fn verb(&self) -> Verb {
        match self {
            Action::Run(_) => Verb::Run,
            Action::Fork { .. } => Verb::Fork,
            Action::Snapshot { .. } => Verb::Snapshot,
            Action::Rollback { .. } => Verb::Rollback,
            Action::Diff { .. } => Verb::Diff,
            Action::List => Verb::List,
            Action::Show { .. } => Verb::Show,
            Action::Log { .. } => Verb::Log,
            Action::Drop { .. } => Verb::Drop,
            Action::Copy { .. } => Verb::Copy,
            Action::Export { .. } => Verb::Export,
            Action::Import { .. } => Verb::Import,
            Action::Volume(_) => Verb::Volume,
            Action::Gc { .. } => Verb::Gc,
            Action::Try(_) => Verb::Try,
            Action::Compare { .. } => Verb::Compare,
            Action::Promote(_) => Verb::Promote,
            Action::Verify { .. } => Verb::Verify,
            Action::Update { .. } => Verb::Update,
            Action::Guard(_) => Verb::Guard,
            Action::Undo { .. } => Verb::Undo,
            Action::Approve(_) => Verb::Approve,
            Action::Reject(_) => Verb::Reject,
            Action::Stages => Verb::Stages,
            Action::Key(_) => Verb::Key,
            Action::Audit { .. } | Action::AuditVerify { .. } => Verb::Audit,
            Action::Tool(_) | Action::Calls(_) => Verb::Tool,
            Action::Tools { .. } => Verb::List,
            Action::Note(_) => Verb::Note,
            Action::Find(_) | Action::Graph(_) | Action::Learned { .. } => Verb::Find,
            Action::Skunk(verb) => verb.verb(),
            Action::Index(verb) => verb.verb(),
        }
    }

    /// Whether it acts on settings, see [`Verb::needs_settings`]. A broken file
    /// must not keep a key alive, but no key is made without its role.
    pub fn needs_settings(&self) -> bool {
        match self {
            Action::Key(verb) => matches!(verb, KeyVerb::Create { .. } | KeyVerb::Roles),
            other => other.verb().needs_settings(),
        }
    }
}

/// What to run, where and within which bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// An existing sandbox to run in; otherwise a fork of reality is made.
    /// With `discard` the run happens in a throw-away child of it.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// The name of the new sandbox.
    #[serde(default)]
    pub name: Option<String>,
    /// Drop the new sandbox afterwards.
    #[serde(default)]
    pub discard: bool,
    /// Variables set inside on top of the filtered environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory inside; the caller's by default.
    #[serde(default)]
    pub cwd: Option<String>,
    /// The template of a new sandbox.
    #[serde(default)]
    pub template: Option<String>,
    /// What is asked to be narrower than the sandbox's policy.
    #[serde(default)]
    pub ask: Policy,
    /// What the run should reach. A new sandbox has no network unless asked;
    /// an existing one cannot be given more than it has.
    #[serde(default)]
    pub network: Option<crate::Network>,
    /// How long a new sandbox may be forgotten before it expires.
    #[serde(default)]
    pub ttl_ms: Option<u64>,
    /// What a new sandbox stands on.
    #[serde(default)]
    pub base: crate::BaseKind,
    /// What it is for.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub part: Part,
    /// What the program reads as its standard input; nothing by default. For
    /// surfaces that have no descriptors to hand over.
    #[serde(default)]
    pub stdin: Option<String>,
    /// How it runs; by default as the sandbox's template says.
    #[serde(default)]
    pub world: Option<World>,
    /// Give the program a door: a socket and a key by which it forks, runs and
    /// promotes below its own sandbox.
    #[serde(default)]
    pub door: bool,
    /// The experiment that it belongs to: it is written down there. By default
    /// the one that the caller stands in, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
}

/// Where a run's program lives. Both report the same changes, so that a
/// sandbox can be worked on in either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// Real processes in a clone of the machine.
    #[default]
    Native,
    /// A shell in this process over a tree in memory that shows the project.
    Virtual,
}

/// What a run is for, where it is part of another verb.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Itself.
    #[default]
    None,
    /// To answer the check of this name.
    Check(String),
    /// To score an attempt.
    Score,
    /// To put attempts in order.
    Rank,
    /// To make the fork that holds the untouched base.
    Base,
}

impl Part {
    /// The word for it in the journal; a run that is for itself has none.
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            Part::None => None,
            Part::Check(_) => Some("check"),
            Part::Score => Some("score"),
            Part::Rank => Some("rank"),
            Part::Base => Some("base"),
        }
    }
}

/// What can be done with volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "volume", rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum VolumeVerb {
    Create { name: String },
    List,
    Show { name: String },
    Rm { name: String },
    Import { name: String, from: String },
}

/// Where a mount's entries come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum MountSource {
    /// A named volume, which outlives sandboxes.
    Volume(String),
    /// A directory of the host.
    Host(String),
    /// An empty directory that lives in the sandbox's own layers.
    Scratch,
}

/// Whether a mount can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum MountAccess {
    Read,
    Write,
}

/// Path, source and access; its life follows from its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mount {
    /// Where it appears inside.
    pub at: String,
    /// What appears there.
    pub source: MountSource,
    /// Whether it can be written.
    pub access: MountAccess,
}

/// How a run ended. All of these are successful runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The program returned.
    Exited,
    /// A signal ended it.
    Signalled,
    /// The time limit ended it.
    Timeout,
    /// The memory limit ended it, or a part of it whereupon it failed.
    Memory,
    /// The disk limit ended it, or left no room whereupon it failed.
    Disk,
    /// The output limit ended it.
    Output,
}

/// What a run used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Wall-clock time of the program.
    pub wall_ms: u64,
    /// Processor time of all its processes.
    pub cpu_ms: u64,
    /// Highest memory of all processes: by the controller's count under a
    /// memory limit, without a controller the highest sum that the supervisor
    /// saw; without a limit that of the largest process.
    pub memory_peak_bytes: u64,
    /// Bytes read from disks.
    pub io_read_bytes: u64,
    /// Bytes written to disks.
    pub io_write_bytes: u64,
}

/// How far reality moved under a live base.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Staleness {
    /// Time since the fork.
    pub behind_ms: u64,
    /// Host files changed since, below the sandbox's directory (at most 100).
    pub changed: Vec<String>,
    /// Set when there were more, or the walk was cut short.
    pub more: bool,
}

/// The answer to `run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunReply {
    /// Name of the sandbox; it may be dropped already, see `kept`.
    pub sandbox: String,
    /// Its id.
    pub id: Id,
    /// Whether it still exists.
    pub kept: bool,
    /// Exit status as a shell would show it.
    pub exit: i32,
    /// How it ended.
    pub outcome: Outcome,
    /// Limits that were felt inside, also when the program coped and went on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits_reached: Vec<Outcome>,
    /// Captured output (lossy UTF-8); empty when it was streamed.
    pub stdout: String,
    /// Captured errors.
    pub stderr: String,
    /// Whether some output was left out.
    pub truncated: bool,
    /// Why output was lost that should have gone to the caller's descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_lost: Option<String>,
    /// What it used.
    pub usage: Usage,
    /// How it was fenced in.
    pub isolation: Isolation,
    /// What differs from the base now.
    pub changes: Vec<Change>,
    /// Whether `changes` was cut at its bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes_truncated: bool,
    /// How far reality moved, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<Staleness>,
    /// Where it was written down, when it belongs to an experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
}

/// The tier reached, and what was missing on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Isolation {
    /// The tier.
    pub tier: Tier,
    /// Fences that could not be put up, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// One sandbox in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandboxInfo {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Id,
    /// The parent's name; `None` is reality.
    pub parent: Option<String>,
    /// The layer it started from; `None` is reality.
    pub base: Option<Id>,
    /// `idle` or `running`.
    pub state: String,
    /// When it was made, ISO 8601.
    pub created: String,
    /// When it expires, ISO 8601.
    pub expires: Option<String>,
    /// Bytes in its own layers.
    pub size_bytes: u64,
    /// Its policy.
    pub policy: Policy,
    /// Its template.
    pub template: String,
    /// The host directory it was made in.
    pub directory: String,
}

/// A sealed layer with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// The layer.
    pub layer: Id,
    /// When, ISO 8601.
    pub created: String,
}

/// The answer to `show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShowReply {
    /// What `list` says of it.
    #[serde(flatten)]
    pub info: SandboxInfo,
    /// Whether it sees its directory as the host has it now, or as it was.
    pub base_kind: crate::BaseKind,
    /// Layers below its top, nearest first.
    pub depth: usize,
    /// Its snapshots, newest first.
    pub snapshots: Vec<SnapshotInfo>,
    /// Its mounts.
    pub mounts: Vec<Mount>,
    /// Its children's names.
    pub children: Vec<String>,
    /// How many paths differ from the base.
    pub changes: usize,
    /// How far reality moved.
    pub stale: Option<Staleness>,
}

/// The answer to `diff`. Contents are read through the engine's patch writer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffReply {
    /// The sandbox's name.
    pub sandbox: String,
    /// What differs, sorted by path.
    pub changes: Vec<Change>,
    /// Whether there is more, too much or too deep down to be listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// How far reality moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<Staleness>,
}

/// The answer to `list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListReply {
    /// All sandboxes that exist, oldest first.
    pub sandboxes: Vec<SandboxInfo>,
}

/// The answer to `log`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogReply {
    /// Newest first.
    pub records: Vec<Record>,
}

/// The answer to `gc`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GcReply {
    /// Sandboxes that had expired.
    pub expired: Vec<String>,
    /// Layers nobody stood on.
    pub layers: u64,
    /// Promotions that can no longer be taken back.
    #[serde(default)]
    pub undos: u64,
    /// Bytes that stay kept for `undo`.
    #[serde(default)]
    pub undo_bytes: u64,
    /// Bytes freed (or that would be, with `dry_run`).
    pub bytes: u64,
}

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// When it was made, ISO 8601.
    pub created: String,
    /// Bytes in it.
    pub size_bytes: u64,
    /// Sandboxes that mount it.
    pub used_by: Vec<String>,
}

/// The answer to `export`, `import` and `cp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArchiveReply {
    /// The sandbox, where there is one.
    pub sandbox: String,
    /// Entries written.
    pub entries: u64,
    /// Bytes of content written.
    pub bytes: u64,
    /// Snapshots that came along.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snapshots: u64,
    /// Sockets and devices (for `cp` also fifos), which are never carried.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes references
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An answer, by the shape of its verb.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
#[allow(missing_docs, clippy::large_enum_variant)] // one reply lives at a time
pub enum Reply {
    Run(Box<RunReply>),
    Try(Box<TryReply>),
    Promote(Box<PromoteReply>),
    Guard(Box<GuardReply>),
    Verify(Box<VerifyReply>),
    Vote(VoteReply),
    Stages(StagesReply),
    Tool(Box<ToolReply>),
    Tools(ToolsReply),
    Show(Box<ShowReply>),
    Sandbox(SandboxInfo),
    Snapshot(SnapshotInfo),
    Diff(DiffReply),
    List(ListReply),
    Audit(AuditReply),
    AuditVerify(AuditVerifyReply),
    Log(LogReply),
    KeyMade(Box<KeyMade>),
    Key(Box<Key>),
    Keys { keys: Vec<Key> },
    Roles { roles: Vec<Role> },
    Archive(ArchiveReply),
    Gc(GcReply),
    Volumes { volumes: Vec<VolumeInfo> },
    Volume(VolumeInfo),
    Done { dropped: Vec<String> },
    Note(NoteReply),
    Find(Box<FindReply>),
    Graph(GraphReply),
    Learned(LearnedReply),
    Skunk(Box<SkunkReply>),
    Skunks { skunks: Vec<SkunkInfo> },
    Extract(Box<ExtractReply>),
    Index(IndexReply),
    Lint(LintReply),
    Calls { results: Vec<ToolReply> },
}

/// An answer that was given through a door, to be given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// A mark of the request that it answers.
    pub print: String,
    /// The status of HTTP.
    pub status: u16,
    /// The answer itself.
    pub body: String,
}
