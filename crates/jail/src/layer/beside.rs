//! What differs between two stacks of which neither stands on the other: a
//! sandbox and a snapshot that was taken while something ran in it, or that a
//! rollback left behind.
//!
//! Both stand on something common. Where they differ from each other, at least
//! one of them differs from that, so the two lists of changes against it name
//! every path that has to be looked at.

use super::changes::{Changes, changes};
use super::compare::same_content_while;
use super::{Bounds, Layer, Result, View};
use fractal_model::{ChangeKind, EntryKind, SandboxPath};
use std::collections::BTreeSet;

/// What differs between `beside` and `own` (both top first), each laid over
/// `common`.
pub fn changes_between(
    own: &[Layer],
    beside: &[Layer],
    common: &View,
    bounds: &Bounds,
) -> Result<Changes> {
    let lists = [changes(own, common, bounds)?, changes(beside, common, bounds)?];
    let mut found = Changes {
        truncated: lists.iter().any(|list| list.truncated),
        unreadable: lists.iter().map(|list| list.unreadable).sum(),
        ..Changes::default()
    };
    let paths: BTreeSet<&SandboxPath> =
        lists.iter().flat_map(|list| &list.list).map(|change| &change.path).collect();
    let (before, after) = (common.with_layers_on_top(beside), common.with_layers_on_top(own));
    let mut bytes_left = bounds.bytes_max;
    for path in paths {
        match (before.lookup(path)?, after.lookup(path)?) {
            (None, None) => {}
            (None, Some(new)) => found.add(path, ChangeKind::Added, &new),
            (Some(old), None) => found.add(path, ChangeKind::Deleted, &old),
            (Some(old), Some(new)) => {
                let same = old.same_but_content(&new)
                    && (old.same_inode(&new)
                        || (new.kind != EntryKind::File
                            || same_file(&before, &after, path, &mut bytes_left))
                            && same_attributes(&before, &after, path));
                if !same {
                    found.add(path, ChangeKind::Modified, &new);
                }
            }
        }
    }
    Ok(found)
}

/// What cannot be compared counts as different: a change must never be hidden.
fn same_file(before: &View, after: &View, path: &SandboxPath, bytes_left: &mut u64) -> bool {
    let (Ok(old), Ok(new)) = (before.open_file(path), after.open_file(path)) else { return false };
    let wanted = || before.check_wanted().is_ok();
    let same = same_content_while(&old, &new, bytes_left, &wanted);
    same.is_ok_and(|same| same == Some(true))
}

fn same_attributes(before: &View, after: &View, path: &SandboxPath) -> bool {
    let (Ok(old), Ok(new)) = (before.attributes(path), after.attributes(path)) else {
        return false;
    };
    old == new
}
