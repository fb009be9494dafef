//! Putting attempts in order, and saying why.
//!
//! Pure: reports and what each attempt changed go in, places and words come
//! out. Whoever's command or required check did not succeed is ruled out
//! first and plays no further part. The others are compared in pairs, because
//! pairs need no common scale for lines, seconds and scores, and because who
//! beats everybody else then always leads. Times and memory differ from run
//! to run, so small differences count as none. Who cannot be told apart
//! shares a place.

mod agreement;
mod compare;
#[cfg(test)]
mod tests;
mod words;

pub use agreement::Changed;
pub use words::{ruled_out, suspects};

use crate::{AttemptReport, Criterion, Error, RankBy, Result};
use compare::Field;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// One attempt's evidence.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// How it fared. Its rank is not looked at, nor its why, unless there is
    /// no sandbox: then that says what became of it.
    pub report: &'a AttemptReport,
    /// What it changed.
    pub changed: &'a Changed,
}

/// How the order is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranking {
    /// The method.
    pub by: RankBy,
    /// What counts, the weightiest first.
    pub criteria: Vec<Criterion>,
    /// Weights that are not the usual ones.
    pub weights: BTreeMap<Criterion, u32>,
}

impl Default for Ranking {
    fn default() -> Ranking {
        let criteria = Criterion::ALL.to_vec();
        Ranking { by: RankBy::default(), criteria, weights: BTreeMap::new() }
    }
}

impl Ranking {
    fn weight(&self, criterion: Criterion) -> f64 {
        f64::from(self.weights.get(&criterion).copied().unwrap_or(criterion.weight()))
    }
}

/// Everybody's place, in the order in which the evidence came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// 1 is the best, ties share a place; `None` is ruled out.
    pub ranks: Vec<Option<u32>>,
    /// Why each stands there.
    pub whys: Vec<String>,
    /// The best one. Of several that cannot be told apart, the first.
    pub winner: Option<usize>,
    /// How a tie at the top was broken.
    pub notes: Vec<String>,
}

/// Orders attempts by one of the methods that need no command.
pub fn rank(evidence: &[Evidence<'_>], how: &Ranking) -> Order {
    let field = Field::new(evidence, how);
    let standing = match how.by {
        RankBy::Weighted => field.weighted(),
        RankBy::Lexicographic => field.pairs_won(|a, b| field.first_difference(a, b)),
        RankBy::Copeland | RankBy::Command(_) => field.pairs_won(|a, b| field.majority(a, b)),
    };
    let ranks = places(&standing);
    finish(&field, ranks)
}

/// Orders attempts as a command said: names, best first, one per line.
pub fn rank_as_said(evidence: &[Evidence<'_>], how: &Ranking, said: &str) -> Result<Order> {
    let field = Field::new(evidence, how);
    let names: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let bad = |what: String| {
        let passing: Vec<&str> = field.passing.iter().map(|at| field.name(*at)).collect();
        let hint = format!("it must print each of these once, best first: {}", passing.join(" "));
        Error::invalid(format!("the rank command {what}")).hint(hint)
    };
    let mut ranks = vec![None; evidence.len()];
    for (place, name) in names.iter().enumerate() {
        let found = field.passing.iter().find(|at| field.name(**at) == *name);
        let at = *found.ok_or_else(|| {
            bad(format!("printed `{}`, which is no attempt to rank", name.escape_debug()))
        })?;
        if ranks[at].replace(place as u32 + 1).is_some() {
            return Err(bad(format!("printed `{name}` twice")));
        }
    }
    if let Some(at) = field.passing.iter().find(|at| ranks[**at].is_none()) {
        return Err(bad(format!("left out `{}`", field.name(*at))));
    }
    let mut order = finish(&field, ranks);
    for at in &field.passing {
        order.whys[*at] = words::as_said(&field, *at);
    }
    Ok(order)
}

/// From "how well" to places: the same standing, the same place.
fn places(standing: &[Option<f64>]) -> Vec<Option<u32>> {
    let place = |own: f64| {
        let better = standing.iter().flatten().filter(|other| **other > own);
        u32::try_from(better.count() + 1).unwrap_or(u32::MAX)
    };
    standing.iter().map(|own| own.map(place)).collect()
}

fn finish(field: &Field<'_>, ranks: Vec<Option<u32>>) -> Order {
    let top: Vec<usize> = (0..ranks.len()).filter(|at| ranks[*at] == Some(1)).collect();
    let notes = words::tie(field, &top).into_iter().collect();
    let whys = (0..ranks.len()).map(|at| words::why(field, &ranks, at)).collect();
    Order { winner: top.first().copied(), ranks, whys, notes }
}

/// The order of a table: by place, then as declared; ruled-out ones last.
pub fn table_order(ranks: &[Option<u32>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ranks.len()).collect();
    order.sort_by(|a, b| match (ranks[*a], ranks[*b]) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    });
    order
}
