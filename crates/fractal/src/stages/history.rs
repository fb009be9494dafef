//! What happened to a stage, read back from its records.
//!
//! A stage has no state of its own beside its layers: what stands there, on
//! whose word and on what evidence, is what the journal says. Pure: records
//! in, history out.

use fractal_model::{Evidence, Id, Promotion, Record, format_iso_ms};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// What a record of a promotion into a stage adds to it, whether it came in
/// or was kept out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The stage's name.
    pub stage: String,
    /// Where it came from, by name.
    pub from: String,
    /// Its id; only what came in has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<Id>,
    /// The newest promotion of the stage before that came along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carries: Option<Id>,
    /// What exactly it changed.
    pub digest: String,
    pub paths: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Evidence>,
    /// Who made it: their own approval does not count.
    #[serde(default)]
    pub authors: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// The snapshot that holds what stood there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The id for `undo`, in a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Id>,
    /// The commit that it became, on a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The publish command that is to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<String>,
    /// Why it was kept out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// An arrival in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landing {
    pub arrival: Arrival,
    pub by: String,
    pub at_ms: u64,
    /// The stage's top afterwards.
    pub top: Option<Id>,
    /// Whether its publish command succeeded; `None` until it has ended.
    pub published: Option<bool>,
    /// Whether the latest publish command was killed with who supervised it.
    pub cut_short: bool,
    /// Whether it was taken back.
    pub undone: bool,
}

/// An approval or a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    pub who: String,
    pub approved: bool,
    pub digest: String,
}

/// Everything of one stage, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    landings: Vec<Landing>,
    pub votes: Vec<Cast>,
    /// The latest that was kept out since the latest landing.
    pub refused: Option<Landing>,
}

impl History {
    /// Reads the records of a stage, oldest first.
    pub fn read<'r>(records: impl Iterator<Item = &'r Record>) -> History {
        let mut history = History::default();
        // An undo has an id of its own, by which it can be undone in turn.
        let mut takes_back: HashMap<Id, usize> = HashMap::new();
        for record in records {
            let detail = &record.body.detail;
            let id = |key: &str| detail[key].as_str().and_then(|text| Id::parse(text).ok());
            match record.body.action.as_str() {
                "promote" => {
                    if let Some(landing) = landing(record) {
                        let at = history.landings.len();
                        let ids = [landing.arrival.promotion, landing.arrival.undo];
                        takes_back.extend(ids.into_iter().flatten().map(|id| (id, at)));
                        history.add(landing, record.body.error.is_some());
                    }
                }
                "publish" => {
                    let (well, cut) = (detail["exit"] == 0, detail["outcome"] == "lost");
                    history.published(id("promotion"), well, cut);
                }
                "undo" => {
                    if let Some(at) =
                        id("undoes").and_then(|undoes| takes_back.get(&undoes).copied())
                    {
                        history.landings[at].undone ^= true;
                        takes_back.extend(id("undo").map(|undo| (undo, at)));
                    }
                }
                // Who was refused has not voted.
                "approve" | "reject" if record.body.error.is_none() => history.votes.push(Cast {
                    who: record.body.who.clone(),
                    approved: record.body.action == "approve",
                    digest: detail["digest"].as_str().unwrap_or_default().to_owned(),
                }),
                _ => {}
            }
        }
        history
    }

    fn add(&mut self, landing: Landing, was_refused: bool) {
        if was_refused {
            self.refused = Some(landing);
        } else if landing.arrival.promotion.is_some() {
            self.landings.push(landing);
            self.refused = None;
        }
    }

    fn published(&mut self, promotion: Option<Id>, well: bool, cut_short: bool) {
        let landing = self.landings.iter_mut().rev().find(|one| one.arrival.promotion == promotion);
        if let Some(landing) = landing {
            landing.published = Some(well);
            landing.cut_short = cut_short;
        }
    }

    /// The newest promotion that was not taken back.
    pub fn stands(&self) -> Option<&Landing> {
        self.landings.iter().rev().find(|landing| !landing.undone)
    }

    /// One promotion.
    pub fn landing(&self, promotion: Id) -> Option<&Landing> {
        self.landings.iter().rev().find(|one| one.arrival.promotion == Some(promotion))
    }

    /// The newest promotion, if it was taken back.
    pub fn taken_back(&self) -> Option<&Landing> {
        self.landings.last().filter(|landing| landing.undone)
    }

    /// What stands here and came after the promotion that the next stage
    /// carries.
    pub fn not_carried(&self, carries: Option<Id>) -> Vec<&Landing> {
        let since = carries.and_then(|id| {
            self.landings.iter().position(|landing| landing.arrival.promotion == Some(id))
        });
        let rest = &self.landings[since.map_or(0, |at| at + 1)..];
        rest.iter().filter(|landing| !landing.undone).collect()
    }
}

