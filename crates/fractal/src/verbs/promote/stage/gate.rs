//! Whether a change may come into a stage, beside what the checks say: freeze
//! windows, waiting, rejections and approvals. Pure: all facts come in, a
//! refusal in words comes out.

use crate::config::Stage;
use crate::stages::history::Cast;
use fractal_model::{format_duration_ms, format_iso_ms};
use std::collections::BTreeSet;

/// What is known at the gate.
pub struct Gate<'a> {
    pub stage: &'a Stage,
    pub now_ms: u64,
    /// The stage before, and since when the change stands there.
    pub before: Option<(&'a str, u64)>,
    /// What exactly would come in.
    pub digest: &'a str,
    /// Who made it.
    pub authors: &'a BTreeSet<String>,
    /// Everything that was ever said about anything before this stage.
    pub votes: &'a [Cast],
    /// What to type for an approval.
    pub approve: String,
}

/// Why it may not come in, and what helps.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub why: String,
    pub hint: String,
}

/// What people said about one change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub approvals: Vec<String>,
    pub rejected_by: Option<String>,
}

/// Counts each key once, authors never. A rejection takes back every approval
/// before it, and stands until somebody approves anew.
pub fn tally(votes: &[Cast], digest: &str, authors: &BTreeSet<String>) -> Tally {
    let mut tally = Tally::default();
    for vote in votes.iter().filter(|vote| vote.digest == digest) {
        if !vote.approved {
            tally = Tally { rejected_by: Some(vote.who.clone()), approvals: Vec::new() };
        } else if !authors.contains(&vote.who) {
            tally.rejected_by = None;
            if !tally.approvals.contains(&vote.who) {
                tally.approvals.push(vote.who.clone());
            }
        }
    }
    tally
}

impl Gate<'_> {
    /// What no check could change: asked before they run.
    pub fn before_checks(&self) -> Option<Refusal> {
        self.frozen().or_else(|| self.too_early()).or_else(|| self.rejected())
    }

    /// Approvals are asked for last, so that whoever gives one has seen what
    /// the checks said.
    pub fn after_checks(&self) -> Option<Refusal> {
        let Tally { approvals, .. } = self.tally();
        let (given, needed) = (approvals.len(), self.stage.approve as usize);
        if given >= needed {
            return None;
        }
        let people = |names: Vec<&str>| names.join(", ");
        let by = match approvals.is_empty() {
            true => String::new(),
            false => format!(" (by {})", people(approvals.iter().map(String::as_str).collect())),
        };
        let authors = people(self.authors.iter().map(String::as_str).collect());
        Some(Refusal {
            why: format!(
                "`{}` needs {needed} approval{} of exactly this, and has {given}{by}",
                self.stage.name,
                if needed == 1 { "" } else { "s" },
            ),
            hint: format!("somebody other than {authors} types `{}`", self.approve),
        })
    }

    pub fn tally(&self) -> Tally {
        tally(self.votes, self.digest, self.authors)
    }

    fn frozen(&self) -> Option<Refusal> {
        let (window, until_ms) = frozen(self.stage, self.now_ms)?;
        Some(Refusal {
            why: format!(
                "`{}` is frozen until {} ({window})",
                self.stage.name,
                format_iso_ms(until_ms)
            ),
            hint: "promote again after that".to_owned(),
        })
    }

    fn too_early(&self) -> Option<Refusal> {
        let (before, since_ms) = self.before?;
        let wait_ms = self.stage.wait_ms?;
        let until_ms = since_ms.saturating_add(wait_ms);
        (self.now_ms < until_ms).then(|| Refusal {
            why: format!(
                "`{}` takes what has stood in `{before}` for {}: not before {}",
                self.stage.name,
                format_duration_ms(wait_ms),
                format_iso_ms(until_ms)
            ),
            hint: "promote again after that".to_owned(),
        })
    }

    fn rejected(&self) -> Option<Refusal> {
        let by = self.tally().rejected_by?;
        Some(Refusal {
            why: format!("{by} rejected this before `{}`", self.stage.name),
            hint: format!(
                "change it and promote again, or have it approved anew: `{}`",
                self.approve
            ),
        })
    }
}

