//! From an inode to an operation on the view.
//!
//! Every operation is given a path and the inode that it must lead to. Where
//! it does not, something was moved: inside of the mount the table will know
//! in a moment, outside of it the kernel holds something that is gone.

use super::attr::{attr, errno, errno_of};
use super::outside::{Answering, Outside};
use super::table::{Place, ROOT, Table, Where};
use crate::error::{FsError, Kind};
use crate::read::Stat;
use crate::source::Freshness;
use crate::{Gone, Name, NewMeta, Vfs};
use fuser::{Errno, FileAttr, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// How long the kernel may remember what nobody else changes; it is told when
/// somebody does.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// How long something that is being moved is looked for, in tries.
const TRIES_MAX: u32 = 10_000;

pub(crate) struct Server {
    pub(crate) view: Vfs,
    /// Files without a name that are still open.
    pub(crate) attic: Vfs,
    pub(crate) table: Arc<Table>,
    pub(crate) outside: Arc<Outside>,
    /// Files of live sources are asked for at every opening, so the kernel
    /// has to say when it opens one.
    pub(crate) says_opens: bool,
}

/// What is to be told, and for how long it may be remembered.
pub(crate) struct Answer {
    pub(crate) attr: FileAttr,
    pub(crate) remember: Duration,
}

impl Server {
    pub(crate) fn new(view: Vfs, table: Arc<Table>, outside: Arc<Outside>) -> Server {
        let attic = Vfs::new(view.limits());
        let says_opens = view.mounts().iter().any(|mount| is_live(mount.freshness));
        Server { view, attic, table, outside, says_opens }
    }

    /// For how long an answer about a path may be remembered.
    pub(crate) fn remember(&self, path: &[u8], answering: &Answering) -> Duration {
        if !answering.holds() {
            return Duration::ZERO;
        }
        self.live(path).unwrap_or(REMEMBERED)
    }

    /// How long the live source at a path holds its answers, if there is one.
    pub(crate) fn live(&self, path: &[u8]) -> Option<Duration> {
        live(&self.view, path)
    }

    /// Does something with an inode, wherever it is.
    pub(crate) fn on<T>(
        &self,
        inode: u64,
        mut work: impl FnMut(&Vfs, &[u8]) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        for turn in 0..TRIES_MAX {
            let moves = self.table.moves();
            let paths = match self.table.find(inode).map_err(errno_of)? {
                Where::Named(paths) => paths,
                Where::Attic => {
                    return work(&self.attic, &attic_path(inode)).map_err(|error| errno(&error));
                }
                Where::Ended(_) => return Err(Errno::ENOENT),
            };
            for path in &paths {
                let done = match inode {
                    ROOT => work(&self.view, path),
                    _ => work(&self.view.given([(&path[..], inode)]), path),
                };
                match done {
                    Err(error) if error.kind == Kind::Changed => {}
                    done => return done.map_err(|error| errno(&error)),
                }
            }
            if !self.look_again(moves, turn) && !self.find_again(inode, turn) {
                break;
            }
        }
        Err(errno_of(Kind::Changed))
    }

    /// Does something with a name in a directory.
    pub(crate) fn at<T>(
        &self,
        dir: u64,
        name: &OsStr,
        work: impl Fn(&Vfs, &[u8]) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        self.at_two([(dir, name), (dir, name)], |view, [path, _]| work(view, path))
    }

    /// Does something with two names in directories.
    pub(crate) fn at_two<T>(
        &self,
        names: [(u64, &OsStr); 2],
        work: impl Fn(&Vfs, [&[u8]; 2]) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        for turn in 0..TRIES_MAX {
            let moves = self.table.moves();
            let placed = |(dir, name)| self.dir_path(dir).map(|path| (dir, path, name));
            let (one, two) = (placed(names[0])?, placed(names[1])?);
            let dirs = [&one, &two].into_iter().filter(|(dir, ..)| *dir != ROOT);
            let view = self.view.given(dirs.map(|(dir, path, _)| (&path[..], *dir)));
            let [from, to] = [&one, &two].map(|(_, path, name)| join(path, name));
            match work(&view, [&from, &to]) {
                Err(error) if error.kind == Kind::Changed => {
                    if !self.look_again(moves, turn) {
                        return Err(errno(&error));
                    }
                }
                done => return done.map_err(|error| errno(&error)),
            }
        }
        Err(errno_of(Kind::Changed))
    }

    fn dir_path(&self, dir: u64) -> Result<Vec<u8>, Errno> {
        match self.table.find(dir).map_err(errno_of)? {
            Where::Named(paths) => paths.into_iter().next().ok_or(errno_of(Kind::Changed)),
            Where::Attic => Err(Errno::ENOTDIR),
            Where::Ended(_) => Err(Errno::ENOENT),
        }
    }

    /// Whether the table may have been out of date; waits a little for it.
    fn look_again(&self, (moved, moving): (u64, bool), turn: u32) -> bool {
        if turn > 10 {
            std::thread::sleep(Duration::from_micros(50));
        }
        moving || self.table.moves() != (moved, moving)
    }

    /// Looks for another name of a file with several. One name is enough: if
    /// the next try finds it gone too, it is looked for anew.
    fn find_again(&self, inode: u64, turn: u32) -> bool {
        let Some(path) = self.view.name_of(inode).filter(|_| turn < 10) else { return false };
        let Some(shown) = self.table.shown(&path) else { return false };
        let cut = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let (dir, name) = (&path[..cut(&path)], &path[cut(&path) + 1..]);
        let dir = match cut(&shown) {
            0 => Ok(ROOT),
            _ => self.view.lstat(dir).map(|stat| stat.inode),
        };
        let (Ok(dir), Ok(name)) = (dir, Name::new(name)) else { return false };
        self.table.found(inode, (dir, name));
        true
    }

    /// What is known about an inode.
    pub(crate) fn stat(&self, inode: u64) -> Result<(Stat, Vec<u8>), Errno> {
        match self.table.find(inode).map_err(errno_of)? {
            Where::Attic => {
                let path = attic_path(inode);
                let stat = self.attic.lstat(&path).map_err(|error| errno(&error))?;
                Ok((Stat { names: 0, ..stat }, path))
            }
            Where::Ended(stat) => Ok((Stat { names: 0, ..*stat }, Vec::new())),
            Where::Named(_) => self.on(inode, |view, path| Ok((view.lstat(path)?, path.to_vec()))),
        }
    }

    /// The answer about an inode that the kernel knows already.
    pub(crate) fn about(&self, inode: u64) -> Result<Answer, Errno> {
        let answering = self.outside.answering();
        let (stat, path) = self.stat(inode)?;
        self.table.told(inode, &stat);
        Ok(Answer { attr: attr(inode, &stat), remember: self.remember(&path, &answering) })
    }

    /// The answer about a name, which the kernel will then know.
    pub(crate) fn tell(&self, dir: u64, name: &OsStr) -> Result<Answer, Errno> {
        let answering = self.outside.answering();
        let place = (dir, checked(name)?);
        let (stat, path) =
            self.at(dir, name, |view, path| Ok((view.lstat(path)?, path.to_vec())))?;
        self.table.tell(&stat, place);
        let remember = self.remember(&path, &answering);
        Ok(Answer { attr: attr(stat.inode, &stat), remember })
    }

    /// For how long the kernel may remember that a name is not there.
    pub(crate) fn tell_missing(&self, dir: u64, name: &OsStr) -> Duration {
        let answering = self.outside.answering();
        // Noted first and looked at again then: whoever makes it in between
        // finds the note.
        let Ok(place) = checked(name).map(|name| (dir, name)) else { return Duration::ZERO };
        if !self.table.tell_missing(place.clone()) {
            return Duration::ZERO;
        }
        match self.at(dir, name, |view, path| Ok((view.lstat(path), path.to_vec()))) {
            Ok((Err(error), path)) if error.kind == Kind::NotFound => {
                self.remember(&path, &answering)
            }
            _ => {
                self.table.present(&place);
                Duration::ZERO
            }
        }
    }

    /// Makes something as the program that asks for it, and tells of it.
    pub(crate) fn make(
        &self,
        request: &Request,
        dir: u64,
        name: &OsStr,
        make: impl Fn(&Vfs, &[u8], &Stat) -> Result<(), FsError>,
    ) -> Result<Answer, Errno> {
        self.table.present(&(dir, checked(name)?));
        let (above, _) = self.stat(dir)?;
        // In a directory with the set-gid bit, its group is handed down.
        let handed = above.meta.mode & 0o2000 != 0;
        let gid = if handed { above.meta.gid } else { request.gid() };
        let owner = NewMeta { uid: Some(request.uid()), gid: Some(gid), ..NewMeta::default() };
        self.at(dir, name, |view, path| {
            make(view, path, &above)?;
            // Where new things may be made and not changed, they belong to
            // the view's owner.
            match view.set_meta(path, owner) {
                Err(error) if matches!(error.kind, Kind::Denied | Kind::ReadOnly) => Ok(()),
                done => done,
            }
        })?;
        self.tell(dir, name)
    }

    /// Keeps a file that lost its last name for those who have it open.
    pub(crate) fn unnamed(&self, gone: &Gone, place: &Place) {
        self.table.unnamed(gone.inode, place);
        // Without room in the attic, whoever has it open is told ESTALE.
        if let Ok(true) = self.attic.adopt(attic_path(gone.inode), gone)
            && !self.table.ended(gone.inode, None)
        {
            self.clear(gone.inode);
        }
    }

    /// Takes a file from the attic.
    pub(crate) fn clear(&self, inode: u64) {
        // It is there, and nothing forbids anything in the attic.
        self.attic.remove_file(attic_path(inode)).unwrap_or_default();
    }
}

/// How long the live source at a path of a view holds its answers.
pub(crate) fn live(view: &Vfs, path: &[u8]) -> Option<Duration> {
    let holds = |mount: crate::Mount| match mount.freshness {
        Freshness::Live(age) => {
            let at = mount.path.relative();
            let below = path.get(1..)?.strip_prefix(at)?;
            (below.is_empty() || below[0] == b'/').then_some(age)
        }
        Freshness::Frozen => None,
    };
    view.mounts().into_iter().filter_map(holds).min()
}

fn is_live(freshness: Freshness) -> bool {
    matches!(freshness, Freshness::Live(_))
}

/// A name that may stand in a directory.
pub(crate) fn checked(name: &OsStr) -> Result<Name, Errno> {
    Name::new(name.as_bytes()).map_err(|fault| errno_of(fault.kind))
}

fn attic_path(inode: u64) -> Vec<u8> {
    format!("/{inode}").into_bytes()
}

fn join(dir: &[u8], name: &OsStr) -> Vec<u8> {
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    [dir, b"/", name.as_bytes()].concat()
}
