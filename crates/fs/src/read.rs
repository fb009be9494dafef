//! Looking: nothing here changes anything.

use crate::content::Content;
use crate::entry::{File, Meta};
use crate::error::{FsError, Kind};
use crate::rules::Access;
use crate::source::{Answers, LazyFile, Stop};
use crate::view::{State, Vfs};
use crate::walk::{Found, Last, Reached, Walk, plainly, reached};
use bytes::Bytes;
use fractal_model::EntryKind;
use std::ops::Range;
use std::sync::Arc;

/// What is known about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: EntryKind,
    /// The same for all names of one file, and for nothing else.
    pub inode: u64,
    /// How many names it has.
    pub names: u32,
    /// Bytes of content; of a link, its target's length.
    pub size: u64,
    /// Bytes of content in memory.
    pub held: u64,
    /// Permission bits, owner and times.
    pub meta: Meta,
    /// For compare-and-swap; 0 for anything but files.
    pub version: u64,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name's bytes.
    pub name: crate::Name,
    /// What it is.
    pub kind: EntryKind,
    /// Its inode.
    pub inode: u64,
}

impl State {
    pub(crate) fn find<'a>(
        &'a self,
        path: &'a [u8],
        last: Last,
        answers: &'a Answers,
    ) -> Result<Found<'a>, Stop> {
        Walk::new(&self.top, &self.setup.rules, answers).find(path, last)
    }

    /// What stands at a path, for those who need not know how one gets there.
    #[inline]
    fn reach<'a>(
        &'a self,
        path: &'a [u8],
        last: Last,
        answers: &'a Answers,
    ) -> Result<Reached<'a>, Stop> {
        match plainly(&self.top, &self.setup.rules, path) {
            Some(reached) => Ok(reached),
            None => Ok(self.find(path, last, answers)?.reached()?),
        }
    }

    /// The file at a path, through links.
    #[inline]
    fn file<'a>(&'a self, path: &'a [u8], answers: &'a Answers) -> Result<&'a File, Stop> {
        match self.reach(path, Last::Follow, answers)? {
            Reached::File(file) => Ok(file),
            Reached::Dir(_) => Err(Kind::IsADirectory.into()),
            Reached::Link(_) => Err(Kind::Loop.into()),
        }
    }
}

impl Vfs {
    /// What stands at a path, through a symlink at its end.
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Stat, FsError> {
        self.look(path.as_ref(), Last::Follow)
    }

    /// The same for the symlink itself.
    pub fn lstat(&self, path: impl AsRef<[u8]>) -> Result<Stat, FsError> {
        self.look(path.as_ref(), Last::Keep)
    }

    /// The same without asking a source how large a file is: it is 0 then.
    pub fn lstat_known(&self, path: impl AsRef<[u8]>) -> Result<Stat, FsError> {
        let path = path.as_ref();
        self.reading(path, |state, answers| Ok(known(state.reach(path, Last::Keep, answers)?)))
    }

    fn look(&self, path: &[u8], last: Last) -> Result<Stat, FsError> {
        self.reading(path, |state, answers| stat(state.reach(path, last, answers)?, answers))
    }

