//! Several scores as one.

use super::Mix;
use std::collections::BTreeMap;

/// What is known of one record, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Evidence {
    /// BM25, larger is better; 0 where no word was found.
    pub words: f64,
    /// The cosine to the question, where there are vectors.
    pub cosine: f64,
}

/// Mixed scores, by number, each between 0 and 1. The best words of an answer
/// count 1. Without vectors the words are all there is.
pub(super) fn mix(
    found: &BTreeMap<i64, Evidence>,
    mix: Mix,
    with_vectors: bool,
) -> BTreeMap<i64, f64> {
    let best = found.values().map(|it| it.words).fold(0.0, f64::max);
    let share = if with_vectors { mix.text.clamp(0.0, 1.0) } else { 1.0 };
    let score = |it: &Evidence| {
        let text = if best > 0.0 { it.words / best } else { 0.0 };
        share * text + (1.0 - share) * it.cosine.max(0.0)
    };
    found.iter().map(|(num, it)| (*num, score(it))).collect()
}

/// How much of a record's score goes to what it stands in relation to: what
/// solves a problem is what is looked for, a mere mention says little.
pub(super) fn pull(kind: &str) -> f64 {
    match kind {
        "fixed-by" | "fixes" | "supersedes" | "refutes" | "contradicts" => 1.0,
        "failed-with" | "promoted-to" | "extracted-to" => 0.8,
        "cites" | "forked-from" => 0.4,
        // Everything of a bundle is part of its problem.
        _ => 0.0,
    }
}

/// What a record's state makes of its score, and the words for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub verified: bool,
    pub stale: bool,
    pub deprecated: bool,
    pub overridden: bool,
}

impl State {
    pub fn weight(self) -> f64 {
        let factor = |is: bool, factor: f64| if is { factor } else { 1.0 };
        factor(self.verified, 1.1)
            * factor(self.stale, 0.8)
            * factor(self.deprecated || self.overridden, 0.5)
    }

    pub fn marks(self) -> Vec<String> {
        let marks = [
            (self.verified, "verified"),
            (self.stale, "stale"),
            (self.deprecated, "deprecated"),
            (self.overridden, "superseded"),
        ];
        marks.iter().filter(|(is, _)| *is).map(|(_, word)| (*word).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_meaning_are_mixed() {
        let found = BTreeMap::from([
            (1, Evidence { words: 8.0, cosine: 0.2 }),
            (2, Evidence { words: 0.0, cosine: 0.8 }),
            (3, Evidence { words: 4.0, cosine: -0.5 }),
        ]);
        let half = Mix { text: 0.5, graph: 0.0 };
        let check = |with_vectors: bool, expect: [f64; 3]| {
            let scores: Vec<f64> = mix(&found, half, with_vectors).into_values().collect();
            for (score, expect) in scores.iter().zip(expect) {
                assert!((score - expect).abs() < 1e-9, "{scores:?}");
            }
        };
        check(true, [0.6, 0.4, 0.25]);
        check(false, [1.0, 0.0, 0.5]);
    }

    #[test]
    fn nothing_found_by_words_divides_by_nothing() {
        let found = BTreeMap::from([(1, Evidence { words: 0.0, cosine: 0.5 })]);
        assert_eq!(mix(&found, Mix::default(), true)[&1], 0.4);
    }
}
