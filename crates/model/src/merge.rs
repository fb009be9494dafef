//! The three-way check: conflict is defined by value.

/// What promoting one path would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreeWay {
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
pub fn three_way<T: PartialEq>(base: Option<&T>, theirs: Option<&T>, ours: Option<&T>) -> ThreeWay {
    if ours == base {
        ThreeWay::Unchanged
    } else if theirs == ours {
        ThreeWay::Agree
    } else if theirs == base {
        ThreeWay::Take
    } else {
        ThreeWay::Clash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_its_verdict() {
        let check = |base: &str, theirs: &str, ours: &str, expect: ThreeWay| {
            let value = |text: &str| (text != "-").then(|| text.to_owned());
            let (base, theirs, ours) = (value(base), value(theirs), value(ours));
            assert_eq!(three_way(base.as_ref(), theirs.as_ref(), ours.as_ref()), expect);
        };
        check("a", "a", "a", ThreeWay::Unchanged);
        check("a", "b", "a", ThreeWay::Unchanged);
        check("a", "b", "b", ThreeWay::Agree);
        check("a", "-", "-", ThreeWay::Agree);
        check("a", "a", "b", ThreeWay::Take);
        check("-", "-", "b", ThreeWay::Take);
        check("a", "a", "-", ThreeWay::Take);
        check("a", "b", "c", ThreeWay::Clash);
        check("a", "-", "b", ThreeWay::Clash);
        check("-", "b", "c", ThreeWay::Clash);
    }
}
