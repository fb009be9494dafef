//! The three-way check, path by path: conflict is defined by value.
//!
//! Ours is what the sandbox shows, theirs what the target holds now, and the
//! base what the sandbox started from. Where the base is a sealed layer it is
//! simply read; where it is the live host, the notes taken at the end of each
//! run tell what it was.

use crate::apply::{Content, New, Noted, Seen, Step, What, digest_of_attributes};
use crate::base::{Count, Kept, Notes};
use crate::merge::{self, merge};
use fractal_jail::layer::{Attributes, Entry, Reader, Source, View, same_content};
use fractal_model::{Applied, ChangeKind, Conflict, EntryKind, Result, SandboxPath};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

/// The three trees, and what is known about the one that may have moved.
pub struct Sides<'a> {
    pub base: Side<'a>,
    pub ours: Side<'a>,
    pub theirs: Side<'a>,
    /// Set where the target is the host.
    pub live: Option<Live<'a>>,
    /// Whether owners can be set in the target.
    pub keep_owner: bool,
    /// What is known of directories that the target turned into something
    /// else; empty at first.
    pub turned: RefCell<HashMap<SandboxPath, Option<Conflict>>>,
}

/// One tree, looked at path by path in the order of a walk.
pub struct Side<'a> {
    pub view: &'a View,
    reader: RefCell<Reader<'a>>,
}

impl<'a> From<&'a View> for Side<'a> {
    fn from(view: &'a View) -> Side<'a> {
        Side { view, reader: RefCell::new(view.reader()) }
    }
}

impl Side<'_> {
    fn lookup(&self, path: &SandboxPath) -> Result<Option<Entry>> {
        Ok(self.reader.borrow_mut().lookup(path)?)
    }

    fn open_file(&self, path: &SandboxPath) -> Result<File> {
        Ok(self.reader.borrow_mut().open_file(path)?)
    }

    /// What programs noted there.
    fn attributes(&self, path: &SandboxPath) -> Result<Attributes> {
        Ok(self.reader.borrow_mut().attributes(path)?)
    }
}

/// A base that is the target itself.
pub struct Live<'a> {
    pub notes: &'a Notes,
    /// Every run of the sandbox was noted to its end.
    pub complete: bool,
    /// Below here everything was noted.
    pub project: SandboxPath,
    /// The host's file clock at the fork.
    pub marker_ns: i64,
}

/// What is to become of one path.
pub enum Weighed {
    /// Nothing: both agree.
    Skip,
    /// Nothing to bring: the sandbox has what the base had, and only the
    /// target moved.
    OnlyTheirs,
    /// Ours is to be brought.
    Take(Wish),
    /// Both changed it.
    Clash(Clash),
}

/// One path that both changed; a person may choose a side.
pub struct Clash {
    pub conflict: Conflict,
    pub ours: Wish,
}

/// A path, what the target has there, and what it shall have.
#[derive(Clone)]
pub struct Wish {
    pub path: SandboxPath,
    pub theirs: Option<Entry>,
    pub new: Option<New>,
    pub merged: bool,
}

impl Wish {
    pub fn kind(&self) -> ChangeKind {
        match (&self.theirs, &self.new) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Deleted,
            _ => ChangeKind::Modified,
        }
    }

    pub fn applied(&self) -> Applied {
        Applied { path: self.path.to_string(), kind: self.kind(), merged: self.merged }
    }

    pub fn step(&self) -> Step {
        Step { path: self.path.clone(), old: self.theirs.as_ref().map(seen), new: self.new.clone() }
    }

    /// Whether it takes a directory away, or puts something else in its place.
    pub fn ends_directory(&self) -> bool {
        let was = self.theirs.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory);
        was && !self.new.as_ref().is_some_and(|new| matches!(new.what, What::Directory))
    }
}

fn seen(entry: &Entry) -> Seen {
    Seen {
        kind: entry.kind,
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        size: entry.size,
        mtime_ns: entry.mtime_ns,
        ctime_ns: entry.ctime_ns,
        inode: entry.inode(),
    }
}

/// How theirs relates to the base.
enum Moved {
    No,
    Yes,
    /// The sandbox has what the base had: whatever happened, it was theirs.
    OnlyTheirs,
}

/// Whose a path is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Ours,
    /// Only the target gave it away.
    Theirs((u32, u32)),
    /// Both did.
    Clash,
}

/// What became of two edits of one text.
enum Merged {
    /// They clash, or one of them is no text.
    No,
    /// Only theirs says something.
    Theirs,
    /// Both are in here.
    Text(New),
}

