//! The tree as a value: cloning one costs a few pointers, and whoever holds a
//! clone never sees it change.
//!
//! Edits replace the directories on the way to a place, in memory if nobody
//! else holds them. Everything is checked before the first edit, so that an
//! error leaves the tree as it was.

use crate::entry::{Delta, Dir, Entries, Entry, File, Meta, SharedFile, Weight};
use crate::error::Kind;
use crate::map::Map;
use crate::name::Name;
use crate::source::{Answers, Stop};
use crate::walk::split;
use imbl::OrdMap;
use std::sync::Arc;

/// How many directories may lie in each other. Keeps everything that goes
/// down the tree from running out of stack.
pub const DEPTH_MAX: u32 = 1000;

/// A whole filesystem at one moment.
#[derive(Clone)]
pub struct Tree {
    pub(crate) root: Arc<Dir>,
    /// Files with more than one name, by inode.
    pub(crate) shared: OrdMap<u64, SharedFile>,
    pub(crate) shared_bytes: u64,
    /// Another number after every mount and unmount.
    pub(crate) mounts: u64,
}

/// What an edit did: to the weight of all directories above, and how many
/// levels there are below the one that was edited.
pub(crate) struct Done {
    pub(crate) delta: Delta,
    pub(crate) levels: u32,
}

/// What had a name until now; [`crate::Vfs::adopt`] gives it another one.
#[derive(Clone)]
pub struct Gone {
    /// The inode of what was there.
    pub inode: u64,
    /// The file, if that was its last name: whoever has it open goes on.
    pub(crate) file: Option<Arc<File>>,
}

impl Tree {
    /// A tree with nothing but its root.
    pub(crate) fn empty(meta: Meta) -> Tree {
        Tree { root: Arc::new(Dir::empty(meta)), shared: OrdMap::new(), shared_bytes: 0, mounts: 0 }
    }

    /// What it takes from the limits.
    pub fn weight(&self) -> Weight {
        let below = self.root.weight;
        Weight { bytes: below.bytes + self.shared_bytes, ..below }
    }

    /// Whether both are the same value in memory: nothing was done in between.
    pub fn is(&self, other: &Tree) -> bool {
        Arc::ptr_eq(&self.root, &other.root) && self.shared.ptr_eq(&other.shared)
    }

    /// Puts an entry at a place whose directory exists. What stood there had
    /// the weight `old`.
    pub(crate) fn put(
        &mut self,
        place: &[u8],
        entry: Entry,
        old: Option<Weight>,
        answers: &Answers,
        now: i64,
    ) -> Result<(), Stop> {
        let (dir, name) = split(place);
        let levels = match &entry {
            Entry::Dir(dir) => dir.depth + 1,
            _ => 0,
        };
        if dir.split(|byte| *byte == b'/').count() as u32 + levels > DEPTH_MAX {
            return Err(Kind::NameTooLong.into());
        }
        let delta = entry.weight().minus(old.unwrap_or_default());
        let mut entry = Some(entry);
        self.edit(dir, answers, &mut |dir, map| {
            let entry = entry.take().expect("a directory is edited once");
            map.insert(Name::trusted(name), entry);
            dir.touch(now);
            Ok(Done { delta, levels })
        })
    }

    /// Takes the entry at a place away.
    pub(crate) fn take(
        &mut self,
        place: &[u8],
        answers: &Answers,
        now: i64,
    ) -> Result<Entry, Stop> {
        let (dir, name) = split(place);
        let mut taken = None;
        self.edit(dir, answers, &mut |dir, map| {
            let entry = map.remove(name).ok_or(Kind::NotFound)?;
            dir.touch(now);
            let delta = Weight::default().minus(entry.weight());
            taken = Some(entry);
            Ok(Done { delta, levels: 0 })
        })?;
        Ok(taken.expect("an edit without an error took it"))
    }

