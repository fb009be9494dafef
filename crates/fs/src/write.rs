//! Changing: files, directories, links and names. What is known about them is
//! changed in `about`.
//!
//! Every operation finds, checks, then edits, all under one lock. An error
//! means that nothing has changed.

use crate::content::{BLOCK_BYTES, Content};
use crate::entry::{Dir, Entry, File, Link, Meta, SharedFile, number};
use crate::error::{Fault, FsError, Kind};
use crate::rules::Need;
use crate::source::{Answers, Stop};
use crate::tree::Gone;
use crate::view::{State, Vfs, now_ns};
use crate::walk::{Found, Last, PATH_BYTES_MAX, Place, Reached, plainly};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

impl State {
    fn meta(&self, mode: u32, now: i64) -> Meta {
        let (uid, gid) = self.setup.owner;
        Meta { mode, uid, gid, modified_ns: now, changed_ns: now }
    }
}

/// How many dots the last component is, if it is nothing else.
fn last_is_dots(path: &[u8]) -> Option<usize> {
    let mut names = path.rsplit(|byte| *byte == b'/').filter(|name| !name.is_empty());
    match names.next() {
        Some(b".") => Some(1),
        Some(b"..") => Some(2),
        _ => None,
    }
}

/// Whether a new name may be made where a walk ended.
pub(crate) fn check_new(found: &Found) -> Result<(), Fault> {
    if found.live {
        return Err(Fault::new(Kind::ReadOnly));
    }
    found.around.check(Need::Create)?;
    found.access.check(Need::Create)
}

/// Whether the name may be taken from its directory, with all below it.
pub(crate) fn check_gone(found: &Found) -> Result<(), Fault> {
    if found.is_root() {
        return Err(Fault::because(Kind::Busy, "the root stays"));
    }
    if found.live {
        return Err(Fault::new(Kind::ReadOnly));
    }
    // What is mounted says so before its own access does.
    if let Some(rule) = found.rule
        && rule.mounted
    {
        rule.check_removal()?;
    }
    found.around.check(Need::Write)?;
    found.access.check(Need::Write)?;
    found.rule.map_or(Ok(()), |rule| rule.check_removal())
}

impl Vfs {
    /// Makes a file or replaces its content; its directory must be there.
    /// Returns the new version.
    pub fn write(&self, path: impl AsRef<[u8]>, content: impl Into<Bytes>) -> Result<u64, FsError> {
        self.write_file(path.as_ref(), &mut Some(content.into()), None)
    }

    /// The same, if the file's version is still the one given; 0 stands for
    /// "it is not there".
    pub fn write_if(
        &self,
        path: impl AsRef<[u8]>,
        content: impl Into<Bytes>,
        version: u64,
    ) -> Result<u64, FsError> {
        self.write_file(path.as_ref(), &mut Some(content.into()), Some(version))
    }

    /// The same as [`Vfs::write`], with all directories above it.
    pub fn write_all(
        &self,
        path: impl AsRef<[u8]>,
        content: impl Into<Bytes>,
    ) -> Result<u64, FsError> {
        let (path, mut content) = (path.as_ref(), Some(content.into()));
        match self.write_file(path, &mut content, None) {
            Err(error) if error.kind == Kind::NotFound => {
                let cut = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                self.make_dir_all(&path[..cut])?;
                self.write_file(path, &mut content, None)
            }
            done => done,
        }
    }

