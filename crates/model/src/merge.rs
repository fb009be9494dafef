//! The three-way check: conflict is defined by value.

/// What promoting one path would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Ours equals the base: nothing to bring.
    Unchanged,
    /// Theirs already equals ours: nothing to do.
    Agree,
    /// Only we changed it: bring ours.
    Take,
    /// The parent's value differs from both the base's and ours.
    Clash,
}

/// Compares one path's value in the base, the parent and the child. `None`
/// stands for "no entry there".
pub fn three_way<T: PartialEq>(base: Option<&T>, theirs: Option<&T>, ours: Option<&T>) -> Verdict {
    if ours == base {
        Verdict::Unchanged
    } else if theirs == ours {
        Verdict::Agree
    } else if theirs == base {
        Verdict::Take
    } else {
        Verdict::Clash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_its_verdict() {
        let check = |base: &str, theirs: &str, ours: &str, expect: Verdict| {
            let value = |text: &str| (text != "-").then(|| text.to_owned());
            let (base, theirs, ours) = (value(base), value(theirs), value(ours));
            assert_eq!(three_way(base.as_ref(), theirs.as_ref(), ours.as_ref()), expect);
        };
        check("a", "a", "a", Verdict::Unchanged);
        check("a", "b", "a", Verdict::Unchanged);
        check("a", "b", "b", Verdict::Agree);
        check("a", "-", "-", Verdict::Agree);
        check("a", "a", "b", Verdict::Take);
        check("-", "-", "b", Verdict::Take);
        check("a", "a", "-", Verdict::Take);
        check("a", "b", "c", Verdict::Clash);
        check("a", "-", "b", Verdict::Clash);
        check("-", "b", "c", Verdict::Clash);
    }
}
