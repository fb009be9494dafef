//! What may be done where in a view.
//!
//! The longest rule on the way to a path decides. Rules are the view's own,
//! not the tree's: a fork takes them along, a snapshot does not.

use crate::error::{Fault, Kind};
use crate::name::Name;
use fractal_model::SandboxPath;
use std::collections::BTreeMap;

/// What a rule allows at its path and below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// As if it were not there.
    Hidden,
    /// To be looked at.
    ReadOnly,
    /// New entries may be made and files grow; nothing goes or is rewritten.
    AppendOnly,
    /// Anything.
    Writable,
}

/// What an operation is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Read,
    /// A new name in a directory.
    Create,
    /// More bytes at the end of a file.
    Append,
    /// Anything else that changes something.
    Write,
}

impl Access {
    pub(crate) fn check(self, need: Need) -> Result<(), Fault> {
        let enough = match need {
            Need::Read => self > Access::Hidden,
            Need::Create | Need::Append => self >= Access::AppendOnly,
            Need::Write => self == Access::Writable,
        };
        match (enough, self) {
            (true, _) => Ok(()),
            (false, Access::Hidden) => Err(Fault::new(Kind::NotFound)),
            (false, Access::AppendOnly) => {
                Err(Fault::because(Kind::Denied, "only to be appended to"))
            }
            (false, _) => Err(Fault::new(Kind::ReadOnly)),
        }
    }
}

/// All rules of a view, as a tree of names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) root: Rule,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Rule {
    pub(crate) access: Option<Access>,
    /// Something is mounted here: the name can be neither removed nor moved.
    pub(crate) mounted: bool,
    pub(crate) below: BTreeMap<Name, Rule>,
}

impl Rules {
    /// The rule at a path, made if there was none.
    pub(crate) fn at(&mut self, path: &SandboxPath) -> &mut Rule {
        let mut rule = &mut self.root;
        for name in path.components() {
            rule = rule.below.entry(Name::trusted(name)).or_default();
        }
        rule
    }

    /// Whether anything may be done anywhere.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.root.access.is_none() && self.root.below.is_empty()
    }

    /// Forgets rules that say nothing any more.
    pub(crate) fn tidy(&mut self) {
        tidy(&mut self.root);
    }
}

fn tidy(rule: &mut Rule) -> bool {
    rule.below.retain(|_, below| !tidy(below));
    rule.below.is_empty() && rule.access.is_none() && !rule.mounted
}

impl Rule {
    pub(crate) fn below(&self, name: &[u8]) -> Option<&Rule> {
        self.below.get(name)
    }

    /// Whether the name and all below it may go away in one piece: no mount,
    /// and nothing that a rule protects.
    pub(crate) fn check_removal(&self) -> Result<(), Fault> {
        if self.mounted {
            return Err(Fault::because(Kind::Busy, "something is mounted there"));
        }
        if self.access.is_some_and(|access| access != Access::Writable) {
            return Err(Fault::because(Kind::Denied, "a rule protects what is there"));
        }
        self.below.values().try_for_each(Rule::check_removal)
    }
}
