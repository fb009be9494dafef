//! From a path to an entry, as a kernel does it: component by component,
//! through symlinks, never above the root.
//!
//! `..` at the root stays there and an absolute link starts at the view's
//! root, so there is no path that leads out; there is no other place to go.

use crate::entry::{Dir, Entries, Entry, File, Link};
use crate::error::{Fault, Kind};
use crate::name::NAME_BYTES_MAX;
use crate::rules::{Access, Need, Rule, Rules};
use crate::source::{Answers, Stop};
use crate::tree::Tree;
use smallvec::SmallVec;

/// The longest path that is taken, as Linux has it.
pub const PATH_BYTES_MAX: usize = 4096;

const LINKS_MAX: u32 = 40;

/// What to do with a symlink at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    /// The link itself, unless a slash comes after it.
    Keep,
    /// The name in its directory, whatever it is: for making, moving and
    /// removing it.
    Name,
}

#[derive(Clone, Copy)]
struct Standing<'a> {
    dir: &'a Dir,
    rule: Option<&'a Rule>,
    access: Access,
}

/// Where a walk ended.
pub(crate) struct Found<'a> {
    /// The names on the way, without links and dots; none for the root.
    names: SmallVec<[&'a [u8]; 12]>,
    pub(crate) entry: Option<Reached<'a>>,
    /// What may be done with the entry.
    pub(crate) access: Access,
    /// What may be done in the directory that holds it.
    pub(crate) around: Access,
    pub(crate) rule: Option<&'a Rule>,
    /// A slash at the end of the path insists on a directory.
    pub(crate) slash: bool,
    /// The directory comes from a source that is asked again and again.
    pub(crate) live: bool,
}

/// A path as it is in the tree: without links, dots and a leading slash,
/// empty for the root.
pub(crate) type Place = SmallVec<[u8; 128]>;

/// The directory and the last name of a place.
pub(crate) fn split(place: &[u8]) -> (&[u8], &[u8]) {
    match place.iter().rposition(|byte| *byte == b'/') {
        Some(cut) => (&place[..cut], &place[cut + 1..]),
        None => (&[], place),
    }
}

/// An entry; files with several names are looked up.
#[derive(Clone, Copy)]
pub(crate) enum Reached<'a> {
    Dir(&'a Dir),
    File(&'a File),
    Link(&'a Link),
}

pub(crate) struct Walk<'a> {
    tree: &'a Tree,
    answers: &'a Answers,
    stack: SmallVec<[Standing<'a>; 12]>,
    /// The names of the directories on the stack, without the root.
    names: SmallVec<[&'a [u8]; 12]>,
    links: u32,
    /// The path, or a link that stood for it, ends with a slash.
    slash: bool,
}

/// Where the walk stands after some components.
enum At<'a> {
    /// In the directory on top of the stack.
    Dir,
    /// At a name in it that is no directory, or not there.
    Name(&'a [u8], Option<&'a Entry>),
}

impl<'a> Walk<'a> {
    pub(crate) fn new(tree: &'a Tree, rules: &'a Rules, answers: &'a Answers) -> Walk<'a> {
        let access = rules.root.access.unwrap_or(Access::Writable);
        let root = Standing { dir: &tree.root, rule: Some(&rules.root), access };
        let stack = SmallVec::from_iter([root]);
        Walk { tree, answers, stack, names: SmallVec::new(), links: 0, slash: false }
    }

    /// What stands at `path`; `entry` is `None` if only the last name is
    /// missing.
    pub(crate) fn find(mut self, path: &'a [u8], last: Last) -> Result<Found<'a>, Stop> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Kind::NameTooLong.into());
        }
        if path.contains(&0) {
            return Err(Kind::Invalid.into());
        }
        let follow = match last {
            Last::Follow => true,
            Last::Keep => path.ends_with(b"/"),
            Last::Name => false,
        };
        let at = self.go(path, follow)?;
        let slash = self.slash;
        let top = self.top();
        let live = self.is_live();
        match at {
            At::Dir => {
                let around = self.stack.iter().nth_back(1).map_or(top.access, |dir| dir.access);
                let entry = Some(Reached::Dir(top.dir));
                let (access, rule) = (top.access, top.rule);
                let names = self.names;
                Ok(Found { names, entry, access, around, rule, slash, live })
            }
            At::Name(name, entry) => {
                let rule = top.rule.and_then(|rule| rule.below(name));
                let access = rule.and_then(|rule| rule.access).unwrap_or(top.access);
                self.names.push(name);
                let entry = entry.filter(|_| access != Access::Hidden);
                let entry = entry.map(|entry| reached(self.tree, entry));
                let around = top.access;
                let names = self.names;
                Ok(Found { names, entry, access, around, rule, slash, live })
            }
        }
    }

    fn top(&self) -> Standing<'a> {
        *self.stack.last().expect("the root is never left")
    }

    fn is_live(&self) -> bool {
        match &self.top().dir.entries {
            Entries::Lazy(lazy) => lazy.is_live(),
            Entries::Here(_) => false,
        }
    }

    fn ascend(&mut self) {
        if self.names.pop().is_some() {
            self.stack.pop();
        }
    }

    fn go(&mut self, path: &'a [u8], follow: bool) -> Result<At<'a>, Stop> {
        if path.first() == Some(&b'/') {
            self.stack.truncate(1);
            self.names.clear();
        }
        let names = path.split(|byte| *byte == b'/');
        let mut names = names.filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            let last = names.peek().is_none();
            match name {
                b"." => continue,
                b".." => {
                    self.ascend();
                    continue;
                }
                _ => {}
            }
            if name.len() > NAME_BYTES_MAX {
                return Err(Kind::NameTooLong.into());
            }
            match self.step(name)? {
                Some(Entry::Dir(_)) => {}
                Some(Entry::Link(link)) if !last || follow => match self.follow(link)? {
                    At::Dir => {}
                    at if last => {
                        self.slash |= path.ends_with(b"/");
                        return Ok(at);
                    }
                    At::Name(_, Some(_)) => return Err(Kind::NotADirectory.into()),
                    At::Name(_, None) => return Err(Kind::NotFound.into()),
                },
                entry if last => {
                    self.slash |= path.ends_with(b"/");
                    return Ok(At::Name(name, entry));
                }
                Some(_) => return Err(Kind::NotADirectory.into()),
                None => return Err(Kind::NotFound.into()),
            }
        }
        Ok(At::Dir)
    }

    /// One name further: directories are entered, anything else returned.
    fn step(&mut self, name: &'a [u8]) -> Result<Option<&'a Entry>, Stop> {
        let top = self.top();
        let entry = self.answers.entry(top.dir, name)?;
        if let Some(Entry::Dir(dir)) = entry {
            let rule = top.rule.and_then(|rule| rule.below(name));
            let access = rule.and_then(|rule| rule.access).unwrap_or(top.access);
            // Below a hidden directory another rule may show something.
            if access == Access::Hidden && rule.is_none_or(|rule| rule.below.is_empty()) {
                return Ok(None);
            }
            self.stack.push(Standing { dir, rule, access });
            self.names.push(name);
        }
        Ok(entry)
    }

    fn follow(&mut self, link: &'a Link) -> Result<At<'a>, Stop> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Kind::Loop.into());
        }
        self.go(&link.target, true)
    }
}