/// The window that keeps a stage closed now, and when it opens.
pub fn frozen(stage: &Stage, now_ms: u64) -> Option<(String, u64)> {
    let closed = stage.freeze.iter().filter_map(|window| Some((window, window.until(now_ms)?)));
    closed.max_by_key(|(_, until)| *until).map(|(window, until)| (window.to_string(), until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fractal_model::{StageKind, Window};

    fn stage() -> Stage {
        Stage {
            name: "prod".to_owned(),
            kind: StageKind::Virtual,
            checks: Vec::new(),
            approve: 0,
            wait_ms: None,
            freeze: Vec::new(),
            publish: None,
            publish_ms: 1,
        }
    }

    fn votes(list: &[(&str, bool, &str)]) -> Vec<Cast> {
        let cast = |(who, approved, digest): &(&str, bool, &str)| Cast {
            who: (*who).to_owned(),
            approved: *approved,
            digest: (*digest).to_owned(),
        };
        list.iter().map(cast).collect()
    }

    fn refusals(stage: &Stage, now_ms: u64, cast: &[Cast]) -> (Option<String>, Option<String>) {
        let authors = BTreeSet::from(["ann".to_owned()]);
        let gate = Gate {
            stage,
            now_ms,
            before: Some(("staging", 1_000)),
            digest: "d",
            authors: &authors,
            votes: cast,
            approve: "fractal approve staging".to_owned(),
        };
        let why = |refusal: Option<Refusal>| refusal.map(|refusal| refusal.why);
        (why(gate.before_checks()), why(gate.after_checks()))
    }

    #[test]
    fn approvals_count_once_per_key_never_by_the_author_and_for_this_content_only() {
        let check = |list: &[(&str, bool, &str)], approvals: &[&str], rejected: Option<&str>| {
            let authors = BTreeSet::from(["ann".to_owned()]);
            let found = tally(&votes(list), "d", &authors);
            assert_eq!(
                (&found.approvals[..], found.rejected_by.as_deref()),
                (&approvals.iter().map(ToString::to_string).collect::<Vec<_>>()[..], rejected),
                "{list:?}"
            );
        };
        check(&[], &[], None);
        check(&[("bob", true, "d")], &["bob"], None);
        check(&[("bob", true, "d"), ("bob", true, "d")], &["bob"], None);
        check(&[("ann", true, "d")], &[], None);
        check(&[("bob", true, "other")], &[], None);
        check(&[("bob", true, "d"), ("cid", true, "d")], &["bob", "cid"], None);
        check(&[("bob", true, "d"), ("cid", false, "d")], &[], Some("cid"));
        check(&[("cid", false, "d"), ("bob", true, "d")], &["bob"], None);
        check(&[("cid", false, "d"), ("ann", true, "d")], &[], Some("cid"));
        check(&[("cid", false, "other")], &[], None);
    }

    #[test]
    fn every_refusal_says_until_when_or_who() {
        let open = stage();
        assert_eq!(refusals(&open, 2_000, &[]), (None, None));
        let waits = Stage { wait_ms: Some(60_000), ..stage() };
        let why = refusals(&waits, 60_999, &[]).0.expect("it is too early");
        assert!(why.contains("1 minute") && why.contains("1970-01-01T00:01:01Z"), "{why}");
        assert_eq!(refusals(&waits, 61_000, &[]).0, None);
        let window = |text: &str| Window::parse(text).expect("a window");
        let freeze = vec![window("00:00-01:00"), window("00:30-02:00")];
        let frozen = Stage { freeze, ..stage() };
        let why = refusals(&frozen, 45 * 60_000, &[]).0.expect("it is frozen");
        assert!(why.contains("1970-01-01T02:00:00Z"), "{why}");
        let asks = Stage { approve: 2, ..stage() };
        let why = refusals(&asks, 0, &votes(&[("bob", true, "d")])).1.expect("one is missing");
        assert_eq!(why, "`prod` needs 2 approvals of exactly this, and has 1 (by bob)");
        let why = refusals(&open, 0, &votes(&[("bob", false, "d")])).0.expect("it was rejected");
        assert_eq!(why, "bob rejected this before `prod`");
    }
}