    /// Takes the content if it succeeds, and leaves it if it does not: counting
    /// who holds it would cost as much as finding the file.
    fn write_file(
        &self,
        path: &[u8],
        content: &mut Option<Bytes>,
        expect: Option<u64>,
    ) -> Result<u64, FsError> {
        let size = content.as_ref().map_or(0, |content| content.len() as u64);
        let now = now_ns();
        self.writing(path, |state, answers| {
            let (place, old) = match plainly(&state.top, &state.setup.rules, path) {
                Some(Reached::File(file)) => (path[1..].into(), Some(Old::of(file))),
                _ => place_to_write(state, path, answers)?,
            };
            let version = old.map_or(0, |old| old.version);
            if expect.is_some_and(|expect| expect != version) {
                let reason = format!("its version is {version}");
                return Err(Fault::because(Kind::Changed, reason).into());
            }
            let held = old.map_or(0, |old| old.held);
            state.check_room(size.saturating_sub(held), u64::from(old.is_none()))?;
            // All that an edit could lack was found on the way here.
            let new = Content::Whole(content.take().expect("nothing is missing any more"));
            if old.is_none() {
                let file = File::new(state.meta(0o644, now), new);
                let version = file.version;
                state.top.put(&place, Entry::File(Arc::new(file)), None, answers, now)?;
                return Ok(version);
            }
            let (version, mut new) = (number(), Some(new));
            state.top.replace_file(&place, answers, &mut |file| {
                let new = new.take().expect("a file is edited once");
                File::rewrite(file, new).written(version, now);
                Ok(())
            })?;
            Ok(version)
        })
    }

