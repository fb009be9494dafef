//! One record: a head that programs read, a body that people write.
//!
//! Reading never fails as a whole: what is wrong is a [`crate::Fault`] beside as much
//! of the record as could be read, because a broken file is still somebody's
//! work. Keys that are not ours are kept, and the body keeps its bytes.

mod compose;
mod edit;
mod fields;
mod head;
mod lines;
mod links;
mod read;
mod split;
mod value;
mod when;

pub(crate) use compose::is_unprintable;
pub use compose::{Draft, compose};
pub use edit::{add_relation, set_key};
pub use links::Link;
pub use read::{Reading, read};
pub use value::Value;
pub use when::parse_time_ms;

use fractal_model::Id;

/// The longest head that is read.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// How much of a body is found again; what follows is kept and not searched.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// The longest title; what is longer is cut where it is shown.
pub const TITLE_CHARS_MAX: usize = 300;
/// More relations than this in one record are a mistake.
pub const RELATIONS_MAX: usize = 1000;
/// More links than this are not looked at.
pub const LINKS_MAX: usize = 10_000;
/// More faults than this of one file help nobody.
pub const FAULTS_MAX: usize = 100;

/// What a record is about. Other tools' types are kept as they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// What is to be solved.
    Problem,
    /// One way that was tried, with what came of it.
    Experiment,
    /// Something that did not work, and how it showed.
    Failure,
    /// Something understood.
    Insight,
    /// Something settled, and why.
    Decision,
    /// A way that works and can be used again.
    Pattern,
    /// A page without a head.
    Document,
    /// What other tools write.
    Other(String),
}

impl Kind {
    /// The kinds that fractal writes.
    pub const OURS: [Kind; 6] = [
        Kind::Problem,
        Kind::Experiment,
        Kind::Failure,
        Kind::Insight,
        Kind::Decision,
        Kind::Pattern,
    ];

    /// The word in the head.
    pub fn name(&self) -> &str {
        match self {
            Kind::Problem => "Problem",
            Kind::Experiment => "Experiment",
            Kind::Failure => "Failure",
            Kind::Insight => "Insight",
            Kind::Decision => "Decision",
            Kind::Pattern => "Pattern",
            Kind::Document => "Document",
            Kind::Other(name) => name,
        }
    }

    /// Reads the word, whatever its case.
    pub fn parse(text: &str) -> Kind {
        let known = Kind::OURS.into_iter().chain([Kind::Document]);
        let same = |kind: &Kind| kind.name().eq_ignore_ascii_case(text.trim());
        known.into_iter().find(same).unwrap_or_else(|| Kind::Other(text.trim().to_owned()))
    }

    /// The folder of a bundle in which its records lie.
    pub fn folder(&self) -> &'static str {
        match self {
            Kind::Experiment => "experiments",
            Kind::Failure => "failures",
            Kind::Insight => "insights",
            Kind::Decision => "decisions",
            Kind::Pattern => "patterns",
            Kind::Problem | Kind::Document | Kind::Other(_) => "notes",
        }
    }
}

/// Who did something, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// A person or a program, as it calls itself.
    pub by: String,
    /// In milliseconds since 1970, where it says so in a way that can be read.
    pub at_ms: Option<u64>,
}

/// How a record stands to something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// One of [`RELATION_KINDS`], or another tool's word.
    pub kind: String,
    /// To which record, whatever it is called today.
    pub id: Option<Id>,
    /// Where that lay when it was written, for people.
    pub path: Option<String>,
    /// To something that is no record.
    pub thing: Option<Thing>,
    /// Where it stands in the file.
    pub line: u32,
}

/// What a relation can lead to that is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A file of the project.
    File(String),
    /// A package by name.
    Package(String),
    /// A sandbox by name.
    Sandbox(String),
}

/// The words for relations that fractal writes and understands.
pub const RELATION_KINDS: [&str; 14] = [
    "part-of",
    "tried-in",
    "forked-from",
    "failed-with",
    "fixed-by",
    "fixes",
    "promoted-to",
    "cites",
    "contradicts",
    "refutes",
    "supersedes",
    "depends-on",
    "touches",
    "extracted-to",
];

/// Relations that say of their target that it no longer holds.
pub const OVERRIDING: [&str; 2] = ["supersedes", "refutes"];

/// What stands in a record, as far as it could be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What it is about.
    pub kind: Kind,
    /// Minted once; survives renames.
    pub id: Option<Id>,
    /// Its title, or what serves as one.
    pub title: String,
    /// One sentence.
    pub description: String,
    /// `draft`, `stable`, `deprecated` or another word.
    pub status: String,
    /// What came of it: `passed`, `failed` or another word.
    pub outcome: String,
    /// How far it has come.
    pub stage: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Who wrote it, and when.
    pub generated: Option<Stamp>,
    /// Who confirmed it.
    pub verified: Vec<Stamp>,
    /// When it should no longer be trusted unseen.
    pub stale_after_ms: Option<u64>,
    /// The sandbox in which it happened, by name.
    pub sandbox: Option<String>,
    /// What failures that are alike have in common.
    pub signature: Option<String>,
    /// How it stands to others.
    pub relations: Vec<Relation>,
}

impl Record {
    /// A record of which only kind and title are known.
    pub fn new(kind: Kind, title: impl Into<String>) -> Record {
        Record {
            kind,
            id: None,
            title: title.into(),
            description: String::new(),
            status: String::new(),
            outcome: String::new(),
            stage: String::new(),
            tags: Vec::new(),
            generated: None,
            verified: Vec::new(),
            stale_after_ms: None,
            sandbox: None,
            signature: None,
            relations: Vec::new(),
        }
    }

    /// Whether it is marked as no longer holding.
    pub fn is_deprecated(&self) -> bool {
        self.status.eq_ignore_ascii_case("deprecated")
    }
}
