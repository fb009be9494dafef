//! One write into reality, whoever carries it out.
//!
//! The process that began it and the one that finds it unfinished go through
//! the same code: how far each step has come is read from the stage, which
//! nobody but us writes to. A staged entry that still lies there was not
//! brought yet; once it is gone, or something else lies in its place, it was.

use super::disk::{At, Disk};
use super::ground::{Root, c_name, open_listed, stage_name};
use super::holders::holders;
use super::links::Links;
use super::plan::{Act, Bytes, Made, Plan};
use super::see::seen_at;
use super::trouble::Trouble;
use super::{Seen, ground, notes};
use crate::Engine;
use fractal_model::{EntryKind, Error};
use fractal_store::ApplyRow;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::path::PathBuf;

/// A write in progress.
pub(super) struct Work<'e> {
    pub engine: &'e Engine,
    pub disk: &'e Disk,
    pub row: ApplyRow,
    pub root: Root,
    pub stages: Vec<Stage>,
    pub plan: Plan,
    pub links: Links,
}

/// Where new entries wait and old ones are put.
pub(super) struct Stage {
    pub dir: OwnedFd,
    /// Whether it has left the tree already and lies in the state directory.
    pub kept: bool,
}

/// How far a step has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// The old entry is aside and the new one not in its place: only on
    /// filesystems that cannot exchange.
    Between,
    Done,
}

impl<'e> Work<'e> {
    pub fn new(
        engine: &'e Engine,
        disk: &'e Disk,
        row: ApplyRow,
        root: Root,
        stages: Vec<Stage>,
        plan: Plan,
    ) -> Work<'e> {
        let links = Links::of(&plan);
        Work { engine, disk, row, root, stages, plan, links }
    }

    /// Makes the stages of a new write.
    pub fn make_stages(disk: &Disk, row: &ApplyRow, root: &Root) -> Result<Vec<Stage>, Trouble> {
        let name = stage_name(row.id);
        holders(row)?
            .iter()
            .map(|holder| {
                let fail =
                    |error: io::Error| Trouble::io("write into", holder.shown(&row.root), &error);
                let dir = root.dir(&holder.0).map_err(fail)?;
                disk.make_dir(At { dir: &dir, name: &name }).map_err(fail)?;
                let dir = open_listed(&dir, &name).map_err(|errno| fail(errno.into()))?;
                Ok(Stage { dir, kept: false })
            })
            .collect()
    }

    /// Finds everything of a write that somebody else began.
    pub fn resume(engine: &'e Engine, disk: &'e Disk, row: ApplyRow) -> Result<Work<'e>, Trouble> {
        let root = open_root(&row)?;
        let plan = Plan::read(&engine.store.undo_dir(row.id).join("plan"))?;
        if let Some(bad) = plan.steps.iter().find(|step| !step.path.is_safe()) {
            return Err(Error::new(
                fractal_model::Code::Corrupt,
                format!(
                    "the plan of {} leads out of its root: {}",
                    row.id,
                    bad.path.shown(&row.root)
                ),
            )
            .into());
        }
        let count = row.stages.len();
        let stages = (0..count).map(|at| find_stage(engine, &row, &root, at));
        let stages = stages.collect::<Result<_, _>>()?;
        Ok(Work::new(engine, disk, row, root, stages, plan))
    }

    /// What a step is about, for people.
    pub fn shown(&self, number: usize) -> String {
        self.plan.steps[number].path.shown(&self.row.root)
    }

    pub fn stage(&self, number: usize) -> &OwnedFd {
        &self.stages[self.plan.steps[number].stage].dir
    }

    pub fn undo_dir(&self) -> PathBuf {
        self.engine.store.undo_dir(self.row.id)
    }

    /// How far a step has come.
    pub fn progress(&self, number: usize) -> io::Result<Progress> {
        let step = &self.plan.steps[number];
        let (stage, name) = (self.stage(number), entry_name(number));
        let staged = seen_at(stage, &name)?;
        Ok(match step.act() {
            Act::Change => match self.is_changed(number)? {
                true => Progress::Done,
                false => Progress::Waiting,
            },
            Act::Remove => match staged {
                Some(_) => Progress::Done,
                None => Progress::Waiting,
            },
            Act::Add | Act::Replace => {
                let made = step.new.as_ref().and_then(|new| new.inode);
                let waits = staged.is_some_and(|staged| Some(staged.inode) == made);
                match waits {
                    false => Progress::Done,
                    true if seen_at(stage, &aside_name(number))?.is_some() => Progress::Between,
                    true => Progress::Waiting,
                }
            }
        })
    }

    /// Whether mode, owner and attributes are as a step in place wants them.
    fn is_changed(&self, number: usize) -> io::Result<bool> {
        let step = &self.plan.steps[number];
        let (Some(old), Some(new)) = (&step.old, &step.new) else { return Ok(false) };
        let place = self.root.place(&step.path.0)?;
        let now = seen_at(&*place.dir, &place.name)?;
        let is_set = now.is_some_and(|now| {
            now.inode == old.inode && now.mode == new.mode && has_owner(new, &now)
        });
        let noted = new.noted.as_ref().map(|noted| notes::digest(&noted.new));
        Ok(is_set && notes::are_as_made(noted.as_deref(), &*place.dir, &place.name)?)
    }

    /// Where the old entry of a step lies, once it is in the stage.
    pub fn held_name(&self, number: usize) -> io::Result<CString> {
        let aside = aside_name(number);
        let is_aside = seen_at(self.stage(number), &aside)?.is_some();
        Ok(if is_aside { aside } else { entry_name(number) })
    }
}

