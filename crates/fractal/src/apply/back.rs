//! Going back: everything that was brought is taken away again, in reverse.
//!
//! What somebody wrote to a path after we brought it stays there; what stood
//! there before is then kept in the state directory instead of being put over
//! it. Such paths are named to whoever asked.

use super::disk::At;
use super::ground::{Place, is_empty};
use super::plan::{Act, Made, Move};
use super::see::seen_at;
use super::swap::{Standing, handle, is_between};
use super::trouble::Trouble;
use super::work::{Progress, Work, aside_name, entry_name, is_ours};
use fractal_model::EntryKind;
use std::io;

/// Whether a path is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restored {
    Yes,
    /// Somebody else's work stands there.
    Left,
}

impl Work<'_> {
    /// Takes back what was carried out; returns the paths that stay as
    /// somebody else made them.
    pub fn go_back(&self) -> Result<Vec<String>, Trouble> {
        let mut left = Vec::new();
        for last in self.plan.moves().into_iter().rev() {
            let (Move::Swap(number) | Move::Dress(number)) = last;
            let fail = |error: io::Error| back_failed(&self.shown(number), &error);
            match last {
                Move::Dress(number) => self.undress(number).map_err(fail)?,
                Move::Swap(number) => {
                    if self.restore(number).map_err(fail)? == Restored::Left {
                        left.push(self.shown(number));
                    }
                }
            }
        }
        Ok(left)
    }

    fn restore(&self, number: usize) -> io::Result<Restored> {
        let step = &self.plan.steps[number];
        let place = match self.root.place(&step.path.0) {
            Ok(place) => place,
            // The way there is gone. Nothing was brought, or it went with it.
            Err(_) if !self.is_held(number)? => return Ok(Restored::Yes),
            Err(_) => return Ok(Restored::Left),
        };
        let progress = self.progress(number)?;
        let restored = match (step.act(), progress) {
            // Part of it may be done.
            (Act::Change, _) => self.change_back(number, &place),
            (_, Progress::Waiting) => return Ok(Restored::Yes),
            (Act::Replace, Progress::Between) => self.return_aside(number, &place),
            (Act::Add, _) => self.take_away(number, &place),
            (Act::Replace, _) => self.exchange_back(number, &place),
            (Act::Remove, _) => self.return_held(number, &place),
        };
        self.root.forget();
        restored
    }

    /// Whether something that stood in reality lies in the stage.
    pub(super) fn is_held(&self, number: usize) -> io::Result<bool> {
        let step = &self.plan.steps[number];
        let made = step.new.as_ref().and_then(|new| new.inode);
        let lies = seen_at(self.stage(number), &self.held_name(number)?)?;
        Ok(step.old.is_some() && lies.is_some_and(|lies| Some(lies.inode) != made))
    }

    fn take_away(&self, number: usize, place: &Place) -> io::Result<Restored> {
        match self.stands(number, place)? {
            Standing::Nothing => return Ok(Restored::Yes),
            Standing::Theirs => return Ok(Restored::Left),
            Standing::Ours => {}
        }
        if self.is_full(number, place)? {
            return Ok(Restored::Left);
        }
        let name = entry_name(number);
        let staged = At { dir: self.stage(number), name: &name };
        self.disk.rename(place.at(), staged)?;
        if self.is_staged_again(number)? {
            return Ok(Restored::Yes);
        }
        self.disk.rename(staged, place.at())?;
        Ok(Restored::Left)
    }

    fn exchange_back(&self, number: usize, place: &Place) -> io::Result<Restored> {
        if self.stands(number, place)? != Standing::Ours || self.is_full(number, place)? {
            return Ok(Restored::Left);
        }
        let (name, aside) = (entry_name(number), aside_name(number));
        let staged = At { dir: self.stage(number), name: &name };
        if seen_at(staged.dir, &aside)?.is_some() {
            self.disk.rename(place.at(), staged)?;
            return match self.is_staged_again(number)? {
                true => self.return_aside(number, place),
                false => self.disk.rename(staged, place.at()).map(|()| Restored::Left),
            };
        }
        self.disk.exchange(staged, place.at())?;
        if self.is_staged_again(number)? {
            return Ok(Restored::Yes);
        }
        self.disk.exchange(staged, place.at())?;
        Ok(Restored::Left)
    }

    fn return_held(&self, number: usize, place: &Place) -> io::Result<Restored> {
        let name = entry_name(number);
        self.return_entry(At { dir: self.stage(number), name: &name }, place)
    }

    fn return_aside(&self, number: usize, place: &Place) -> io::Result<Restored> {
        let name = aside_name(number);
        self.return_entry(At { dir: self.stage(number), name: &name }, place)
    }

    fn return_entry(&self, held: At<'_>, place: &Place) -> io::Result<Restored> {
        match self.disk.rename(held, place.at()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Restored::Left),
            answer => answer.map(|()| Restored::Yes),
        }
    }

    /// Puts back what we set; a mode that somebody else set meanwhile stays.
    fn change_back(&self, number: usize, place: &Place) -> io::Result<Restored> {
        let step = &self.plan.steps[number];
        let (Some(old), Some(new)) = (&step.old, &step.new) else { return Ok(Restored::Yes) };
        let (handle, now) = match handle(place, old.inode) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Restored::Left),
            answer => answer?,
        };
        let owner = new.owner.map(|_| (old.uid, old.gid));
        let wanted = Made { mode: old.mode, owner, ..new.clone() };
        let is_set = is_between(old, new, &now);
        if let Some(noted) = &new.noted {
            if is_set && old.mode & 0o200 != 0 {
                self.set_mode(&handle, place, &now, &wanted)?;
            }
            noted.take_back(self.disk, &handle)?;
        }
        if is_set {
            self.set_mode(&handle, place, &now, &wanted)?;
        }
        Ok(Restored::Yes)
    }

    /// Opens a directory of ours again, so that its entries can be taken out.
    fn undress(&self, number: usize) -> io::Result<()> {
        let step = &self.plan.steps[number];
        let (Some(new), Ok(place)) = (&step.new, self.root.place(&step.path.0)) else {
            return Ok(());
        };
        let open = Made { mode: new.mode | 0o700, owner: None, ..new.clone() };
        match (self.stands(number, &place)?, new.inode) {
            (Standing::Ours, Some(inode)) => {
                let (handle, now) = handle(&place, inode)?;
                self.set_mode(&handle, &place, &now, &open)
            }
            _ => Ok(()),
        }
    }

    /// Whether somebody put something into a directory that we brought. What
    /// we brought there ourselves is out by now.
    fn is_full(&self, number: usize, place: &Place) -> io::Result<bool> {
        let new = self.plan.steps[number].new.as_ref();
        let is_directory = new.is_some_and(|new| new.kind == EntryKind::Directory);
        Ok(is_directory && !is_empty(&place.dir, &place.name)?)
    }

    /// Whether what was taken out is what we had brought, and nothing more.
    fn is_staged_again(&self, number: usize) -> io::Result<bool> {
        let name = entry_name(number);
        let Some(new) = &self.plan.steps[number].new else { return Ok(false) };
        let Some(now) = seen_at(self.stage(number), &name)? else { return Ok(false) };
        let empty = new.kind != EntryKind::Directory || is_empty(self.stage(number), &name)?;
        Ok(empty && is_ours(new, &now))
    }
}

/// Going back meets no conflicts: what cannot be done now is tried again.
fn back_failed(path: &str, error: &io::Error) -> Trouble {
    let message = format!("cannot put back {path}: {error}");
    fractal_model::Error::new(super::trouble::code_of(error), message).into()
}
