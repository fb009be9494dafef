//! What was learned, as it is written, asked for and answered.
//!
//! A record is a file that people and programs read (a problem, an experiment,
//! a failure, an insight, a decision, a pattern); these are the words in which
//! surfaces speak of records. How one looks on disk is the index's to know.

use crate::{Id, Verb};
use serde::{Deserialize, Serialize};

/// A learning to be written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Note {
    /// What it says in one line.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 300)))]
    pub title: String,
    /// Everything else, in Markdown.
    #[serde(default)]
    pub body: String,
    /// `insight` (the default), `failure`, `decision`, `pattern` or `problem`.
    #[serde(default)]
    pub kind: Option<String>,
    /// Words to find it by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// What came of it, in a word: `failed`, `passed`.
    #[serde(default)]
    pub outcome: Option<String>,
    /// The experiment that it belongs to; by default the one that the caller
    /// stands in, and otherwise none.
    #[serde(default)]
    pub experiment: Option<String>,
    /// The sandbox that it tells of.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// How it stands to others.
    #[serde(default)]
    pub relations: Vec<NoteRelation>,
    /// Whether whoever writes it has seen that it holds.
    #[serde(default)]
    pub verified: bool,
}

/// How a record stands to something else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoteRelation {
    /// A word such as `fixes`, `fixed-by`, `cites`, `supersedes`, `refutes`,
    /// `depends-on`, `touches`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A record by id or path, or `file:…`, `package:…`, `sandbox:…`.
    pub to: String,
}

/// The answer to `note`: what was written, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoteReply {
    /// The id that it keeps, whatever its file is called later.
    pub noted: Id,
    /// Its kind.
    pub kind: String,
    /// Its title.
    pub title: String,
    /// The place that it lies in: `project` or `notes`.
    pub root: String,
    /// Where it lies there.
    pub path: String,
    /// Its file on this machine, for whoever is its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// Where something that belongs to an experiment was written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recorded {
    /// The experiment.
    pub experiment: String,
    /// The file, from the project; empty when it could not be written.
    pub path: String,
    /// Why it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A question to what was learned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Find {
    /// In words.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub text: String,
    /// Only records of these kinds.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Only records with all of these tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Only records with this outcome.
    #[serde(default)]
    pub outcome: Option<String>,
    /// Only records of this sandbox.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// Only records that were written since.
    #[serde(default)]
    pub since_ms: Option<u64>,
    /// Only records that were written before.
    #[serde(default)]
    pub until_ms: Option<u64>,
    /// At most so many; 10 by default.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Why a record is where it is in an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Scores {
    /// Of its words; the best of an answer has 1.
    pub text: f64,
    /// Of its meaning: the cosine to the question.
    pub meaning: f64,
    /// Of what it stands in relation to.
    pub graph: f64,
    /// What all of it was multiplied with: over 1 where somebody confirmed the
    /// record, under 1 where it may no longer hold.
    pub weight: f64,
}

/// One record that answers a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hit {
    /// What it goes by: its id, or root and path where it has none.
    pub key: String,
    /// The place that it lies in: `project`, `notes`, or a volume.
    pub root: String,
    /// Where it lies there.
    pub path: String,
    /// Its file on this machine, for whoever is its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its kind.
    pub kind: String,
    /// Its title.
    pub title: String,
    /// Its status, where it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// What came of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// A piece of it that shows what was found, with `⟦` and `⟧` around words
    /// of the question.
    pub snippet: String,
    /// Why it was found, in words.
    pub why: Vec<String>,
    /// What no longer holds or was confirmed, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
    /// All scores, mixed.
    pub score: f64,
    /// Each of them.
    pub scores: Scores,
}

/// What answers a question, best first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FindReply {
    /// The records.
    pub hits: Vec<Hit>,
    /// How many records were asked.
    pub records: u64,
    /// What was used: `text`, `meaning`, `graph`.
    pub used: Vec<String>,
    /// What could not be used, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

/// Which part of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphAsk {
    /// What is around this: a record by id or path, or `file:…`, `package:…`,
    /// `sandbox:…`; without it everything.
    #[serde(default)]
    pub around: Option<String>,
    /// The shortest way from there to here.
    #[serde(default)]
    pub to: Option<String>,
    /// So many steps; 1 by default.
    #[serde(default)]
    pub depth: Option<u32>,
    /// What fixed failures like this one.
    #[serde(default)]
    pub fixes: bool,
}

/// Something that records stand in relation to, records among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphNode {
    /// A record's key, or `file:…`, `package:…`, `sandbox:…`, `url:…`.
    pub key: String,
    /// A record's kind in lower case, or `file`, `package`, `sandbox`, `url`.
    pub kind: String,
    /// What people call it.
    pub title: String,
    /// The place that a record lies in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Where it lies there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its file on this machine, for whoever is its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// One relation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphEdge {
    /// The key of the node whose record says so.
    pub from: String,
    /// The word for it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The key of the other.
    pub to: String,
}

/// Some nodes and what is between them, both sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphReply {
    /// By key.
    pub nodes: Vec<GraphNode>,
    /// By where they begin.
    pub edges: Vec<GraphEdge>,
    /// Set when there was more than is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// One record in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Learning {
    /// What it goes by.
    pub key: String,
    /// Its kind.
    pub kind: String,
    /// Its title.
    pub title: String,
    /// What came of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// When it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// The place that it lies in.
    pub root: String,
    /// Where it lies there.
    pub path: String,
    /// Its file on this machine, for whoever is its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// Failures that look alike, and what helped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailureGroup {
    /// What they have in common.
    pub signature: String,
    /// How often something failed so.
    pub times: u64,
    /// When it last did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<u64>,
    /// The records of it, newest first.
    pub failures: Vec<Learning>,
    /// What is said to have fixed them.
    pub fixed_by: Vec<Learning>,
}

