//! Files with several names.
//!
//! All names of a file share its times and its mode. So a rename of one moves
//! the `ctime` that the plan expects at the others, and a mode that is set at
//! one is set at all. Here is what follows from it: who moved the `ctime`, and
//! which files cannot be changed in place.

use super::ground::Root;
use super::plan::{Act, Plan};
use super::see::stat_at;
use super::survey::below;
use super::{Content, New, Seen, Step, What};
use fractal_model::{EntryKind, SandboxPath};
use std::cell::RefCell;
use std::collections::HashMap;

type Inode = (u64, u64);

/// Files of reality that several steps of a plan take away or replace.
pub(super) struct Links {
    steps: HashMap<Inode, Vec<usize>>,
    /// Their `ctime` after our last rename of one of their names.
    moved: RefCell<HashMap<Inode, i64>>,
}

impl Links {
    pub fn of(plan: &Plan) -> Links {
        let mut steps: HashMap<Inode, Vec<usize>> = HashMap::new();
        for (number, step) in plan.steps.iter().enumerate() {
            let taken = matches!(step.act(), Act::Replace | Act::Remove);
            let old = step.old.as_ref().filter(|old| old.kind != EntryKind::Directory);
            if let Some(old) = old.filter(|_| taken) {
                steps.entry(old.inode).or_default().push(number);
            }
        }
        steps.retain(|_, numbers| numbers.len() > 1);
        Links { steps, moved: RefCell::default() }
    }

    /// Notes how a file looks after a rename of ours.
    pub fn note(&self, now: &Seen) {
        if self.steps.contains_key(&now.inode) {
            self.moved.borrow_mut().insert(now.inode, now.ctime_ns);
        }
    }

    /// Whether it was our last rename that moved a file's `ctime`; `None` if
    /// this process made none.
    pub fn is_from_us(&self, now: &Seen) -> Option<bool> {
        self.moved.borrow().get(&now.inode).map(|ctime_ns| *ctime_ns == now.ctime_ns)
    }

    /// The steps that are about one file.
    pub fn of_file(&self, file: &Seen) -> &[usize] {
        self.steps.get(&file.inode).map_or(&[], Vec::as_slice)
    }
}

/// Lets files whose mode was to change in place be replaced instead, where
/// that would change names that nobody spoke of. In place are only those of
/// which every name is to become the same.
pub(super) fn part(steps: &mut [Step], root: &Root, base: &SandboxPath) {
    let mut names: HashMap<Inode, Vec<usize>> = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        if let Some(old) = step.old.as_ref().filter(|old| old.kind == EntryKind::File) {
            names.entry(old.inode).or_default().push(at);
        }
    }
    for group in names.values() {
        let Some(first) = group.iter().find(|at| in_place(&steps[**at]).is_some()) else {
            continue;
        };
        let count = count(&steps[*first], root, base);
        let wanted = in_place(&steps[*first]).map(|new| (new.mode, new.owner));
        let alike = |at: &usize| in_place(&steps[*at]).map(|new| (new.mode, new.owner)) == wanted;
        if count <= 1 || count == group.len() as u64 && group.iter().all(alike) {
            continue;
        }
        for at in group {
            if let Some(New { what: What::File(content @ Content::Same), .. }) = &mut steps[*at].new
            {
                *content = Content::View;
            }
        }
    }
}

fn in_place(step: &Step) -> Option<&New> {
    step.new.as_ref().filter(|new| matches!(new.what, What::File(Content::Same)))
}

/// How many names the file at a step's path has. One that is gone has none,
/// which whoever looks next will tell.
fn count(step: &Step, root: &Root, base: &SandboxPath) -> u64 {
    let place = root.place(below(&step.path, base)).ok();
    let stat = place.and_then(|place| stat_at(&*place.dir, &place.name).ok()).flatten();
    // The link count has other widths on other machines.
    #[allow(clippy::useless_conversion)]
    stat.map_or(0, |stat| u64::from(stat.st_nlink))
}
