//! How much attempts agree: what several found independently is more likely
//! to be right.

use std::collections::{BTreeMap, BTreeSet};

/// What an attempt made of each file that it changed, as a digest; `None` is
/// a file that it deleted.
pub type Changed = BTreeMap<String, Option<String>>;

/// Shared changes over all changes of both, from 0 to 1. A file counts as
/// shared only if both made the same of it.
fn similarity(a: &Changed, b: &Changed) -> f64 {
    let paths: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    if paths.is_empty() {
        return 1.0;
    }
    let same =
        paths.iter().filter(|path| a.get(**path).is_some() && a.get(**path) == b.get(**path));
    same.count() as f64 / paths.len() as f64
}

/// The mean similarity of one with all others; 1 where there is no other.
pub fn agreement(one: usize, all: &[&Changed]) -> f64 {
    let others = all.iter().enumerate().filter(|(at, _)| *at != one);
    let list: Vec<f64> = others.map(|(_, other)| similarity(all[one], other)).collect();
    if list.is_empty() { 1.0 } else { list.iter().sum::<f64>() / list.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(list: &[(&str, Option<&str>)]) -> Changed {
        list.iter().map(|(path, to)| ((*path).to_owned(), to.map(str::to_owned))).collect()
    }

    #[test]
    fn only_equal_results_agree() {
        let a = changed(&[("x", Some("1")), ("y", None)]);
        let check = |other: &Changed, expect: f64| assert_eq!(similarity(&a, other), expect);
        check(&a, 1.0);
        check(&changed(&[("x", Some("1"))]), 0.5);
        check(&changed(&[("x", Some("2")), ("y", None)]), 0.5);
        check(&changed(&[("z", None)]), 0.0);
        check(&changed(&[]), 0.0);
        assert_eq!(agreement(0, &[&a]), 1.0);
        assert_eq!(agreement(0, &[&a, &a, &changed(&[])]), 0.5);
    }
}
