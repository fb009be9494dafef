//! What is known of something before it is done, in a few lines.
//!
//! Whoever is about to run a command seldom asks first. So these lines come
//! along with what they get anyway, and nothing here may stand in its way.

use super::failed;
use crate::verbs::find::find;
use crate::{Caller, Engine};
use fractal_index::Index;
use fractal_index::record::Kind;
use fractal_model::{Code, FailureGroup, Find, Hit, Result, Verb};
use std::collections::BTreeSet;

/// Lines that somebody reads who asked for something else.
const LINES_MAX: usize = 5;
/// Failures that look alike are one line; so more are asked for.
const ASKED: u32 = 20;
/// What follows this in a command line is data.
const TEXT_CHARS_MAX: usize = 2000;
/// What is less than this part of the best answer only shares a word with it.
const SCORE_PART_MIN: f64 = 0.4;
const TITLE_CHARS_MAX: usize = 200;
const KINDS: [Kind; 4] = [Kind::Failure, Kind::Insight, Kind::Pattern, Kind::Decision];

impl Engine {
    /// What is known of this text (a command, an error), best first: failures
    /// like it, how often and what fixed them, insights, patterns, decisions.
    /// Empty for those who may not ask, and where nothing was written down.
    pub fn known(&self, caller: &Caller, text: &str) -> Result<Vec<String>> {
        let text: String = text.trim().chars().take(TEXT_CHARS_MAX).collect();
        if text.is_empty() || !caller.policy.allows(Verb::Find) {
            return Ok(Vec::new());
        }
        self.ready()?;
        let index = self.index(caller)?;
        if index.counts().map_err(failed)?.records == 0 {
            return Ok(Vec::new());
        }
        let kinds = KINDS.iter().map(|kind| kind.name().to_lowercase()).collect();
        let question = Find { text, kinds, limit: Some(ASKED), ..Find::default() };
        let hits = match find(self, caller, &question) {
            // There is no word in it: `[ "$1" ]`.
            Err(error) if error.code == Code::Invalid => return Ok(Vec::new()),
            found => found?.hits,
        };
        let enough = hits.first().map_or(0.0, |best| best.score * SCORE_PART_MIN);
        let mut told = BTreeSet::new();
        let mut lines = Vec::new();
        for hit in hits.iter().take_while(|hit| hit.score >= enough) {
            let line = line(&index, hit)?;
            if lines.len() < LINES_MAX && told.insert(line.clone()) {
                lines.push(line);
            }
        }
        Ok(lines)
    }
}

fn line(index: &Index, hit: &Hit) -> Result<String> {
    if Kind::parse(&hit.kind) == Kind::Failure {
        // A failure that fractal wrote down has its signature as its title.
        if let Some(group) = index.failed_so(&hit.title).map_err(failed)? {
            return Ok(failure(&group));
        }
    }
    let marks = match hit.marks.as_slice() {
        [] => String::new(),
        some => format!(" [{}]", some.join("; ")),
    };
    Ok(format!("{}: {}{marks} ({})", hit.kind.to_lowercase(), short(&hit.title), hit.key))
}

/// `failed 3 times: exit 1: …; fixed by: … (01…)`.
fn failure(group: &FailureGroup) -> String {
    let times = if group.times == 1 { "once".to_owned() } else { format!("{} times", group.times) };
    let (what, key) = match (group.fixed_by.first(), group.failures.first()) {
        (Some(fix), _) => (format!("; fixed by: {}", short(&fix.title)), fix.key.as_str()),
        (None, Some(newest)) => ("; no fix is known".to_owned(), newest.key.as_str()),
        (None, None) => (String::new(), ""),
    };
    format!("failed {times}: {}{what} ({key})", short(&group.signature))
}

fn short(text: &str) -> String {
    match text.char_indices().nth(TITLE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Action;
    use fractal_model::{Note, Policy};

    fn note(engine: &Engine, caller: &Caller, kind: &str, title: &str) {
        let note = Note { title: title.into(), kind: Some(kind.into()), ..Note::default() };
        engine.apply(caller, Action::Note(Box::new(note))).expect("it is written");
    }

    #[test]
    fn what_is_known_is_told_in_a_few_lines_and_only_to_those_who_may_ask() {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = Engine::open(&dir.path().join("home")).expect("it opens");
        let caller = Caller::owner(dir.path());
        let known = |text: &str| engine.known(&caller, text).expect("it is no error");
        assert_eq!(known("cargo test"), Vec::<String>::new());
        note(&engine, &caller, "insight", "cargo test needs the database");
        note(&engine, &caller, "decision", "we bake bread on Mondays");
        let lines = known("cargo test --workspace");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("insight: cargo test needs the database ("), "{lines:?}");
        assert_eq!(known(" \n"), Vec::<String>::new());
        assert_eq!(known("|| && ;"), Vec::<String>::new());
        for number in 0..9 {
            note(&engine, &caller, "failure", &format!("cargo test fails in way {number}"));
        }
        assert_eq!(known("cargo test").len(), LINES_MAX);
        let policy = Policy { allow: Some([Verb::Run].into()), ..Policy::default() };
        let narrow = Caller { policy, ..caller.clone() };
        assert_eq!(engine.known(&narrow, "cargo test"), Ok(Vec::new()));
    }

    #[test]
    fn a_failure_says_how_often_and_what_helped() {
        let learning = |key: &str, title: &str| fractal_model::Learning {
            key: key.into(),
            title: title.into(),
            ..fractal_model::Learning::default()
        };
        let mut group = FailureGroup {
            signature: "exit 1: no module yaml".into(),
            times: 3,
            failures: vec![learning("A", "exit 1: no module yaml")],
            ..FailureGroup::default()
        };
        let none = "failed 3 times: exit 1: no module yaml; no fix is known (A)";
        assert_eq!(failure(&group), none);
        group.fixed_by = vec![learning("B", "pin pyyaml")];
        group.times = 1;
        let fixed = "failed once: exit 1: no module yaml; fixed by: pin pyyaml (B)";
        assert_eq!(failure(&group), fixed);
    }
}
