//! Several ways tried side by side: what is asked, and how each one fared.
//!
//! An attempt is a fork made to be compared. Its evidence is what its checks
//! said, an optional score, what it used and what it changed; `rank` turns
//! the evidence of all of them into an order that explains itself.

use crate::{Error, Outcome, Result, Run, Usage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A request to try several ways at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Try {
    /// The ways, each with a name of its own; at least one.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub attempts: Vec<Attempt>,
    /// What every attempt must (or should) pass.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// A command that prints a number; higher is better.
    #[serde(default)]
    pub score: Option<String>,
    /// How the order is found; as the project's file says, or Copeland's way.
    #[serde(default)]
    pub rank: Option<RankBy>,
    /// What attempts are compared by, the weightiest first; as the project's
    /// file says, or all there is.
    #[serde(default)]
    pub criteria: Vec<Criterion>,
    /// Weights of criteria, where they are not the usual ones.
    #[serde(default)]
    pub weights: BTreeMap<Criterion, u32>,
    /// How often each check is repeated, to find the flaky ones.
    #[serde(default)]
    pub repeat: Option<u32>,
    /// Cancel the rest when one passes.
    #[serde(default)]
    pub stop_first: bool,
    /// Time for everything together.
    #[serde(default)]
    pub budget_ms: Option<u64>,
    /// Attempts that run at once; by default as many as there are cores.
    #[serde(default)]
    pub jobs: Option<u32>,
    /// What the attempts stand on.
    #[serde(default)]
    pub base: BaseKind,
    /// Bounds, network, template and environment of every attempt. Its command,
    /// name and sandbox say nothing.
    #[serde(default)]
    pub run: Run,
}

/// One way to try.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attempt {
    /// Its name in the table.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// A run that says whether something holds: exit status 0 is a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// Its name.
    pub name: String,
    /// A shell command.
    pub command: String,
    /// Whether failing it rules an attempt out; it does unless said otherwise.
    #[serde(default = "yes")]
    pub required: bool,
    /// Its own time limit.
    #[serde(default)]
    pub time_ms: Option<u64>,
    /// Where it runs, from the sandbox's directory; without a word where the
    /// sandbox's commands do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

fn yes() -> bool {
    true
}

/// How attempts are put in order, behind the required checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RankBy {
    /// Each pair is compared on every criterion, and the one with more weight
    /// on its side wins the pair; who wins more pairs leads.
    #[default]
    Copeland,
    /// Criteria are scaled to 0..1 and added with their weights.
    Weighted,
    /// The first criterion that differs decides.
    Lexicographic,
    /// A command that reads the evidence as JSON and prints names, best first.
    Command(String),
}

impl RankBy {
    /// Reads a word; anything else is a command.
    pub fn parse(text: &str) -> Result<RankBy> {
        match text.trim() {
            "copeland" => Ok(RankBy::Copeland),
            "weighted" => Ok(RankBy::Weighted),
            "lexicographic" => Ok(RankBy::Lexicographic),
            "" => Err(Error::invalid("there is no way to rank").hint(
                "use copeland, weighted, lexicographic, or a command that prints names, best first",
            )),
            // A slip of the pen would run everything before it shows.
            word if word.bytes().all(|byte| byte.is_ascii_alphabetic()) => Err(Error::invalid(
                format!("`{word}` is no way to rank"),
            )
            .hint(
                "use copeland, weighted, lexicographic, or a command with its path or arguments",
            )),
            _ => Ok(RankBy::Command(text.to_owned())),
        }
    }
}

impl fmt::Display for RankBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RankBy::Copeland => "copeland",
            RankBy::Weighted => "weighted",
            RankBy::Lexicographic => "lexicographic",
            RankBy::Command(command) => command,
        })
    }
}

/// What attempts are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Criterion {
    /// Checks passed; more is better.
    Checks,
    /// What the score command printed; more is better.
    Score,
    /// Lines changed; fewer is better.
    Lines,
    /// Files changed; fewer is better.
    Files,
    /// Time its command took; less is better.
    Time,
    /// Memory its command took; less is better.
    Memory,
    /// How much of its change others made too; more is better.
    Agreement,
}

impl Criterion {
    /// All of them, the weightiest first: the order where none is declared.
    pub const ALL: [Criterion; 7] = [
        Criterion::Checks,
        Criterion::Score,
        Criterion::Agreement,
        Criterion::Lines,
        Criterion::Files,
        Criterion::Time,
        Criterion::Memory,
    ];