/// Where most paths lead: from the root through directories in memory to an
/// entry that is no link, where no rule says anything. `None` for all others,
/// also for what is not there; [`Walk`] knows.
#[inline]
pub(crate) fn plainly<'a>(tree: &'a Tree, rules: &Rules, path: &[u8]) -> Option<Reached<'a>> {
    if !rules.is_silent() {
        return None;
    }
    let mut at = Reached::Dir(&tree.root);
    // No directory has the names `.` and `..` and the empty one, so that only
    // paths that need no thought get through.
    for name in path.strip_prefix(b"/")?.split(|byte| *byte == b'/') {
        let Reached::Dir(Dir { entries: Entries::Here(map), .. }) = at else { return None };
        at = match map.get(name)? {
            Entry::Link(_) => return None,
            entry => reached(tree, entry),
        };
    }
    Some(at)
}

#[inline]
pub(crate) fn reached<'a>(tree: &'a Tree, entry: &'a Entry) -> Reached<'a> {
    match entry {
        Entry::Dir(dir) => Reached::Dir(dir),
        Entry::File(file) => Reached::File(file),
        Entry::Link(link) => Reached::Link(link),
        Entry::Shared(inode) => {
            Reached::File(&tree.shared.get(inode).expect("every name of it keeps it").0)
        }
    }
}

impl<'a> Found<'a> {
    /// The entry, if it is there and may be looked at.
    pub(crate) fn reached(&self) -> Result<Reached<'a>, Fault> {
        self.access.check(Need::Read)?;
        let reached = self.entry.ok_or(Fault::new(Kind::NotFound))?;
        match reached {
            Reached::File(_) | Reached::Link(_) if self.slash => {
                Err(Fault::new(Kind::NotADirectory))
            }
            reached => Ok(reached),
        }
    }

    pub(crate) fn dir(&self) -> Result<&'a Dir, Fault> {
        match self.reached()? {
            Reached::Dir(dir) => Ok(dir),
            _ => Err(Fault::new(Kind::NotADirectory)),
        }
    }

    pub(crate) fn file(&self) -> Result<&'a File, Fault> {
        match self.reached()? {
            Reached::File(file) => Ok(file),
            Reached::Dir(_) => Err(Fault::new(Kind::IsADirectory)),
            Reached::Link(_) => Err(Fault::new(Kind::Loop)),
        }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.names.is_empty()
    }

    /// Where it is in the tree.
    pub(crate) fn place(&self) -> Place {
        let mut place = Place::new();
        for name in &self.names {
            if !place.is_empty() {
                place.push(b'/');
            }
            place.extend_from_slice(name);
        }
        place
    }

    /// The same, done with looking.
    pub(crate) fn into_place(self) -> Place {
        self.place()
    }
}
