//! The end: what stood in reality goes into the state directory.
//!
//! After the last exchange a stage holds exactly what an undo needs, so on
//! one filesystem keeping it is one rename of the whole stage, whatever the
//! number of files. On another filesystem the entries are copied, and the
//! stage is swept away after the write has been recorded.

use super::content::{self, Which};
use super::disk::At;
use super::ground::{c_name, stage_name};
use super::holders::holders;
use super::see::stat_at;
use super::stage::give;
use super::trouble::Trouble;
use super::work::{Stage, Work, clear, entry_name, remove_stage};
use crate::attest::{self, Facts, Subject};
use fractal_model::EntryKind;
use fractal_store::{ApplyRow, ApplyState};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::fs::File;
use std::io;

impl Work<'_> {
    /// Keeps what stood there, makes everything durable and records it. Until
    /// this returns, everything can still be taken back.
    pub fn finish(&mut self, recovered: bool) -> Result<(), Trouble> {
        let mut sweep = false;
        for at in 0..self.stages.len() {
            sweep |= !self.keep(at)?;
        }
        self.sync()?;
        self.record(if sweep { ApplyState::Sweeping } else { ApplyState::Done }, recovered)?;
        if sweep {
            // Recorded: what is left is tidying, which the next one repeats.
            let _ = self.sweep();
        }
        self.release_undone();
        Ok(())
    }

    /// What is taken back as a whole.
    fn undoes(&self) -> Option<fractal_model::Id> {
        self.row.undoes.filter(|_| !super::is_part(&self.plan.head.record))
    }

    /// What an undo has put back stands in reality again, as the very file
    /// where it can: kept as well, it would have two names, and an edit of one
    /// would be one of the other. What fails here is left to `gc`.
    fn release_undone(&self) {
        let Some(undone) = self.undoes() else { return };
        let store = &self.engine.store;
        if store.transact_relaxed(|tx| tx.forget_kept(undone)).is_ok() {
            let _ = store.discard_kept(undone);
        }
    }

    /// Moves a stage into the state directory; false when it was copied and
    /// still lies in the tree.
    fn keep(&mut self, at: usize) -> Result<bool, Trouble> {
        let kept = c_name(at.to_string().as_bytes());
        if self.stages[at].kept {
            return Ok(true);
        }
        let holder = holders(&self.row)?.swap_remove(at);
        let shown = holder.shown(&self.row.root);
        let fail = |error: io::Error| Trouble::io("keep what stood in", &shown, &error);
        let undo = open_dir(&self.undo_dir()).map_err(fail)?;
        let holder = self.root.dir(&holder.0).map_err(fail)?;
        let name = stage_name(self.row.id);
        let stage = At { dir: &holder, name: &name };
        if stat_at(&undo, &kept).map_err(fail)?.is_some() {
            // A copy that somebody finished: it got this name when complete.
            return Ok(false);
        }
        match self.disk.rename(stage, At { dir: &undo, name: &kept }) {
            Ok(()) => {
                self.stages[at].kept = true;
                Ok(true)
            }
            Err(error) if error.raw_os_error() == Some(Errno::XDEV.raw_os_error()) => {
                self.copy_stage(at, &undo).map_err(fail)?;
                Ok(false)
            }
            Err(error) => Err(fail(error)),
        }
    }

    /// The same on another filesystem. The copy gets its name when it is
    /// complete; one that was interrupted is begun again.
    fn copy_stage(&self, at: usize, undo: &OwnedFd) -> io::Result<()> {
        let part = c_name(format!("{at}.part").as_bytes());
        let part_at = At { dir: undo, name: &part };
        match self.disk.make_dir(part_at) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            answer => answer?,
        }
        let copy = super::ground::open_listed(undo, &part)?;
        clear(self.disk, &copy)?;
        for number in 0..self.plan.steps.len() {
            if self.plan.steps[number].stage == at && self.is_held(number)? {
                self.copy_entry(number, &copy)?;
            }
        }
        let name = c_name(at.to_string().as_bytes());
        self.disk.rename(part_at, At { dir: undo, name: &name })
    }

    fn copy_entry(&self, number: usize, copy: &OwnedFd) -> io::Result<()> {
        let (held, name) = (self.held_name(number)?, entry_name(number));
        let from = At { dir: self.stage(number), name: &held };
        let to = At { dir: copy, name: &name };
        let stat = stat_at(from.dir, from.name)?.ok_or(Errno::NOENT)?;
        let seen = super::Seen::of(&stat);
        if self.link_copy(number, &seen, to)? {
            return Ok(());
        }
        match seen.kind {
            EntryKind::Directory => self.copy_dir(from, to)?,
            EntryKind::Symlink => {
                let target = rustix::fs::readlinkat(from.dir, from.name, Vec::new())?;
                self.disk.make_link(target.to_bytes(), to)?;
            }
            EntryKind::Special => {
                let kind = FileType::from_raw_mode(stat.st_mode);
                self.disk.make_special(to, kind, stat.st_rdev)?;
            }
            EntryKind::File => self.copy_file(from, to, seen.mode)?,
        }
        give(self.disk, to, (Some(seen.uid), Some(seen.gid)))?;
        if seen.kind == EntryKind::File {
            // Giving it away has cleared bits of its mode.
            let again = open_for_reading(to)?;
            self.disk.set_mode(&again, seen.mode)?;
        }
        self.disk.set_time(to, seen.mtime_ns)
    }

    /// Gives the copy of another name of the same file this name too.
    fn link_copy(&self, number: usize, seen: &super::Seen, to: At<'_>) -> io::Result<bool> {
        let stage = |number: usize| self.plan.steps[number].stage;
        let names = self.links.of_file(seen).iter();
        let first = names.copied().find(|other| *other < number && stage(*other) == stage(number));
        let Some(first) = first else { return Ok(false) };
        match self.disk.link(At { dir: to.dir, name: &entry_name(first) }, to) {
            // That one was put back, and is not kept.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    /// Empty: what it held lies beside it. One that nobody may read is kept
    /// without its attributes.
    fn copy_dir(&self, from: At<'_>, to: At<'_>) -> io::Result<()> {
        self.disk.make_dir(to)?;
        match open_for_reading(from) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            source => {
                let target = open_for_reading(to)?;
                content::copy_attributes(self.disk, &source?, &target, Which::All)
            }
        }
    }

    fn copy_file(&self, from: At<'_>, to: At<'_>, mode: u32) -> io::Result<()> {
        let source = open_for_reading(from)?;
        let target = self.disk.create(to, mode)?;
        self.disk.write(|| content::copy(&source, &target))?;
        content::copy_attributes(self.disk, &source, &target, Which::All)?;
        self.disk.set_mode(&target, mode)
    }

    /// Everything written so far survives a power cut.
    pub fn sync(&self) -> Result<(), Trouble> {
        let fail = |error: io::Error| {
            Trouble::from(fractal_model::Error::new(
                super::trouble::code_of(&error),
                format!("cannot wait for the disk: {error}"),
            ))
        };
        let home = open_dir(&self.undo_dir()).map_err(fail)?;
        let device = |dir: &OwnedFd| rustix::fs::fstat(dir).map(|stat| stat.st_dev);
        let mut synced = Vec::new();
        for dir in self.stages.iter().map(|stage: &Stage| &stage.dir).chain([&home]) {
            let device = device(dir).map_err(|errno| fail(errno.into()))?;
            if !synced.contains(&device) {
                self.disk.sync(dir).map_err(fail)?;
                synced.push(device);
            }
        }
        Ok(())
    }

    /// One transaction: the write is done, and the journal says so.
    fn record(&mut self, state: ApplyState, recovered: bool) -> Result<(), Trouble> {
        let mut body = self.plan.head.record.clone();
        if !body.detail.is_object() {
            body.detail = json!({});
        }
        body.detail["undo"] = json!(self.row.id);
        body.detail["applied"] = json!(self.plan.steps.len());
        if recovered {
            body.detail["recovered"] = Value::Bool(true);
        }
        let store = &self.engine.store;
        let row = &ApplyRow { undoes: self.undoes(), ..self.row.clone() };
        // Only a promotion has them.
        let facts = Facts::noted(&self.undo_dir());
        let subject = facts.as_ref().map(|_| Subject::Written(self.plan.digest()));
        let committed = self.disk.commit(|| {
            store.transact(|tx| {
                let record = tx.append(body)?;
                if let (Some(facts), Some(subject)) = (&facts, &subject) {
                    // What keeps it from being signed does not undo it; who
                    // asked is told that there is none.
                    let _ = attest::write(self.engine, row.id, subject, &record, facts);
                }
                tx.finish_apply(row, state, record.seq)
            })
        });
        if let Err(error) = committed {
            // A failed commit may have reached the disk all the same.
            use fractal_store::Reads;
            let now = store.applies().map_err(fractal_model::Error::from)?;
            let now = now.iter().find(|now| now.id == row.id).map(|now| now.state);
            if now != Some(state) {
                return Err(error.into());
            }
        }
        self.row.state = state;
        Facts::forget(&self.undo_dir());
        Ok(())
    }

    /// Removes stages whose content was copied.
    pub fn sweep(&self) -> Result<(), Trouble> {
        for holder in holders(&self.row)? {
            remove_stage(self.disk, &self.root, &holder, &self.row)
                .map_err(|error| Trouble::io("remove the stage in", "the tree", &error))?;
        }
        let row = &self.row;
        self.disk.commit(|| {
            let done = ApplyState::Done;
            self.engine.store.transact_relaxed(|tx| tx.set_apply_state(row.id, row.worker, done))
        })?;
        Ok(())
    }

    /// Keeps what could not be put back because others work there.
    pub fn keep_left(&mut self) -> Result<(), Trouble> {
        for at in 0..self.stages.len() {
            if !self.keep(at)? {
                let holder = &holders(&self.row)?[at];
                let removed = remove_stage(self.disk, &self.root, holder, &self.row);
                removed.map_err(|error| Trouble::io("remove the stage in", "the tree", &error))?;
            }
        }
        Ok(())
    }
}

pub(super) fn open_dir(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn open_for_reading(at: At<'_>) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(at.dir, at.name, flags, Mode::empty())?))
}
