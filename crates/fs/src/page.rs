//! A directory in pieces, and a name for an inode.
//!
//! Listing piece by piece needs no snapshot of the directory: a place in it is
//! a place in the order of hashes, so that whatever comes and goes between two
//! pieces, an entry that stays is seen exactly once.

use crate::entry::{Dir, Entries, Entry};
use crate::error::FsError;
use crate::map::Map;
use crate::read::{Stat, known};
use crate::rules::Access;
use crate::view::Vfs;
use crate::walk::{Last, Reached, reached};
use crate::{Listed, Name};

/// Names whose hashes begin with the same so many bits are counted through.
const HASH_BITS: u32 = 44;
const COUNT_BITS: u32 = 18;

/// One name of a piece of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paged {
    /// Where the next piece begins if it begins after this one; never 0, and
    /// less than 2^62.
    pub next: u64,
    /// The name, kind and inode.
    pub listed: Listed,
    /// What is known about it, unless its source would have to make a file
    /// to say how large it is.
    pub stat: Option<Stat>,
}

impl Vfs {
    /// At most so many names of a directory, in no order that means anything,
    /// from a place on: 0, or the `next` of an earlier one.
    pub fn page(
        &self,
        path: impl AsRef<[u8]>,
        place: u64,
        most: usize,
    ) -> Result<Vec<Paged>, FsError> {
        let path = path.as_ref();
        self.reading(path, |state, answers| {
            let found = state.find(path, Last::Follow, answers)?;
            let (dir, rule) = (found.dir()?, found.rule);
            let mut out = Vec::with_capacity(most.min(1024));
            for (next, name, entry) in from(answers.entries(dir)?, place) {
                if out.len() == most {
                    break;
                }
                let rule = rule.and_then(|rule| rule.below(name.bytes()));
                if rule.and_then(|rule| rule.access) == Some(Access::Hidden) {
                    continue;
                }
                let reached = reached(&state.top, entry);
                let stat = known(reached);
                let sized = !matches!(reached, Reached::File(file) if file.content.len().is_none());
                let listed = Listed { name: name.clone(), kind: stat.kind, inode: stat.inode };
                out.push(Paged { next, listed, stat: sized.then_some(stat) });
            }
            Ok(out)
        })
    }

    /// A path that leads to a file with several names. Looks only where there
    /// are such files, and asks no source.
    pub fn name_of(&self, inode: u64) -> Option<Vec<u8>> {
        let tree = self.tree();
        tree.shared.contains_key(&inode).then_some(())?;
        let mut path = Vec::new();
        find_name(&tree.root, inode, &mut path).then_some(path)
    }
}

fn from(map: &Map, place: u64) -> impl Iterator<Item = (u64, &Name, &Entry)> {
    let group = place >> COUNT_BITS;
    let skip = place & ((1 << COUNT_BITS) - 1);
    let (mut of, mut count) = (group, 0);
    let all = map.from(group << (u64::BITS - HASH_BITS)).map(move |(hash, name, entry)| {
        let group = hash >> (u64::BITS - HASH_BITS);
        count = if group == of { count + 1 } else { 1 };
        of = group;
        (group, count, name, entry)
    });
    all.skip_while(move |(at, count, ..)| *at == group && *count <= skip)
        .map(|(group, count, name, entry)| ((group << COUNT_BITS) | count, name, entry))
}

fn find_name(dir: &Dir, inode: u64, path: &mut Vec<u8>) -> bool {
    if dir.weight.shared == 0 {
        return false;
    }
    let Entries::Here(map) = &dir.entries else { return false };
    let len = path.len();
    for (name, entry) in map.iter() {
        path.truncate(len);
        path.push(b'/');
        path.extend_from_slice(name.bytes());
        match entry {
            Entry::Shared(this) if *this == inode => return true,
            Entry::Dir(dir) if find_name(dir, inode, path) => return true,
            _ => {}
        }
    }
    path.truncate(len);
    false
}