    /// Whether a path leads to anything. A source that fails counts as "yes":
    /// it is there, and cannot be read.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> bool {
        !matches!(
            self.stat(path),
            Err(FsError { kind: Kind::NotFound | Kind::NotADirectory | Kind::Loop, .. })
        )
    }

    /// The names in a directory, in order.
    pub fn list(&self, path: impl AsRef<[u8]>) -> Result<Vec<Listed>, FsError> {
        let path = path.as_ref();
        self.reading(path, |state, answers| {
            let found = state.find(path, Last::Follow, answers)?;
            let (dir, rule) = (found.dir()?, found.rule);
            let hidden = |name: &crate::Name| {
                let rule = rule.and_then(|rule| rule.below(name.bytes()));
                rule.and_then(|rule| rule.access) == Some(Access::Hidden)
            };
            let sorted = answers.entries(dir)?.sorted().into_iter();
            let shown = sorted.filter(|(name, _)| rule.is_none() || !hidden(name));
            let listed = shown.map(|(name, entry)| {
                let (kind, inode) = match reached(&state.top, entry) {
                    Reached::Dir(dir) => (EntryKind::Directory, dir.inode),
                    Reached::File(file) => (EntryKind::File, file.inode),
                    Reached::Link(link) => (EntryKind::Symlink, link.inode),
                };
                Listed { name: name.clone(), kind, inode }
            });
            Ok(listed.collect())
        })
    }

    /// The names in a directory with what is known about each, in order.
    pub fn list_stat(&self, path: impl AsRef<[u8]>) -> Result<Vec<(crate::Name, Stat)>, FsError> {
        self.list_with(path.as_ref(), stat)
    }

    /// The same without asking a source for anything but the names: a size
    /// that only it could tell is 0. For those who look at a whole directory
    /// and open few of its files.
    pub fn glance(&self, path: impl AsRef<[u8]>) -> Result<Vec<(crate::Name, Stat)>, FsError> {
        self.list_with(path.as_ref(), |reached, _| Ok(known(reached)))
    }

    fn list_with(
        &self,
        path: &[u8],
        stat: impl Fn(Reached, &Answers) -> Result<Stat, Stop>,
    ) -> Result<Vec<(crate::Name, Stat)>, FsError> {
        self.reading(path, |state, answers| {
            let found = state.find(path, Last::Follow, answers)?;
            let (dir, rule) = (found.dir()?, found.rule);
            let mut out = Vec::new();
            for (name, entry) in answers.entries(dir)?.sorted() {
                let rule = rule.and_then(|rule| rule.below(name.bytes()));
                if rule.and_then(|rule| rule.access) != Some(Access::Hidden) {
                    out.push((name.clone(), stat(reached(&state.top, entry), answers)?));
                }
            }
            Ok(out)
        })
    }

    /// The whole content of a file.
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Bytes, FsError> {
        let path = path.as_ref();
        self.reading(path, |state, answers| answers.bytes(&state.file(path, answers)?.content))
    }

    /// The whole content of a file and the version to give to
    /// [`Vfs::write_if`].
    pub fn read_version(&self, path: impl AsRef<[u8]>) -> Result<(Bytes, u64), FsError> {
        let path = path.as_ref();
        self.reading(path, |state, answers| {
            let file = state.file(path, answers)?;
            Ok((answers.bytes(&file.content)?, file.version))
        })
    }

    /// The part of a file that lies in `range`; less than asked for at its
    /// end.
    pub fn read_range(&self, path: impl AsRef<[u8]>, range: Range<u64>) -> Result<Bytes, FsError> {
        let path = path.as_ref();
        let part = self.reading(path, |state, answers| {
            Ok(match &state.file(path, answers)?.content {
                Content::Lazy(lazy) => Part::Lazy(lazy.clone()),
                content => Part::Here(content.range(range.clone())),
            })
        })?;
        match part {
            Part::Here(bytes) => Ok(bytes),
            Part::Lazy(lazy) => {
                lazy.range(range, self, &self.who()).map_err(|fault| fault.at(path))
            }
        }
    }

    /// Where in a file there is data; the rest are holes.
    pub fn extents(&self, path: impl AsRef<[u8]>) -> Result<Vec<Range<u64>>, FsError> {
        let path = path.as_ref();
        self.reading(path, |state, answers| {
            let found = state.find(path, Last::Follow, answers)?;
            let content = &found.file()?.content;
            match content.len() {
                Some(_) => Ok(content.extents()),
                // Nobody knows how much there is until it is made.
                None => Ok(answers.content(content)?.extents()),
            }
        })
    }

    /// Where a symlink leads, as it was written.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, FsError> {
        let path = path.as_ref();
        self.reading(path, |state, answers| {
            match state.find(path, Last::Keep, answers)?.reached()? {
                Reached::Link(link) => Ok(link.target.to_vec()),
                _ => Err(Kind::Invalid.into()),
            }
        })
    }

    /// The path without links and dots; the last name need not be there.
    pub fn resolve(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, FsError> {
        let path = path.as_ref();
        self.reading(path, |state, answers| {
            let found = state.find(path, Last::Follow, answers)?;
            if found.entry.is_some() {
                found.reached()?;
            }
            Ok([b"/", &found.place()[..]].concat())
        })
    }
}

enum Part {
    Here(Bytes),
    Lazy(Arc<LazyFile>),
}

/// Asks the source for a file whose size is not known otherwise.
fn stat(reached: Reached, answers: &Answers) -> Result<Stat, Stop> {
    match reached {
        Reached::File(file) if file.content.len().is_none() => {
            let size = answers.content(&file.content)?.len().unwrap_or(0);
            Ok(Stat { size, ..known(reached) })
        }
        reached => Ok(known(reached)),
    }
}

/// What the tree knows by itself.
pub(crate) fn known(reached: Reached) -> Stat {
    match reached {
        // One name, as filesystems say that do not count: a 2 would tell
        // `find` that there are no directories below.
        Reached::Dir(dir) => Stat {
            kind: EntryKind::Directory,
            inode: dir.inode,
            names: 1,
            size: 0,
            held: 0,
            meta: dir.meta,
            version: 0,
        },
        Reached::File(file) => Stat {
            kind: EntryKind::File,
            inode: file.inode,
            names: file.names,
            size: file.content.len().unwrap_or(0),
            held: file.content.held(),
            meta: file.meta,
            version: file.version,
        },
        Reached::Link(link) => Stat {
            kind: EntryKind::Symlink,
            inode: link.inode,
            names: 1,
            size: link.target.len() as u64,
            held: 0,
            meta: link.meta,
            version: 0,
        },
    }
}
