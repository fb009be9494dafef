//! How two trees differ, in time proportional to the difference.
//!
//! Directories and nodes of directories that both trees hold in the same
//! memory are not looked at.

use crate::entry::{Dir, Entry, File};
use crate::map::Map;
use crate::source::{Answers, Stop};
use crate::tree::Tree;
use crate::walk::{Reached, reached};
use fractal_model::{Change, ChangeKind, EntryKind, SandboxPath};
use imbl::ordmap::DiffItem;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What must be done to `old` to get `new`, sorted by path.
pub(crate) fn between(old: &Tree, new: &Tree, answers: &Answers) -> Result<Vec<Change>, Stop> {
    let rewritten = rewritten(old, new);
    let mut compare = Compare { old, new, answers, rewritten, changes: Vec::new() };
    compare.dirs(&SandboxPath::root(), &old.root, &new.root)?;
    let mut changes = compare.changes;
    changes.sort_unstable_by(|a, b| a.path.cmp(&b.path).then(b.kind.cmp(&a.kind)));
    Ok(changes)
}

/// Files with several names that are not the same in both; mostly there are
/// none, and nothing to compare.
fn rewritten(old: &Tree, new: &Tree) -> BTreeSet<u64> {
    if old.shared.is_empty() && new.shared.is_empty() {
        return BTreeSet::new();
    }
    let differing = old.shared.diff(&new.shared).map(|item| match item {
        DiffItem::Add(inode, _) | DiffItem::Remove(inode, _) => *inode,
        DiffItem::Update { old: (inode, _), .. } => *inode,
    });
    differing.collect()
}

struct Compare<'a> {
    old: &'a Tree,
    new: &'a Tree,
    answers: &'a Answers,
    /// Files with several names that are not the same in both.
    rewritten: BTreeSet<u64>,
    changes: Vec<Change>,
}

impl Compare<'_> {
    fn dirs(&mut self, path: &SandboxPath, old: &Arc<Dir>, new: &Arc<Dir>) -> Result<(), Stop> {
        let close = !self.rewritten.is_empty() && new.weight.shared > 0;
        if Arc::ptr_eq(old, new) && !close {
            return Ok(());
        }
        if old.is_untouched(new) && !close {
            return Ok(());
        }
        let (old, new) = (self.answers.entries(old)?, self.answers.entries(new)?);
        match close {
            true => self.all(path, old, new),
            false => self.differing(path, old, new),
        }
    }

    fn differing(&mut self, path: &SandboxPath, old: &Map, new: &Map) -> Result<(), Stop> {
        let mut names = old.diff(new);
        // What is nearly in order is soon sorted in the end.
        names.sort_unstable_by(|a, b| a.0.cmp(b.0));
        for (name, before, after) in names {
            self.entries(&below(path, name.bytes()), before, after)?;
        }
        Ok(())
    }

    /// Name by name, for directories in which a file with several names was
    /// rewritten: its names look the same.
    fn all(&mut self, path: &SandboxPath, old: &Map, new: &Map) -> Result<(), Stop> {
        let names: BTreeSet<_> = old.iter().chain(new.iter()).map(|(name, _)| name).collect();
        for name in names {
            let name = name.bytes();
            self.entries(&below(path, name), old.get(name), new.get(name))?;
        }
        Ok(())
    }

    fn entries(
        &mut self,
        path: &SandboxPath,
        old: Option<&Entry>,
        new: Option<&Entry>,
    ) -> Result<(), Stop> {
        let before = old.map(|entry| reached(self.old, entry));
        let after = new.map(|entry| reached(self.new, entry));
        match (before, after) {
            (None, None) => {}
            (None, Some(after)) => self.add(path, ChangeKind::Added, after),
            (Some(before), None) => self.add(path, ChangeKind::Deleted, before),
            (Some(before), Some(after)) => {
                if self.differ(before, after)? {
                    self.add(path, ChangeKind::Modified, after);
                }
            }
        }
        match (old, new) {
            (Some(Entry::Dir(old)), Some(Entry::Dir(new))) => self.dirs(path, old, new),
            (old, new) => {
                self.everything(path, old, ChangeKind::Deleted)?;
                self.everything(path, new, ChangeKind::Added)
            }
        }
    }

    /// All below a directory that came or went as a whole.
    fn everything(
        &mut self,
        path: &SandboxPath,
        entry: Option<&Entry>,
        kind: ChangeKind,
    ) -> Result<(), Stop> {
        let Some(Entry::Dir(dir)) = entry else { return Ok(()) };
        let tree = if kind == ChangeKind::Deleted { self.old } else { self.new };
        for (name, entry) in self.answers.entries(dir)?.iter() {
            let path = below(path, name.bytes());
            self.add(&path, kind, reached(tree, entry));
            self.everything(&path, Some(entry), kind)?;
        }
        Ok(())
    }

    fn differ(&self, old: Reached, new: Reached) -> Result<bool, Stop> {
        let owner = |meta: &crate::entry::Meta| (meta.mode, meta.uid, meta.gid);
        Ok(match (old, new) {
            (Reached::Dir(old), Reached::Dir(new)) => {
                owner(&old.meta) != owner(&new.meta) || old.xattrs != new.xattrs
            }
            (Reached::Link(old), Reached::Link(new)) => old.target != new.target,
            (Reached::File(old), Reached::File(new)) => {
                owner(&old.meta) != owner(&new.meta)
                    || old.xattrs != new.xattrs
                    || self.contents_differ(old, new)?
            }
            _ => true,
        })
    }

    fn contents_differ(&self, old: &File, new: &File) -> Result<bool, Stop> {
        if let Some(same) = old.content.same(&new.content) {
            return Ok(!same);
        }
        let (old, new) = (&old.content, &new.content);
        if let (Some(a), Some(b)) = (old.len(), new.len())
            && a != b
        {
            return Ok(true);
        }
        let (old, new) = (self.answers.content(old)?, self.answers.content(new)?);
        Ok(old.same(&new) != Some(true))
    }

    fn add(&mut self, path: &SandboxPath, kind: ChangeKind, reached: Reached) {
        let gone = kind == ChangeKind::Deleted;
        let (entry, mode, size) = match reached {
            Reached::Dir(dir) => (EntryKind::Directory, dir.meta.mode, 0),
            Reached::File(file) => {
                (EntryKind::File, file.meta.mode, file.content.len().unwrap_or(0))
            }
            Reached::Link(link) => (EntryKind::Symlink, 0o777, link.target.len() as u64),
        };
        self.changes.push(Change {
            path: path.clone(),
            kind,
            entry,
            mode: mode & 0o777,
            size_bytes: if gone { 0 } else { size },
            autorun: false,
        });
    }
}

impl Dir {
    /// Whether both are still at the same source and nobody looked, or both
    /// hold the same map.
    fn is_untouched(&self, other: &Dir) -> bool {
        use crate::entry::Entries::{Here, Lazy};
        match (&self.entries, &other.entries) {
            (Here(a), Here(b)) => a.is(b),
            (Lazy(a), Lazy(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

fn below(path: &SandboxPath, name: &[u8]) -> SandboxPath {
    path.join(name).expect("a name in the tree is one component")
}