    /// The entry at a place without links, if there is one.
    pub(crate) fn peek(&self, place: &[u8], answers: &Answers) -> Result<Option<Entry>, Stop> {
        let mut dir = &self.root;
        let (parents, last) = split(place);
        for name in parents.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            match answers.entries(dir)?.get(name) {
                Some(Entry::Dir(next)) => dir = next,
                _ => return Ok(None),
            }
        }
        Ok(answers.entries(dir)?.get(last).cloned())
    }

    /// Puts an entry or nothing at a place.
    pub(crate) fn set(
        &mut self,
        place: &[u8],
        entry: Option<Entry>,
        answers: &Answers,
        now: i64,
    ) -> Result<(), Stop> {
        let old = self.peek(place, answers)?.map(|entry| entry.weight());
        match (entry, old) {
            (Some(entry), old) => self.put(place, entry, old, answers, now),
            (None, Some(_)) => self.take(place, answers, now).map(drop),
            (None, None) => Ok(()),
        }
    }

    /// Makes the directories above a place as `like` has them, where they are
    /// missing.
    pub(crate) fn make_dirs(
        &mut self,
        place: &[u8],
        like: &Tree,
        answers: &Answers,
    ) -> Result<(), Stop> {
        let ends = place.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends {
            let above = &place[..end];
            if let (None, Some(Entry::Dir(dir))) =
                (self.peek(above, answers)?, like.peek(above, answers)?)
            {
                let made = Entry::Dir(Arc::new(Dir::empty(dir.meta)));
                self.put(above, made, None, answers, dir.meta.modified_ns)?;
            }
        }
        Ok(())
    }

    /// Forgets one name of a file that has several; the last one that is left
    /// stays in the table, where it does no harm.
    pub(crate) fn forget_name(&mut self, entry: &Entry) {
        let Entry::Shared(inode) = entry else { return };
        let Some(SharedFile(file)) = self.shared.get_mut(inode) else { return };
        if file.names > 1 {
            Arc::make_mut(file).names -= 1;
            return;
        }
        self.shared_bytes = self.shared_bytes.saturating_sub(file.content.held());
        self.shared.remove(inode);
    }

    /// What a name that goes away leaves behind.
    pub(crate) fn gone(&self, entry: &Entry) -> Gone {
        let file = match entry {
            Entry::File(file) => Some(file.clone()),
            Entry::Shared(inode) => {
                let shared = self.shared.get(inode).map(|SharedFile(file)| file);
                shared.filter(|file| file.names <= 1).cloned()
            }
            Entry::Dir(_) | Entry::Link(_) => None,
        };
        Gone { inode: entry.inode(), file }
    }

    /// Edits a file in its place, whichever way it is kept.
    pub(crate) fn edit_file(
        &mut self,
        place: &[u8],
        answers: &Answers,
        edit: &mut dyn FnMut(&mut File) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.replace_file(place, answers, &mut |file| edit(Arc::make_mut(file)))
    }

    /// The same for whoever need not copy what others hold.
    pub(crate) fn replace_file(
        &mut self,
        place: &[u8],
        answers: &Answers,
        edit: &mut dyn FnMut(&mut Arc<File>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let (dir, name) = split(place);
        let mut shared = None;
        self.edit(dir, answers, &mut |_, map| match map.get_mut(name) {
            Some(Entry::File(file)) => {
                let before = file.content.held();
                edit(file)?;
                let bytes = file.content.held() as i64 - before as i64;
                Ok(Done { delta: Delta { bytes, ..Delta::default() }, levels: 0 })
            }
            Some(Entry::Shared(inode)) => {
                shared = Some(*inode);
                Ok(Done { delta: Delta::default(), levels: 0 })
            }
            Some(_) => Err(Kind::IsADirectory.into()),
            None => Err(Kind::NotFound.into()),
        })?;
        let Some(inode) = shared else { return Ok(()) };
        let SharedFile(file) = self.shared.get_mut(&inode).expect("every name of it keeps it");
        let before = file.content.held();
        edit(file)?;
        self.shared_bytes = self.shared_bytes + file.content.held() - before;
        Ok(())
    }

    /// Edits a directory itself: owner, mode, attributes.
    pub(crate) fn edit_dir(
        &mut self,
        place: &[u8],
        answers: &Answers,
        edit: &mut dyn FnMut(&mut Dir),
    ) -> Result<(), Stop> {
        edit_below(&mut self.root, place, answers, &mut |dir, _| {
            edit(dir);
            Ok(Done { delta: Delta::default(), levels: 0 })
        })
        .map(drop)
    }

    /// Edits the names of a directory.
    pub(crate) fn edit(
        &mut self,
        place: &[u8],
        answers: &Answers,
        edit: &mut dyn FnMut(&mut Dir, &mut Map) -> Result<Done, Stop>,
    ) -> Result<(), Stop> {
        edit_below(&mut self.root, place, answers, edit).map(drop)
    }
}

impl Dir {
    pub(crate) fn touch(&mut self, now: i64) {
        self.meta.modified_ns = now;
        self.meta.changed_ns = now;
    }
}

type Edit<'a> = &'a mut dyn FnMut(&mut Dir, &mut Map) -> Result<Done, Stop>;

/// Calls itself for every directory on the way, so what else there is to do
/// has functions of its own: their variables would lie on the stack as often.
fn edit_below(
    dir: &mut Arc<Dir>,
    place: &[u8],
    answers: &Answers,
    edit: Edit,
) -> Result<Done, Stop> {
    let dir = Arc::make_mut(dir);
    let done = match &mut dir.entries {
        Entries::Here(_) if place.is_empty() => edit_here(dir, edit),
        Entries::Here(map) => descend(map, place, answers, edit),
        Entries::Lazy(_) => edit_listed(dir, place, answers, edit),
    }?;
    dir.weight.add(done.delta);
    dir.depth = dir.depth.max(done.levels);
    Ok(done)
}

/// Edits the directory at a place below one with these names.
fn descend(map: &mut Map, place: &[u8], answers: &Answers, edit: Edit) -> Result<Done, Stop> {
    let cut = place.iter().position(|byte| *byte == b'/').unwrap_or(place.len());
    let rest = place.get(cut + 1..).unwrap_or_default();
    match map.get_mut(&place[..cut]) {
        Some(Entry::Dir(next)) => {
            let mut done = edit_below(next, rest, answers, edit);
            if let Ok(done) = &mut done {
                done.levels += 1;
            }
            done
        }
        Some(_) => Err(Kind::NotADirectory.into()),
        None => Err(Kind::NotFound.into()),
    }
}

/// Edits a directory whose names are here.
fn edit_here(dir: &mut Dir, edit: Edit) -> Result<Done, Stop> {
    let Entries::Here(map) = &mut dir.entries else { unreachable!("looked at by the caller") };
    let mut map = std::mem::take(map);
    let done = edit(dir, &mut map);
    dir.entries = Entries::Here(map);
    done
}

/// Edits a directory that a source lists. From the first edit on, what it
/// lists belongs to the tree.
fn edit_listed(dir: &mut Dir, place: &[u8], answers: &Answers, edit: Edit) -> Result<Done, Stop> {
    if let Entries::Lazy(lazy) = &dir.entries
        && lazy.is_live()
    {
        return Err(Kind::ReadOnly.into());
    }
    let mut map = answers.entries(dir)?.clone();
    let listed = map.len() as i64;
    let mut done = match place {
        b"" => edit(dir, &mut map)?,
        _ => descend(&mut map, place, answers, edit)?,
    };
    dir.entries = Entries::Here(map);
    done.delta.entries += listed;
    Ok(done)
}
