//! Plain data shared by every part of fractal.
//!
//! This crate holds the words of the system: ids, paths, changes, policy,
//! actions, replies, records and errors, and the pure rules over them (the
//! policy lattice, the three-way check, the reference model). It performs no
//! I/O, reads no clock and starts no thread, so that everything in it can be
//! tested by calling a function.

mod action;
mod attempt;
mod audit;
mod change;
mod drawing;
mod error;
mod file;
mod id;
mod key;
mod knowledge;
mod merge;
mod path;
mod percent;
mod policy;
mod promotion;
pub mod rank;
mod record;
pub mod reference;
mod secret;
mod stage;
mod time;
mod tool;
mod units;
mod window;

pub use action::{
    Action, ArchiveReply, DiffReply, GcReply, Given, Isolation, ListReply, LogReply, Mount,
    MountAccess, MountSource, Outcome, Part, Reply, Run, RunReply, SandboxInfo, ShowReply,
    SnapshotInfo, Staleness, Usage, VolumeInfo, VolumeVerb, World,
};
pub use attempt::{
    Attempt, AttemptReport, BaseKind, BaseReport, Check, CheckReport, CheckResult, Criterion,
    Overlap, RankBy, Try, TryReply,
};
pub use audit::{AuditReply, AuditVerifyReply, Broken};
pub use change::{Change, ChangeKind, EntryKind};
pub use error::{Code, Error, Result};
pub use file::{FileEntry, FileList, FileReply};
pub use id::{Id, Name};
pub use key::{KEY_TTL_MS, Key, KeyMade, KeyVerb, ROLE_NAMES, Reach, Role, Scope};
pub use knowledge::{
    Extract, ExtractReply, FailureGroup, Find, FindReply, GraphAsk, GraphEdge, GraphNode,
    GraphReply, Hit, IndexReply, IndexVerb, LearnedReply, Learning, LintFault, LintReply, Note,
    NoteRelation, NoteReply, Recorded, Scores, SkunkInfo, SkunkNew, SkunkReply, SkunkVerb,
};
pub use merge::{ThreeWay, three_way};
pub use path::{SandboxPath, TypedPath};
pub use percent::decode_percent;
pub use policy::{Limits, Network, Policy, Tier, Verb, Wider};
pub use promotion::{
    Applied, Conflict, Form, Guard, GuardReply, LeftOut, Promote, PromoteReply, Verdict,
    VerifyReply,
};
pub use record::{Record, RecordBody};
pub use secret::{SECRET_PREFIX, hash_secret, read_secret, same_hash, write_secret};
pub use stage::{
    Evidence, Pending, Promotion, STAGE_NAMES, StageKind, StageReport, StagesReply, Vote, VoteReply,
};
pub use time::{format_iso_ms, parse_iso_ms};
pub use tool::{ToolAnswer, ToolCall, ToolCalls, ToolInfo, ToolReply, ToolsReply, check_tool_name};
pub use units::{format_bytes, format_duration_ms, parse_bytes, parse_duration_ms};
pub use window::Window;
