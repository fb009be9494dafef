//! Going on: every path from old to new, one system call each.
//!
//! Before an exchange we look whether the path is as the plan says, and after
//! it at what came out: an edit that slipped in between is put back where it
//! was, and the whole write is taken back. Nothing anybody wrote is lost.

use super::Seen;
use super::disk::At;
use super::ground::{Place, is_empty, open_there};
use super::plan::{Act, Made, Move};
use super::see::seen_at;
use super::stage::give;
use super::trouble::Trouble;
use super::work::{Progress, Work, aside_name, entry_name, is_ours};
use fractal_model::EntryKind;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;

type Done = Result<(), Trouble>;

impl Work<'_> {
    /// Carries out what has not been carried out yet.
    pub fn go_on(&self) -> Done {
        for next in self.plan.moves() {
            match next {
                Move::Swap(number) => self.bring(number)?,
                Move::Dress(number) => self.dress(number)?,
            }
        }
        self.check_held()
    }

    fn bring(&self, number: usize) -> Done {
        let fail = |error: io::Error| Trouble::io("replace", self.shown(number), &error);
        let step = &self.plan.steps[number];
        let progress = self.progress(number).map_err(fail)?;
        if progress == Progress::Done {
            return Ok(());
        }
        let place = self.root.place(&step.path.0).map_err(fail)?;
        match (step.act(), progress) {
            (Act::Add, _) => self.add(number, &place),
            (Act::Remove, _) => self.remove(number, &place),
            (Act::Change, _) => self.change(number, &place),
            (Act::Replace, Progress::Between) => self.put(number, &place).map_err(fail),
            (Act::Replace, _) => self.replace(number, &place),
        }?;
        if self.moves_directory(number) {
            self.root.forget();
        }
        Ok(())
    }

    fn moves_directory(&self, number: usize) -> bool {
        let step = &self.plan.steps[number];
        let is_dir = |kind: EntryKind| kind == EntryKind::Directory;
        step.act() != Act::Change
            && (step.old.as_ref().is_some_and(|old| is_dir(old.kind))
                || step.new.as_ref().is_some_and(|new| is_dir(new.kind)))
    }

    fn add(&self, number: usize, place: &Place) -> Done {
        match self.put(number, place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Trouble::conflict(self.shown(number), "it exists now"))
            }
            answer => answer.map_err(|error| Trouble::io("create", self.shown(number), &error)),
        }
    }

    /// Moves a staged entry to its path, which is free.
    fn put(&self, number: usize, place: &Place) -> io::Result<()> {
        let name = entry_name(number);
        self.disk.rename(At { dir: self.stage(number), name: &name }, place.at())
    }

    fn replace(&self, number: usize, place: &Place) -> Done {
        let fail = |error: io::Error| Trouble::io("replace", self.shown(number), &error);
        self.check_target(number, place)?;
        let (name, aside) = (entry_name(number), aside_name(number));
        let staged = At { dir: self.stage(number), name: &name };
        match self.disk.exchange(staged, place.at()) {
            Err(error) if cannot_exchange(&error) => {
                // For a moment nothing stands there. The other order, a link
                // first and then a rename over the path, would lose an edit
                // made between the two.
                let aside = At { dir: self.stage(number), name: &aside };
                self.disk.rename(place.at(), aside).map_err(fail)?;
                self.put(number, place).map_err(fail)?;
            }
            answer => answer.map_err(fail)?,
        }
        self.check_came_out(number)
    }

    fn remove(&self, number: usize, place: &Place) -> Done {
        self.check_target(number, place)?;
        let name = entry_name(number);
        let held = At { dir: self.stage(number), name: &name };
        self.disk
            .rename(place.at(), held)
            .map_err(|error| Trouble::io("remove", self.shown(number), &error))?;
        self.check_came_out(number)
    }

    /// Sets mode, owner and attributes of what stays. Who goes on after a crash
    /// finds some of it done.
    fn change(&self, number: usize, place: &Place) -> Done {
        let fail = |error: io::Error| Trouble::io("change the mode of", self.shown(number), &error);
        let step = &self.plan.steps[number];
        let (Some(old), Some(new)) = (&step.old, &step.new) else { return Ok(()) };
        let now = seen_at(&*place.dir, &place.name).map_err(fail)?;
        let same = |now: &Seen| (old.size, old.mtime_ns) == (now.size, now.mtime_ns);
        let half = now.filter(|now| old.kind == EntryKind::Directory || same(now));
        if !half.is_some_and(|now| is_between(old, new, &now)) {
            self.check_target(number, place)?;
        }
        let (handle, now) = handle(place, old.inode).map_err(fail)?;
        // A directory takes attributes while it may be written.
        let opens = new.mode & 0o200 != 0;
        if opens {
            self.set_mode(&handle, place, &now, new).map_err(fail)?;
        }
        if let Some(noted) = &new.noted {
            if !noted.is_ours(&handle, c".").map_err(fail)? {
                return Err(Trouble::conflict(self.shown(number), "it was edited"));
            }
            noted.set(self.disk, &handle).map_err(fail)?;
        }
        match opens {
            true => Ok(()),
            false => self.set_mode(&handle, place, &now, new).map_err(fail),
        }
    }

    /// Owner first: giving a file away clears bits of its mode.
    pub(super) fn set_mode(
        &self,
        handle: &OwnedFd,
        place: &Place,
        now: &Seen,
        wanted: &Made,
    ) -> io::Result<()> {
        if let Some((uid, gid)) = wanted.owner.filter(|owner| *owner != (now.uid, now.gid)) {
            give(self.disk, place.at(), (Some(uid), Some(gid)))?;
        }
        match now.mode == wanted.mode && wanted.owner.is_none() {
            true => Ok(()),
            false => self.disk.set_mode(handle, wanted.mode),
        }
    }

    /// The last touch on a directory that was brought.
    fn dress(&self, number: usize) -> Done {
        let step = &self.plan.steps[number];
        let Some((new, inode)) = step.new.as_ref().and_then(|new| Some((new, new.inode?))) else {
            return Ok(());
        };
        let dress = || {
            let place = self.root.place(&step.path.0)?;
            let (handle, _) = handle(&place, inode)?;
            self.disk.set_mode(&handle, new.mode)?;
            self.disk.set_time(place.at(), new.mtime_ns)
        };
        dress().map_err(|error| Trouble::io("change the mode of", self.shown(number), &error))
    }

    /// Whether a path is still what the plan says, `ctime` included.
    fn check_target(&self, number: usize, place: &Place) -> Done {
        let Some(old) = &self.plan.steps[number].old else { return Ok(()) };
        let now = seen_at(&*place.dir, &place.name)
            .map_err(|error| Trouble::io("look at", self.shown(number), &error))?;
        match now {
            Some(now) if old.is_untouched(&now) => Ok(()),
            Some(now) if old.is_same_but_moved(&now) && self.moved_it(number, &now)? => Ok(()),
            Some(_) => Err(Trouble::conflict(self.shown(number), "it was edited")),
            None => Err(Trouble::conflict(self.shown(number), "it is gone")),
        }
    }

    /// Whether a file's `ctime` moved because we renamed another name of it.
    /// Who goes on after a crash cannot know when that was, so there the stage
    /// tells whether it was at all.
    fn moved_it(&self, number: usize, now: &Seen) -> Result<bool, Trouble> {
        if let Some(answer) = self.links.is_from_us(now) {
            return Ok(answer);
        }
        for other in self.links.of_file(now).iter().filter(|other| **other != number) {
            let held = self.is_held(*other);
            if held.map_err(|error| Trouble::io("look at", self.shown(*other), &error))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether what lies in the stage now is what the plan says. If not,
    /// taking the step back puts it where it was.
    fn check_came_out(&self, number: usize) -> Done {
        let fail = |error: io::Error| Trouble::io("look at", self.shown(number), &error);
        let Some(old) = &self.plan.steps[number].old else { return Ok(()) };
        let (stage, name) = (self.stage(number), self.held_name(number).map_err(fail)?);
        let Some(now) = seen_at(stage, &name).map_err(fail)? else {
            return Err(Trouble::conflict(self.shown(number), "it is gone"));
        };
        if !old.is_same_but_moved(&now) {
            return Err(Trouble::conflict(self.shown(number), "it was edited"));
        }
        self.links.note(&now);
        if old.kind == EntryKind::Directory && !is_empty(stage, &name).map_err(fail)? {
            return Err(Trouble::conflict(self.shown(number), "there is something new in it"));
        }
        Ok(())
    }

    /// Once more at the end: a program that had a file open may have written
    /// to it after it was exchanged.
    fn check_held(&self) -> Done {
        for (number, step) in self.plan.steps.iter().enumerate() {
            if matches!(step.act(), Act::Replace | Act::Remove) {
                self.check_came_out(number)?;
            }
        }
        Ok(())
    }

    /// What stands at a path if it is what we brought, untouched.
    pub(super) fn stands(&self, number: usize, place: &Place) -> io::Result<Standing> {
        let Some(made) = &self.plan.steps[number].new else { return Ok(Standing::Theirs) };
        Ok(match seen_at(&*place.dir, &place.name)? {
            None => Standing::Nothing,
            Some(now) if is_ours(made, &now) => Standing::Ours,
            Some(_) => Standing::Theirs,
        })
    }
}

/// Holds on to an entry, whatever happens to its name; one that is another
/// by now does not exist for us.
pub(super) fn handle(place: &Place, inode: (u64, u64)) -> io::Result<(OwnedFd, Seen)> {
    let handle = open_there(&*place.dir, place.name.to_bytes(), OFlags::PATH)?;
    let now = Seen::of(&rustix::fs::fstat(&handle)?);
    match now.inode == inode {
        true => Ok((handle, now)),
        false => Err(Errno::NOENT.into()),
    }
}

/// Whether mode and owner of something that changes in place have moved, and
/// by nobody but us: each is what it was or what it shall be.
pub(super) fn is_between(old: &Seen, new: &Made, now: &Seen) -> bool {
    let (was, is) = ((old.uid, old.gid), (now.uid, now.gid));
    let owned = is == was || new.owner == Some(is);
    // Giving it away may clear bits of its mode until they are set again.
    let cleared = is != was && now.mode == old.mode & 0o1777;
    let moded = now.mode == old.mode || now.mode == new.mode || cleared;
    let moved = now.mode != old.mode || is != was;
    old.inode == now.inode && moved && owned && moded
}

/// What stands where we brought something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Ours,
    Theirs,
    Nothing,
}

fn cannot_exchange(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP))
}