    /// The word for it on every surface.
    pub fn name(self) -> &'static str {
        match self {
            Criterion::Checks => "checks",
            Criterion::Score => "score",
            Criterion::Lines => "lines",
            Criterion::Files => "files",
            Criterion::Time => "time",
            Criterion::Memory => "memory",
            Criterion::Agreement => "agreement",
        }
    }

    /// What it counts where nobody says otherwise: a check outweighs all that
    /// follows, a score all that follows it; the rest are votes.
    pub fn weight(self) -> u32 {
        match self {
            Criterion::Checks => 16,
            Criterion::Score => 8,
            Criterion::Agreement | Criterion::Lines => 2,
            Criterion::Files | Criterion::Time | Criterion::Memory => 1,
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Result<Criterion> {
        let found = Criterion::ALL.into_iter().find(|criterion| criterion.name() == text);
        found.ok_or_else(|| {
            Error::invalid(format!("`{}` is not a criterion", text.escape_debug()))
                .hint("use checks, score, lines, files, time, memory or agreement")
        })
    }
}

/// What a sandbox stands on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum BaseKind {
    /// The host as it is at each moment.
    #[default]
    Live,
    /// The project as it was at the fork.
    Frozen,
}

/// What a check said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// It returned 0.
    Pass,
    /// It returned something else.
    Fail,
    /// It could not say: command missing, time or memory limit, signal.
    Error,
    /// It said different things when repeated.
    Flaky,
}

impl CheckResult {
    /// The word for it on every surface.
    pub fn name(self) -> &'static str {
        match self {
            CheckResult::Pass => "pass",
            CheckResult::Fail => "fail",
            CheckResult::Error => "error",
            CheckResult::Flaky => "flaky",
        }
    }
}

/// One check, run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckReport {
    /// Its name.
    pub name: String,
    /// What it said.
    pub result: CheckResult,
    /// Whether it rules out.
    pub required: bool,
    /// Exit status of its last run.
    pub exit: i32,
    /// Why it is not a pass, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The end of what it printed, when it did not pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// How long it took.
    pub wall_ms: u64,
}

impl CheckReport {
    /// Whether it rules an attempt out.
    pub fn rules_out(&self) -> bool {
        self.required && self.result != CheckResult::Pass
    }
}

/// How one attempt fared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptReport {
    /// Its name.
    pub name: String,
    /// The sandbox that holds its work; `None` when it never started or was
    /// cancelled.
    pub sandbox: Option<String>,
    /// How its command ended, for sandboxes that are compared the latest run in
    /// them; `None` when it never started, was cancelled or was lost.
    pub outcome: Option<Outcome>,
    /// Exit status of its command.
    pub exit: Option<i32>,
    /// What the checks said; empty when its command did not succeed.
    pub checks: Vec<CheckReport>,
    /// What the score command printed.
    pub score: Option<f64>,
    /// What its command used.
    pub usage: Usage,
    /// Files that differ from the base.
    pub files_changed: u64,
    /// Lines added and removed in them.
    pub lines_changed: u64,
    /// Its place, 1 being the best; ties share one. `None` when ruled out.
    pub rank: Option<u32>,
    /// Why it stands there, in words.
    pub why: String,
    /// The end of what its command printed, when that did not succeed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// The base under all attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BaseReport {
    /// Live or frozen.
    pub kind: BaseKind,
    /// Files that changed outside since the forks.
    pub behind: u64,
    /// What the checks say about the untouched base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckReport>,
    /// Why some of them did not come to look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
}

/// The answer to `try` and `compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TryReply {
    /// Every attempt, best first, the ruled-out ones last.
    pub attempts: Vec<AttemptReport>,
    /// The best one's name; `None` when none passes. Of several that tie, the
    /// one that was declared first: a note says so.
    pub winner: Option<String>,
    /// The base.
    pub base: BaseReport,
    /// Set when somebody ended it early; then there is no winner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// What a person should know: suspect checks, ties, what was cancelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Files that more than one attempt changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlap: Vec<Overlap>,
    /// Where attempts were written down, when they belong to an experiment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<crate::Recorded>,
}

/// A file that several attempts changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Overlap {
    /// The file.
    pub path: String,
    /// Who changed it.
    pub attempts: Vec<String>,
    /// Whether all of them made the same of it.
    pub same: bool,
    /// Whether their edits of a text can be joined, as a promotion of one after
    /// the other would.
    #[serde(default)]
    pub joins: bool,
}