impl Sides<'_> {
    pub fn weigh(&self, path: &SandboxPath) -> Result<Weighed> {
        let (ours, theirs) = (self.ours.lookup(path)?, self.theirs.lookup(path)?);
        if ours.as_ref().is_some_and(|entry| entry.kind == EntryKind::Special) {
            return Ok(Weighed::Skip);
        }
        if same(&self.ours, ours.as_ref(), &self.theirs, theirs.as_ref(), path)? {
            return Ok(Weighed::Skip);
        }
        let moved = self.moved(path, ours.is_some(), theirs.as_ref())?;
        if matches!(moved, Moved::OnlyTheirs) {
            return Ok(Weighed::OnlyTheirs);
        }
        let settled = |live: &Live<'_>| live.notes.is_promoted(path, ours.as_ref(), self.ours.view);
        if matches!(moved, Moved::Yes) && self.live.as_ref().is_some_and(settled) {
            return Ok(Weighed::OnlyTheirs);
        }
        let new =
            ours.as_ref().map(|entry| self.wanted(path, entry, theirs.as_ref())).transpose()?;
        let wish = Wish { path: path.clone(), theirs, new, merged: false };
        let gives = self.owner(path, ours.as_ref(), wish.theirs.as_ref())?;
        if matches!(moved, Moved::No) && gives != Owner::Clash {
            return Ok(Weighed::Take(wish));
        }
        if let (Some(mine), Some(other), true) = (&ours, &wish.theirs, gives != Owner::Clash) {
            match self.merged(path, mine, other)? {
                // The sandbox is back at what it started from.
                Merged::Theirs => return Ok(Weighed::OnlyTheirs),
                Merged::Text(new) => {
                    return Ok(Weighed::Take(Wish { new: Some(new), merged: true, ..wish }));
                }
                Merged::No => {}
            }
        }
        let why = words(ours.as_ref(), wish.theirs.as_ref()).to_owned();
        let conflict = Conflict { path: path.to_string(), why };
        Ok(Weighed::Clash(Clash { conflict, ours: wish }))
    }

    /// The wish that the sandbox show what the target has at a path.
    pub fn following(&self, path: &SandboxPath) -> Result<Wish> {
        let (ours, theirs) = (self.ours.lookup(path)?, self.theirs.lookup(path)?);
        let new = theirs.as_ref().map(|entry| self.wanted(path, entry, None)).transpose()?;
        // Content and attributes are read where the entry was found.
        let new = new.map(|new| New { noted: None, ..new });
        Ok(Wish { path: path.clone(), theirs: ours, new, merged: false })
    }

    /// The wish that the target have what the sandbox shows at a path,
    /// whatever it has there.
    fn taking(&self, path: &SandboxPath) -> Result<Wish> {
        let (ours, theirs) = (self.ours.lookup(path)?, self.theirs.lookup(path)?);
        let new =
            ours.as_ref().map(|entry| self.wanted(path, entry, theirs.as_ref())).transpose()?;
        Ok(Wish { path: path.clone(), theirs, new, merged: false })
    }

    /// The first directory on the way to a path of ours that is none in the
    /// target any more, though the sandbox did not make it: others took it
    /// away, or put something else there. Nothing of ours can lie in it then.
    pub fn turned(&self, path: &SandboxPath) -> Result<Option<Conflict>> {
        let Some(dir) = path.parent() else { return Ok(None) };
        if let Some(known) = self.turned.borrow().get(&dir) {
            return Ok(known.clone());
        }
        let found = match self.turned(&dir)? {
            Some(above) => Some(above),
            None => self.is_turned(&dir)?,
        };
        self.turned.borrow_mut().insert(dir, found.clone());
        Ok(found)
    }

    fn is_turned(&self, dir: &SandboxPath) -> Result<Option<Conflict>> {
        let why = match self.theirs.lookup(dir)?.map(|entry| entry.kind) {
            Some(EntryKind::Directory) => return Ok(None),
            _ if matches!(self.weigh(dir)?, Weighed::Take(_)) => return Ok(None),
            None => "the sandbox works in this directory, which is gone outside",
            Some(EntryKind::Symlink) => {
                "the sandbox works in this directory, which is a link outside"
            }
            Some(_) => "the sandbox works in this directory, which is a file outside",
        };
        Ok(Some(Conflict { path: dir.to_string(), why: why.to_owned() }))
    }

    /// The wishes that make the directories on the way to a path, where the
    /// target has none.
    pub fn way_to(&self, path: &SandboxPath) -> Result<Vec<Wish>> {
        let mut wishes = Vec::new();
        for dir in std::iter::successors(path.parent(), SandboxPath::parent) {
            let theirs = self.theirs.lookup(&dir)?;
            if theirs.is_none_or(|entry| entry.kind != EntryKind::Directory) {
                wishes.push(self.taking(&dir)?);
            }
        }
        Ok(wishes)
    }

    /// Whether the target's value is no longer the base's.
    fn moved(&self, path: &SandboxPath, shown: bool, theirs: Option<&Entry>) -> Result<Moved> {
        let base = self.base.lookup(path)?;
        let on_host = match &base {
            Some(entry) => entry.source == Source::Host,
            None => theirs.is_none() || self.base.view.layers.is_empty(),
        };
        let Some(live) = self.live.as_ref().filter(|_| on_host) else {
            // A promotion moves what the target holds, not the layers below.
            let noted =
                |live: &Live<'_>| live.notes.is_base(path, theirs, self.theirs.view, Count::Landed);
            let landed = self.live.as_ref().and_then(noted) == Some(true);
            let moved_on = self.live.as_ref().is_some_and(|live| live.notes.has_promoted(path));
            let still =
                landed || !moved_on && same(&self.base, base.as_ref(), &self.theirs, theirs, path)?;
            return Ok(if still { Moved::No } else { Moved::Yes });
        };
        Ok(match live.notes.is_base(path, theirs, self.theirs.view, Count::All) {
            Some(true) => Moved::No,
            Some(false) => Moved::Yes,
            None if live.complete && path.is_within(&live.project) => match shown {
                true => Moved::OnlyTheirs,
                // It came into a directory that the sandbox deleted.
                false => Moved::Yes,
            },
            None => match theirs {
                None => Moved::No,
                Some(entry) if entry.kind == EntryKind::Directory => Moved::No,
                Some(entry) if entry.ctime_ns < live.marker_ns => Moved::No,
                Some(_) => Moved::Yes,
            },
        })
    }

    fn wanted(&self, path: &SandboxPath, entry: &Entry, theirs: Option<&Entry>) -> Result<New> {
        let what = match entry.kind {
            EntryKind::Directory => What::Directory,
            EntryKind::Symlink => What::Symlink(entry.target.clone().unwrap_or_default()),
            _ => {
                let keeps = match theirs {
                    Some(old) if old.kind == EntryKind::File => {
                        same_noted(&self.ours, &self.theirs, path)?
                            && same_bytes(&self.ours, &self.theirs, path)?
                    }
                    _ => false,
                };
                What::File(if keeps { Content::Same } else { Content::View })
            }
        };
        let noted = match entry.kind {
            EntryKind::Directory => self.noted(path, theirs)?,
            _ => None,
        };
        let owner = match self.owner(path, Some(entry), theirs)? {
            Owner::Theirs(owner) => owner,
            Owner::Ours | Owner::Clash => (entry.uid, entry.gid),
        };
        Ok(New {
            mode: entry.mode,
            owner: self.keep_owner.then_some(owner),
            mtime_ns: entry.mtime_ns,
            noted,
            what,
        })
    }

    /// Whose a path is to be: what only one side changed counts.
    fn owner(
        &self,
        path: &SandboxPath,
        ours: Option<&Entry>,
        theirs: Option<&Entry>,
    ) -> Result<Owner> {
        let (Some(ours), Some(theirs), true) = (ours, theirs, self.keep_owner) else {
            return Ok(Owner::Ours);
        };
        let [ours, theirs] = [ours, theirs].map(|entry| (entry.uid, entry.gid));
        if ours == theirs {
            return Ok(Owner::Ours);
        }
        let base = match self.base.lookup(path)? {
            Some(entry) if entry.source != Source::Host => Some((entry.uid, entry.gid)),
            _ => self.live.as_ref().and_then(|live| live.notes.owner(path)),
        };
        // Of what was noted before owners were, ours is all that is known.
        let Some(base) = base.filter(|base| *base != theirs) else {
            return Ok(Owner::Ours);
        };
        Ok(if ours == base { Owner::Theirs(theirs) } else { Owner::Clash })
    }

    /// Attributes of a directory, where the target's are others.
    fn noted(&self, path: &SandboxPath, theirs: Option<&Entry>) -> Result<Option<Noted>> {
        let is_dir = theirs.is_some_and(|entry| entry.kind == EntryKind::Directory);
        let old = if is_dir { self.theirs.attributes(path)? } else { Attributes::default() };
        let new = self.ours.attributes(path)?;
        Ok((old != new).then_some(Noted { old, new }))
    }

    /// Both sides' edits of one text, joined.
    fn merged(&self, path: &SandboxPath, ours: &Entry, theirs: &Entry) -> Result<Merged> {
        if ours.kind != EntryKind::File || theirs.kind != EntryKind::File {
            return Ok(Merged::No);
        }
        let Some(base) = self.base_content(path)? else { return Ok(Merged::No) };
        let (Some(mine), Some(other)) = (read(&self.ours, path), read(&self.theirs, path)) else {
            return Ok(Merged::No);
        };
        let Some(text) = merge(&base.text, &mine, &other) else { return Ok(Merged::No) };
        let (noted, others) = (self.ours.attributes(path)?, self.theirs.attributes(path)?);
        let Some(noted) = one_of(&base.attributes, noted, &others) else { return Ok(Merged::No) };
        let mode = match ours.mode == base.mode {
            true => theirs.mode,
            false if theirs.mode == base.mode || theirs.mode == ours.mode => ours.mode,
            // Nobody's edit of the rights is overruled.
            false => return Ok(Merged::No),
        };
        if text == other && mode == theirs.mode && noted == others {
            return Ok(Merged::Theirs);
        }
        let noted = Some(Noted::fresh(noted));
        let owner = match self.owner(path, Some(ours), Some(theirs))? {
            Owner::Theirs(owner) => owner,
            Owner::Ours | Owner::Clash => (ours.uid, ours.gid),
        };
        let owner = self.keep_owner.then_some(owner);
        let what = What::File(Content::Bytes(text));
        let mtime_ns = ours.mtime_ns.max(theirs.mtime_ns);
        Ok(Merged::Text(New { mode, owner, mtime_ns, noted, what }))
    }

    fn base_content(&self, path: &SandboxPath) -> Result<Option<Kept>> {
        let noted = |count| self.live.as_ref().and_then(|live| live.notes.content(path, count));
        match self.base.lookup(path)? {
            Some(entry) if entry.source != Source::Host => {
                let attributes = digest_of_attributes(&self.base.attributes(path)?);
                let kept = |text| Kept { text, mode: entry.mode, attributes };
                Ok(noted(Count::Landed).or_else(|| read(&self.base, path).map(kept)))
            }
            _ => Ok(noted(Count::All)),
        }
    }
}