/// The name of a step's entry in a stage.
pub(super) fn entry_name(number: usize) -> CString {
    c_name(number.to_string().as_bytes())
}

/// Where the old entry is put where it cannot be exchanged.
pub(super) fn aside_name(number: usize) -> CString {
    c_name(format!("{number}.old").as_bytes())
}

/// Whether what was seen is what we made, and nobody wrote to it since.
pub(super) fn is_ours(made: &Made, now: &Seen) -> bool {
    made.inode == Some(now.inode)
        && made.kind == now.kind
        && (made.kind == EntryKind::Directory
            || (made.size, made.mtime_ns) == (now.size, now.mtime_ns))
}

/// An owner that could not be set does not count.
fn has_owner(new: &Made, now: &Seen) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    new.owner.is_none_or(|owner| !is_root || owner == (now.uid, now.gid))
}

pub(super) fn open_root(row: &ApplyRow) -> Result<Root, Trouble> {
    Root::open(&row.root).map_err(|error| Trouble::io("open", row.root.display(), &error))
}

/// In the tree, or in the state directory when it has been kept already.
fn find_stage(engine: &Engine, row: &ApplyRow, root: &Root, at: usize) -> Result<Stage, Trouble> {
    let holder = &holders(row)?[at];
    let fail =
        |errno: Errno| Trouble::io("open the stage in", holder.shown(&row.root), &errno.into());
    let dir = root.dir(&holder.0);
    let in_tree =
        dir.map_err(|_| Errno::NOENT).and_then(|dir| open_listed(&*dir, &stage_name(row.id)));
    match in_tree {
        Ok(dir) => return Ok(Stage { dir, kept: false }),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(fail(errno)),
    }
    let kept = engine.store.undo_dir(row.id).join(at.to_string());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(&kept, flags, Mode::empty()) {
        Ok(dir) => Ok(Stage { dir, kept: true }),
        Err(errno) => Err(fail(errno)),
    }
}

/// Removes a stage and what lies in it; one that is gone is fine.
pub(super) fn remove_stage(
    disk: &Disk,
    root: &Root,
    holder: &Bytes,
    row: &ApplyRow,
) -> io::Result<()> {
    let name = stage_name(row.id);
    let Ok(holder) = root.dir(&holder.0) else { return Ok(()) };
    let dir = match open_listed(&*holder, &name) {
        Err(Errno::NOENT) => return Ok(()),
        answer => answer?,
    };
    clear(disk, &dir)?;
    disk.remove_dir(At { dir: &holder, name: &name })
}

/// Removes the entries of a directory of ours. Directories among them are
/// empty: what they were made to hold was staged beside them.
pub(super) fn clear(disk: &Disk, dir: &OwnedFd) -> io::Result<()> {
    let listed = ground::open_listed(dir, c".")?;
    for entry in rustix::fs::Dir::read_from(&listed)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let at = At { dir, name };
        match entry.file_type() {
            rustix::fs::FileType::Directory => disk.remove_dir(at)?,
            _ => disk.unlink(at)?,
        }
    }
    Ok(())
}