impl Landing {
    /// Whether a publish command was to follow and has not succeeded.
    pub fn is_unpublished(&self) -> bool {
        self.arrival.publish.is_some() && self.published != Some(true)
    }

    /// As every surface shows it.
    pub fn shown(&self) -> Promotion {
        let arrival = self.arrival.clone();
        Promotion {
            id: arrival.promotion,
            from: arrival.from,
            by: self.by.clone(),
            at: format_iso_ms(self.at_ms),
            digest: arrival.digest,
            paths: arrival.paths,
            checks: arrival.checks,
            approvals: arrival.approvals,
            commit: arrival.commit,
            undo: arrival.undo,
            published: arrival.publish.map(|_| self.published == Some(true)),
            why: arrival.why.or_else(|| self.cut_short.then(|| CUT_SHORT.to_owned())),
        }
    }
}

/// Why what stands is not published, and what nobody can know.
const CUT_SHORT: &str =
    "its publish command was killed with who ran it, and may have done a part of its work";

fn landing(record: &Record) -> Option<Landing> {
    let arrival: Arrival = serde_json::from_value(record.body.detail.clone()).ok()?;
    Some(Landing {
        arrival,
        by: record.body.who.clone(),
        at_ms: record.body.time_ms,
        top: record.body.after,
        published: None,
        cut_short: false,
        undone: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn id(number: u64) -> Id {
        Id::from_parts(number, [0; 10])
    }

    fn records(list: &[(&str, Value)]) -> Vec<Record> {
        let one = |(at, (action, detail)): (usize, &(&str, Value))| {
            let mut body = json!({ "time_ms": at, "who": "w", "action": action, "detail": detail });
            if let Some(code) = detail.get("error") {
                body["error"] = code.clone();
            }
            Record {
                seq: at as u64 + 1,
                body: serde_json::from_value(body).expect("a record"),
                prev: String::new(),
                hash: String::new(),
            }
        };
        list.iter().enumerate().map(one).collect()
    }

    fn came(number: u64) -> (&'static str, Value) {
        let detail = json!({ "stage": "s", "from": "x", "promotion": id(number), "digest": "d",
                             "paths": 1, "authors": ["a"], "undo": id(number + 100) });
        ("promote", detail)
    }

    #[test]
    fn what_stands_is_what_came_last_and_was_not_taken_back() {
        let check = |list: &[(&str, Value)], stands: Option<u64>| {
            let history = History::read(records(list).iter());
            let found = history.stands().and_then(|landing| landing.arrival.promotion);
            assert_eq!(found, stands.map(id), "{list:?}");
        };
        let undo = |of: u64, by: u64| ("undo", json!({ "undoes": id(of), "undo": id(by) }));
        check(&[], None);
        check(&[came(1)], Some(1));
        check(&[came(1), came(2)], Some(2));
        check(&[came(1), came(2), undo(102, 200)], Some(1));
        check(&[came(1), came(2), undo(2, 200)], Some(1));
        check(&[came(1), came(2), undo(102, 200), undo(200, 201)], Some(2));
        check(&[came(1), undo(101, 200), undo(200, 201), undo(201, 202)], None);
        check(&[came(1), ("run", Value::Null), ("promote", Value::Null)], Some(1));
    }

    #[test]
    fn refusals_publishing_and_votes_are_remembered() {
        let mut refused = came(3);
        refused.1["error"] = json!("denied");
        refused.1["why"] = json!("because");
        let exit =
            |number: u64, exit: i32| ("publish", json!({ "promotion": id(number), "exit": exit }));
        let vote = ("approve", json!({ "digest": "d" }));
        let all = records(&[came(1), exit(1, 0), came(2), exit(2, 1), vote, refused.clone()]);
        let history = History::read(all.iter());
        assert_eq!(history.landings[0].published, Some(true));
        assert_eq!(history.landings[1].published, Some(false));
        let cut = ("publish", json!({ "promotion": id(1), "outcome": "lost" }));
        let mut told = came(1);
        told.1["publish"] = json!("ship");
        for (all, why) in
            [(vec![told.clone(), cut.clone()], true), (vec![told.clone(), cut, exit(1, 0)], false)]
        {
            let all = records(&all);
            let history = History::read(all.iter());
            let shown = history.stands().expect("it stands").shown();
            assert_eq!((shown.published, shown.why.is_some()), (Some(!why), why));
        }
        assert_eq!(history.votes.len(), 1);
        let why = history.refused.as_ref().and_then(|landing| landing.arrival.why.as_deref());
        assert_eq!(why, Some("because"));
        assert_eq!(history.not_carried(Some(id(1))).len(), 1);
        assert_eq!(history.not_carried(None).len(), 2);
        let later = records(&[refused, came(4)]);
        assert_eq!(History::read(later.iter()).refused, None, "what came in since speaks");
    }
}