/// Whether two trees hold the same at a path.
fn same(
    a_side: &Side<'_>,
    a: Option<&Entry>,
    b_side: &Side<'_>,
    b: Option<&Entry>,
    path: &SandboxPath,
) -> Result<bool> {
    match (a, b) {
        (None, None) => Ok(true),
        (Some(a), Some(b)) => Ok(a.inode() == b.inode()
            || a.same_but_content(b)
                && (a.kind != EntryKind::File || same_bytes(a_side, b_side, path)?)
                && (a.kind == EntryKind::Symlink || same_noted(a_side, b_side, path)?)),
        _ => Ok(false),
    }
}

fn same_noted(a: &Side<'_>, b: &Side<'_>, path: &SandboxPath) -> Result<bool> {
    Ok(a.attributes(path)? == b.attributes(path)?)
}

/// The attributes that remain of two edits of one file; the digest is of those
/// that both started from. `None` where both say something else.
fn one_of(base: &str, ours: Attributes, theirs: &Attributes) -> Option<Attributes> {
    if ours == *theirs || digest_of_attributes(theirs) == base {
        return Some(ours);
    }
    (digest_of_attributes(&ours) == base).then(|| theirs.clone())
}

fn same_bytes(a: &Side<'_>, b: &Side<'_>, path: &SandboxPath) -> Result<bool> {
    let (a, b) = (a.open_file(path)?, b.open_file(path)?);
    let mut no_bound = u64::MAX;
    let same = same_content(&a, &b, &mut no_bound).map_err(|error| {
        fractal_model::Error::internal(format!("cannot compare {path}: {error}"))
    })?;
    Ok(same.unwrap_or(false))
}

fn read(side: &Side<'_>, path: &SandboxPath) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let bound = merge::BYTES_MAX as u64 + 1;
    side.open_file(path).ok()?.take(bound).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn words(ours: Option<&Entry>, theirs: Option<&Entry>) -> &'static str {
    match (ours, theirs) {
        (Some(_), Some(_)) => "changed in the sandbox, and differently outside since the fork",
        (Some(_), None) => "changed in the sandbox, deleted outside since the fork",
        (None, _) => "deleted in the sandbox, changed or made outside since the fork",
    }
}