    /// Makes an empty file that must not be there yet.
    pub fn create(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<(), FsError> {
        let (path, now) = (path.as_ref(), now_ns());
        self.writing(path, |state, answers| {
            let found = state.find(path, Last::Name, answers)?;
            if found.entry.is_some() {
                return Err(Kind::Exists.into());
            }
            if found.slash {
                return Err(Kind::IsADirectory.into());
            }
            check_new(&found)?;
            state.check_room(0, 1)?;
            let place = found.into_place();
            let file = File::new(state.meta(mode & 0o7777, now), Content::empty());
            state.top.put(&place, Entry::File(Arc::new(file)), None, answers, now)
        })
    }

    /// Writes into a file at a place, stretching it if need be.
    pub fn write_at(&self, path: impl AsRef<[u8]>, at: u64, data: &[u8]) -> Result<(), FsError> {
        self.edit_file(path.as_ref(), Need::Write, data.len() as u64, |content| {
            content.write(at, data)
        })
    }

    /// Writes at the end of a file, which is made if it is not there.
    pub fn append(&self, path: impl AsRef<[u8]>, data: &[u8]) -> Result<(), FsError> {
        let path = path.as_ref();
        let append = || {
            self.edit_file(path, Need::Append, data.len() as u64, |content| {
                content.write(content.len().unwrap_or(0), data)
            })
        };
        match append() {
            Ok(()) => Ok(()),
            Err(error) if error.kind != Kind::NotFound && !path.ends_with(b"/") => Err(error),
            Err(_) => match self.write_if(path, data.to_vec(), 0) {
                // Someone else was quicker.
                Err(error) if error.kind == Kind::Changed => append(),
                done => done.map(drop),
            },
        }
    }

    /// Cuts a file, or stretches it with zeros.
    pub fn truncate(&self, path: impl AsRef<[u8]>, len: u64) -> Result<(), FsError> {
        let path = path.as_ref();
        match len {
            // What is cut away need not be asked for.
            0 => self.edit_from(path, Need::Write, 0, false, |content| content.resize(0)),
            len => self.edit_file(path, Need::Write, 0, |content| content.resize(len)),
        }
    }

    /// Makes a hole: zeros that take no memory. The size stays.
    pub fn punch(&self, path: impl AsRef<[u8]>, range: Range<u64>) -> Result<(), FsError> {
        self.edit_file(path.as_ref(), Need::Write, 0, |content| {
            content.punch(range.clone());
            Ok(())
        })
    }

    fn edit_file(
        &self,
        path: &[u8],
        need: Need,
        more: u64,
        edit: impl FnMut(&mut Content) -> Result<(), Fault>,
    ) -> Result<(), FsError> {
        self.edit_from(path, need, more, true, edit)
    }

    fn edit_from(
        &self,
        path: &[u8],
        need: Need,
        more: u64,
        loads: bool,
        mut edit: impl FnMut(&mut Content) -> Result<(), Fault>,
    ) -> Result<(), FsError> {
        let now = now_ns();
        self.writing(path, |state, answers| {
            let found = state.find(path, Last::Follow, answers)?;
            let file = found.file()?;
            if found.live {
                return Err(Kind::ReadOnly.into());
            }
            found.access.check(need)?;
            // What is still at its source is loaded before anything changes,
            // and counts from then on.
            let lazy = matches!(file.content, Content::Lazy(_));
            let loaded = match lazy && loads {
                true => Some(answers.content(&file.content)?),
                false => lazy.then(|| Content::Whole(Bytes::new())),
            };
            let size = loaded.as_ref().and_then(Content::len).unwrap_or(0);
            if more + size > 0 {
                state.check_room(more + size + BLOCK_BYTES.min(more * 16), 0)?;
            }
            let place = found.into_place();
            state.top.edit_file(&place, answers, &mut |file| {
                // The very content is edited, not a copy of it, so that what
                // nobody else holds is written in place. Both edits check
                // before they change.
                if let Some(loaded) = &loaded {
                    file.content = loaded.clone();
                }
                edit(&mut file.content)?;
                file.written(number(), now);
                Ok(())
            })
        })
    }

    /// Gives a file that lost its last name one again, here or in another
    /// view; `false` if there is none to be given a name.
    pub fn adopt(&self, path: impl AsRef<[u8]>, gone: &Gone) -> Result<bool, FsError> {
        let (path, now) = (path.as_ref(), now_ns());
        let Some(file) = &gone.file else { return Ok(false) };
        self.writing(path, |state, answers| {
            let found = state.find(path, Last::Name, answers)?;
            if found.entry.is_some() {
                return Err(Kind::Exists.into());
            }
            check_new(&found)?;
            state.check_room(file.content.held(), 1)?;
            let place = found.into_place();
            let file = File { names: 1, ..(**file).clone() };
            state.top.put(&place, Entry::File(Arc::new(file)), None, answers, now)?;
            Ok(true)
        })
    }

    /// Makes a directory; the one above it must be there.
    pub fn make_dir(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<(), FsError> {
        let (path, now) = (path.as_ref(), now_ns());
        self.writing(path, |state, answers| {
            let found = state.find(path, Last::Name, answers)?;
            if found.entry.is_some() {
                return Err(Kind::Exists.into());
            }
            check_new(&found)?;
            state.check_room(0, 1)?;
            let place = found.into_place();
            let dir = Dir::empty(state.meta(mode & 0o7777, now));
            state.top.put(&place, Entry::Dir(Arc::new(dir)), None, answers, now)
        })
    }

    /// Makes a directory and all above it, as far as they are missing.
    pub fn make_dir_all(&self, path: impl AsRef<[u8]>) -> Result<(), FsError> {
        let path = path.as_ref();
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let above = &path[..end];
            if above.iter().all(|byte| *byte == b'/') {
                continue;
            }
            match self.make_dir(above, 0o755) {
                Ok(()) => {}
                Err(error) if error.kind == Kind::Exists => match self.stat(above)?.kind {
                    fractal_model::EntryKind::Directory => {}
                    _ => return Err(Fault::new(Kind::NotADirectory).at(path)),
                },
                // A rule may forbid making it where it need not be made.
                Err(_) if self.exists(above) => {}
                Err(error) => return Err(FsError { path: path.into(), ..error }),
            }
        }
        Ok(())
    }

    /// Makes a symlink; where it leads need not exist.
    pub fn symlink(&self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Result<(), FsError> {
        let (path, target, now) = (path.as_ref(), target.as_ref(), now_ns());
        self.writing(path, |state, answers| {
            if target.is_empty() {
                return Err(Kind::NotFound.into());
            }
            if target.len() >= PATH_BYTES_MAX {
                return Err(Kind::NameTooLong.into());
            }
            if target.contains(&0) {
                return Err(Kind::Invalid.into());
            }
            let found = state.find(path, Last::Name, answers)?;
            if found.entry.is_some() {
                return Err(Kind::Exists.into());
            }
            if found.slash {
                return Err(Kind::NotFound.into());
            }
            check_new(&found)?;
            state.check_room(target.len() as u64, 1)?;
            let place = found.into_place();
            let meta = state.meta(0o777, now);
            let link = Link { inode: number(), meta, target: target.into() };
            state.top.put(&place, Entry::Link(Arc::new(link)), None, answers, now)
        })
    }

    /// Gives a file another name.
    pub fn link(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<(), FsError> {
        let (from, to, now) = (from.as_ref(), to.as_ref(), now_ns());
        self.writing(to, |state, answers| {
            let old = state.find(from, Last::Keep, answers)?;
            let reached = old.reached()?;
            let new = state.find(to, Last::Name, answers)?;
            if new.entry.is_some() {
                return Err(Kind::Exists.into());
            }
            if new.slash {
                return Err(Kind::NotFound.into());
            }
            match reached {
                Reached::File(_) if !old.live => {}
                Reached::Dir(_) => return Err(Kind::Denied.into()),
                _ => return Err(Kind::Unsupported.into()),
            }
            old.access.check(Need::Write)?;
            check_new(&new)?;
            state.check_room(0, 1)?;
            let (from, to) = (old.into_place(), new.into_place());
            let inode = state.share(&from, answers, now)?;
            state.top.put(&to, Entry::Shared(inode), None, answers, now)?;
            let shared = state.top.shared.get_mut(&inode).expect("shared above");
            let file = Arc::make_mut(&mut shared.0);
            file.names += 1;
            file.meta.changed_ns = now;
            Ok(())
        })
    }

    /// Removes a file or symlink.
    pub fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<(), FsError> {
        self.remove_name(path).map(drop)
    }

    /// The same; returns what lost its name.
    pub fn remove_name(&self, path: impl AsRef<[u8]>) -> Result<Gone, FsError> {
        let path = path.as_ref();
        let now = now_ns();
        self.writing(path, |state, answers| {
            let found = state.find(path, Last::Name, answers)?;
            if let Reached::Dir(_) = found.reached()? {
                return Err(Kind::IsADirectory.into());
            }
            check_gone(&found)?;
            let place = found.into_place();
            let entry = state.top.take(&place, answers, now)?;
            let gone = state.top.gone(&entry);
            state.top.forget_name(&entry);
            Ok(gone)
        })
    }

    /// Removes a directory that is empty.
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<(), FsError> {
        let (path, now) = (path.as_ref(), now_ns());
        self.writing(path, |state, answers| {
            let found = state.find(path, Last::Name, answers)?;
            match last_is_dots(path) {
                Some(1) => return Err(Kind::Invalid.into()),
                Some(_) => return Err(Kind::NotEmpty.into()),
                None => {}
            }
            let dir = found.dir()?;
            check_gone(&found)?;
            if !answers.entries(dir)?.is_empty() {
                return Err(Kind::NotEmpty.into());
            }
            let place = found.into_place();
            state.top.take(&place, answers, now).map(drop)
        })
    }

    /// Removes whatever is there, with all below it.
    pub fn remove_all(&self, path: impl AsRef<[u8]>) -> Result<(), FsError> {
        let (path, now) = (path.as_ref(), now_ns());
        let gone = self.writing(path, |state, answers| {
            let found = state.find(path, Last::Name, answers)?;
            found.reached()?;
            check_gone(&found)?;
            let place = found.into_place();
            let gone = state.top.take(&place, answers, now)?;
            state.forget_names(&gone, answers);
            Ok(gone)
        })?;
        // A large tree is taken down without the lock.
        drop(gone);
        Ok(())
    }

    /// Moves an entry, over a file or an empty directory that is there, as
    /// rename(2) does.
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<(), FsError> {
        self.rename_name(from, to, true).map(drop)
    }

    /// The same, over what is there or not; returns the inode that was moved
    /// and what it was moved over, or nothing if both are names of one file.
    pub fn rename_name(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        over: bool,
    ) -> Result<Option<(u64, Option<Gone>)>, FsError> {
        let (from, to, now) = (from.as_ref(), to.as_ref(), now_ns());
        self.writing(from, |state, answers| {
            let old = state.find(from, Last::Name, answers)?;
            let new = state.find(to, Last::Name, answers)?;
            if last_is_dots(from).is_some() || last_is_dots(to).is_some() {
                return Err(Fault::because(Kind::Busy, "dots are no name").into());
            }
            let is_dir = matches!(old.reached()?, Reached::Dir(_));
            if !over && new.entry.is_some() {
                return Err(Kind::Exists.into());
            }
            if to.ends_with(b"/") && !is_dir {
                return Err(Kind::NotADirectory.into());
            }
            let (from, to) = (old.place(), new.place());
            if is_dir && is_below(&to, &from) {
                return Err(Fault::because(Kind::Invalid, "into itself").into());
            }
            check_gone(&old)?;
            if is_below(&from, &to) {
                return Err(Kind::NotEmpty.into());
            }
            if from == to {
                return Ok(None);
            }
            let moved = state.top.peek(&from, answers)?.ok_or(Kind::NotFound)?;
            let there = state.top.peek(&to, answers)?;
            // Two names of one file: nothing happens, as POSIX has it.
            if let (Entry::Shared(a), Some(Entry::Shared(b))) = (&moved, &there)
                && a == b
            {
                return Ok(None);
            }
            check_over(&new, is_dir, answers)?;
            drop((old, new));
            let old = there.as_ref().map(Entry::weight);
            let inode = moved.inode();
            // The only thing that can fail from here on is the depth.
            state.top.put(&to, moved, old, answers, now)?;
            let gone = there.map(|there| {
                let gone = state.top.gone(&there);
                state.top.forget_name(&there);
                gone
            });
            state.top.take(&from, answers, now)?;
            Ok(Some((inode, gone)))
        })
    }

    /// Copies a file, sharing its content until one of them is written.
    /// Over another file if one is there.
    pub fn copy_file(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<(), FsError> {
        let (from, to, now) = (from.as_ref(), to.as_ref(), now_ns());
        self.writing(from, |state, answers| {
            let old = state.find(from, Last::Follow, answers)?;
            let file = old.file()?;
            let content = answers.content(&file.content)?;
            let mode = file.meta.mode & 0o777;
            let new = state.find(to, Last::Follow, answers)?;
            let held = match new.entry {
                None => None,
                Some(Reached::File(there)) if there.inode == file.inode => {
                    return Err(Fault::because(Kind::Invalid, "both are the same file").into());
                }
                Some(Reached::File(there)) => Some(there.content.held()),
                Some(_) => return Err(Kind::IsADirectory.into()),
            };
            match held {
                Some(_) if new.live => return Err(Kind::ReadOnly.into()),
                Some(_) => new.access.check(Need::Write)?,
                None => check_new(&new)?,
            }
            let more = content.held().saturating_sub(held.unwrap_or(0));
            state.check_room(more, u64::from(held.is_none()))?;
            let place = new.into_place();
            drop(old);
            if held.is_none() {
                let file = File::new(state.meta(mode, now), content.clone());
                return state.top.put(&place, Entry::File(Arc::new(file)), None, answers, now);
            }
            state.top.edit_file(&place, answers, &mut |file| {
                file.content = content.clone();
                file.written(number(), now);
                Ok(())
            })
        })
    }
}

/// What is replaced by a write.
#[derive(Clone, Copy)]
struct Old {
    version: u64,
    held: u64,
}

impl Old {
    fn of(file: &File) -> Old {
        Old { version: file.version, held: file.content.held() }
    }
}

/// Where a file is to be written, and what it replaces.
fn place_to_write(
    state: &State,
    path: &[u8],
    answers: &Answers,
) -> Result<(Place, Option<Old>), Stop> {
    if path.ends_with(b"/") {
        state.find(path, Last::Name, answers)?;
        return Err(Kind::IsADirectory.into());
    }
    let found = state.find(path, Last::Follow, answers)?;
    let old = match found.entry {
        Some(Reached::File(file)) => Some(Old::of(file)),
        Some(Reached::Dir(_)) => return Err(Kind::IsADirectory.into()),
        Some(Reached::Link(_)) => return Err(Kind::Loop.into()),
        None => None,
    };
    if found.slash {
        return Err(Kind::IsADirectory.into());
    }
    match old {
        Some(_) if found.live => return Err(Kind::ReadOnly.into()),
        Some(_) => found.access.check(Need::Write)?,
        None => check_new(&found)?,
    }
    Ok((found.into_place(), old))
}

/// Whether one place lies below another.
pub(crate) fn is_below(place: &[u8], above: &[u8]) -> bool {
    place.len() > above.len()
        && place.starts_with(above)
        && (above.is_empty() || place[above.len()] == b'/')
}

/// Whether something may be moved to where a walk ended.
fn check_over(new: &Found, is_dir: bool, answers: &Answers) -> Result<(), Stop> {
    match new.entry {
        None => Ok(check_new(new)?),
        Some(Reached::Dir(dir)) => {
            if !is_dir {
                return Err(Kind::IsADirectory.into());
            }
            check_gone(new)?;
            match answers.entries(dir)?.is_empty() {
                true => Ok(()),
                false => Err(Kind::NotEmpty.into()),
            }
        }
        Some(_) if is_dir => Err(Kind::NotADirectory.into()),
        Some(_) => Ok(check_gone(new)?),
    }
}

impl File {
    /// Puts new content into a file; the old one is not copied for that.
    fn rewrite(file: &mut Arc<File>, content: Content) -> &mut File {
        match Arc::get_mut(file) {
            Some(own) => own.content = content,
            None => {
                let File { inode, version, names, meta, .. } = **file;
                let xattrs = file.xattrs.clone();
                *file = Arc::new(File { inode, version, names, meta, xattrs, content });
            }
        }
        Arc::get_mut(file).expect("our own by now")
    }

    fn written(&mut self, version: u64, now: i64) {
        self.version = version;
        self.meta.modified_ns = now;
        self.meta.changed_ns = now;
        // As Linux does when someone writes into such a program.
        self.meta.mode &= 0o1777;
    }
}

impl State {
    /// Puts a file into the table of those with several names.
    fn share(&mut self, place: &[u8], answers: &Answers, now: i64) -> Result<u64, Stop> {
        match self.top.peek(place, answers)? {
            Some(Entry::Shared(inode)) => Ok(inode),
            Some(Entry::File(file)) => {
                let (inode, held) = (file.inode, file.content.held());
                let weight = Entry::File(file.clone()).weight();
                self.top.put(place, Entry::Shared(inode), Some(weight), answers, now)?;
                self.top.shared.insert(inode, SharedFile(file));
                self.top.shared_bytes += held;
                Ok(inode)
            }
            _ => Err(Kind::NotFound.into()),
        }
    }

    /// Forgets the names of files with several below an entry that is gone.
    fn forget_names(&mut self, gone: &Entry, answers: &Answers) {
        if gone.weight().shared == 0 {
            return;
        }
        match gone {
            Entry::Dir(dir) => {
                let Ok(map) = answers.entries(dir) else { return };
                map.iter().for_each(|(_, entry)| self.forget_names(entry, answers));
            }
            entry => self.top.forget_name(entry),
        }
    }
}
