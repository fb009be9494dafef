//! What moves along a line, how much of it, and who made it.

use crate::config::Line;
use crate::stages::history::History;
use crate::{Engine, stages};
use fractal_model::{Promote, Record, Result, StageKind};
use fractal_store::{Reads, SandboxRow};
use std::collections::BTreeSet;

/// Records of a sandbox that are looked at for who worked in it.
const LOOK_BACK: u64 = 10_000;

/// What moves.
pub struct Source {
    pub row: SandboxRow,
    /// The stage that it is, if it is one.
    pub stage: Option<usize>,
}

impl Source {
    /// As a person would type it.
    pub fn name(&self, line: &Line) -> String {
        self.stage.map_or_else(|| self.row.name.clone(), |at| line.stages[at].name.clone())
    }
}

/// What stands in a stage moves on as a whole: what travels was chosen when it
/// came into the line. A directory and a branch hold the project only.
pub fn narrowed(asked: &Promote, source: &Source, kind: &StageKind) -> Promote {
    let mut asked = asked.clone();
    if source.stage.is_some() {
        asked.only.clear();
        (asked.ignored, asked.git, asked.outside) = (true, true, true);
        asked.allow_autorun = true;
    }
    if matches!(kind, StageKind::Directory(_) | StageKind::Git(_)) {
        asked.outside = false;
    }
    asked
}

/// Who worked in a sandbox, or in those it was forked from.
pub fn authors(engine: &Engine, row: &SandboxRow) -> Result<BTreeSet<String>> {
    let works = |record: &Record| {
        let detail = &record.body.detail;
        record.body.error.is_none()
            && match record.body.action.as_str() {
                "run" | "import" => true,
                "copy" => detail["way"] == "in",
                "promote" => detail["from"].is_string(),
                _ => false,
            }
    };
    let mut authors = BTreeSet::new();
    let mut next = Some((row.id, row.parent));
    while let Some((id, parent)) = next {
        let records = engine.store.journal(Some(id), LOOK_BACK)?;
        authors.extend(records.into_iter().filter(works).map(|record| record.body.who));
        next = match parent {
            None => None,
            Some(id) => match engine.store.sandbox(id)? {
                Some(parent) if stages::is_stage(&parent) => None,
                parent => Some((id, parent.and_then(|parent| parent.parent))),
            },
        };
    }
    Ok(authors)
}

/// Who made what stands in a stage and has not come on yet.
pub fn carried_authors(before: &History, here: &History) -> BTreeSet<String> {
    let carries = here.stands().and_then(|landing| landing.arrival.carries);
    let waiting = before.not_carried(carries).into_iter();
    waiting.flat_map(|landing| landing.arrival.authors.clone()).collect()
}