/// What was learned in a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LearnedReply {
    /// Insights, decisions and patterns, newest first.
    pub learned: Vec<Learning>,
    /// Failures by what they have in common, the most frequent first.
    pub failures: Vec<FailureGroup>,
    /// Experiments that passed.
    pub passed: u64,
    /// Experiments that did not.
    pub failed: u64,
}

/// What can be done with experiments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "skunk", rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum SkunkVerb {
    /// A directory of its own for a problem, with an environment made in a
    /// sandbox by the real tool.
    New(SkunkNew),
    List {
        /// Archived ones, too.
        #[serde(default)]
        all: bool,
    },
    Show {
        name: String,
    },
    /// Takes out what works, to be used again.
    Extract(Extract),
    /// Says that no more is tried; everything stays.
    Archive {
        name: String,
        /// Takes it back.
        #[serde(default)]
        undo: bool,
    },
    /// Makes an experiment of a directory that exists.
    Import {
        from: String,
        #[serde(default)]
        title: Option<String>,
    },
}

impl SkunkVerb {
    /// What a key must be allowed.
    pub fn verb(&self) -> Verb {
        match self {
            SkunkVerb::List { .. } | SkunkVerb::Show { .. } => Verb::Find,
            _ => Verb::Skunk,
        }
    }
}

/// A new experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkunkNew {
    /// The problem in one line.
    pub title: String,
    /// What makes its environment: `uv`, `cargo`, `npm` or `empty`.
    #[serde(default)]
    pub with: Option<String>,
    /// Packages to add to it.
    #[serde(default)]
    pub add: Vec<String>,
    /// The experiment that it is a part of; by default the one that the caller
    /// stands in.
    #[serde(default)]
    pub within: Option<String>,
    /// The problem in more words.
    #[serde(default)]
    pub body: String,
    /// What the tool may reach; none by default.
    #[serde(default)]
    pub network: Option<crate::Network>,
    /// Words to find it by.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// What to take out of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Extract {
    /// The experiment.
    pub name: String,
    /// What the pattern is called; the experiment's title by default.
    #[serde(default)]
    pub title: Option<String>,
    /// Files and directories of the experiment that belong to it.
    #[serde(default)]
    pub files: Vec<String>,
    /// The name of a template to make of them in `fractal.toml`.
    #[serde(default)]
    pub template: Option<String>,
    /// What was understood, in Markdown.
    #[serde(default)]
    pub insight: Option<String>,
    /// A directory of the project into which the files are promoted, behind its
    /// checks and with an undo.
    #[serde(default)]
    pub into: Option<String>,
}

/// One experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkunkInfo {
    /// What it is called on command lines: its directory without the ending,
    /// below others with a slash between.
    pub name: String,
    /// The problem.
    pub title: String,
    /// The id of the problem's record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Id>,
    /// Where it lies, from the project.
    pub path: String,
    /// `open`, `archived`, or what its record says.
    pub status: String,
    /// What made its environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// Records by kind.
    pub records: std::collections::BTreeMap<String, u64>,
    /// When something was last written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<u64>,
}

/// The answer to `skunk show`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkunkReply {
    /// What `list` says of it.
    pub skunk: SkunkInfo,
    /// Its records, newest first.
    pub journey: Vec<Learning>,
    /// Experiments that are a part of it.
    pub parts: Vec<SkunkInfo>,
    /// Its directory on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// What making its environment said, where that was just done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The answer to `skunk extract`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtractReply {
    /// The record of the pattern.
    pub pattern: NoteReply,
    /// Files that were taken along, from the pattern.
    pub files: Vec<String>,
    /// The template that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// What became of promoting the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<crate::PromoteReply>,
}

/// What can be done with the index of what was learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "index", rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum IndexVerb {
    /// What there is, and how far behind it is.
    Status,
    /// Makes it anew from the files.
    Rebuild,
    /// Compares it with the files, and changes nothing.
    Verify,
    /// What is wrong in records: broken heads, links to nowhere, ids that two
    /// records have.
    Lint,
    /// Makes vectors for the records that have none.
    Embed,
    /// Takes a sentence model from a directory or a wheel.
    #[serde(rename = "add-model")]
    AddModel { from: String },
}

impl IndexVerb {
    /// What a key must be allowed.
    pub fn verb(&self) -> Verb {
        match self {
            IndexVerb::Status | IndexVerb::Verify | IndexVerb::Lint => Verb::Find,
            _ => Verb::Index,
        }
    }
}

/// The answer to `index status`, `rebuild`, `embed` and `add-model`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IndexReply {
    /// Records that can be found.
    pub indexed: u64,
    /// Relations between them and to other things.
    pub edges: u64,
    /// Bytes of the index.
    pub size_bytes: u64,
    /// The places whose records are in it.
    pub roots: Vec<String>,
    /// The model for meaning, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Records without a vector of that model.
    #[serde(default)]
    pub without_vector: u64,
    /// Files with something wrong in them; `index lint` tells.
    pub faulty: u64,
    /// What was seen on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The answer to `index lint` and `index verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LintReply {
    /// By root, path and line.
    pub faults: Vec<LintFault>,
    /// How many files were looked at.
    pub files: u64,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LintFault {
    /// The place.
    pub root: String,
    /// The file.
    pub path: String,
    /// The line, from 1; none where the whole file is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What is wrong.
    pub what: String,
}
