//! What new entries take over from what stands there, as from any program that
//! makes a file: the group of a shared directory.
//!
//! In a directory with the set-gid bit everything new belongs to its group,
//! and new directories pass that on. A stage is not that directory, so it has
//! to be said. What replaces something keeps its group. Only groups that we may
//! give count: where the kernel would drop the bit, it is not promised.
//! The same holds for the bit of a directory that the job sets itself.

use super::ground::Root;
use super::survey::is_no_way;
use super::{Content, Seen, Step, What};
use fractal_model::{EntryKind, SandboxPath};
use std::collections::HashMap;
use std::io;

const SET_GID: u32 = 0o2000;

/// Groups of shared directories, those among them that the job makes.
#[derive(Default)]
pub(super) struct Groups {
    made: HashMap<SandboxPath, u32>,
    /// The last directory that exists, and its answer.
    last: Option<(SandboxPath, Option<u32>)>,
}

impl Groups {
    /// Lets a step take over what its place gives; `relative` is its directory
    /// below the root. Steps come in the order of a walk.
    pub fn pass_on(&mut self, step: &mut Step, root: &Root, relative: &[u8]) -> io::Result<()> {
        if !is_made(step) {
            promise(step);
            return Ok(());
        }
        let Some(dir) = step.path.parent() else { return Ok(()) };
        let shared = self.of(dir, root, relative)?;
        let (old, Some(new)) = (step.old.as_ref(), step.new.as_mut()) else { return Ok(()) };
        let is_dir = matches!(new.what, What::Directory);
        let group = old.map(|old| old.gid).or(shared).filter(|group| may_give(*group));
        if let (None, Some(group)) = (new.owner, group) {
            new.owner = Some((rustix::process::geteuid().as_raw(), group));
        }
        if let (true, Some(_), Some((_, group))) = (is_dir, shared, new.owner)
            && may_give(group)
        {
            new.mode |= SET_GID;
            self.made.insert(step.path.clone(), group);
        }
        Ok(())
    }

    fn of(&mut self, dir: SandboxPath, root: &Root, relative: &[u8]) -> io::Result<Option<u32>> {
        if let Some(group) = self.made.get(&dir) {
            return Ok(Some(*group));
        }
        if let Some((last, group)) = &self.last
            && *last == dir
        {
            return Ok(*group);
        }
        let group = match root.dir(relative) {
            Ok(fd) => {
                let seen = Seen::of(&rustix::fs::fstat(&*fd)?);
                (seen.mode & SET_GID != 0).then_some(seen.gid)
            }
            Err(error) if is_no_way(&error) => None,
            Err(error) => return Err(error),
        };
        self.last = Some((dir, group));
        Ok(group)
    }
}

/// Takes the set-gid bit off a directory that stays, where the kernel would.
fn promise(step: &mut Step) {
    let (Some(old), Some(new)) = (&step.old, &mut step.new) else { return };
    let group = new.owner.map_or(old.gid, |(_, group)| group);
    if old.mode & SET_GID == 0 && !may_give(group) {
        new.mode &= !SET_GID;
    }
}

/// Whether a step makes something: what changes in place keeps all it has.
fn is_made(step: &Step) -> bool {
    let was_dir = step.old.as_ref().is_some_and(|old| old.kind == EntryKind::Directory);
    match step.new.as_ref().map(|new| &new.what) {
        None | Some(What::File(Content::Same)) => false,
        Some(What::Directory) => !was_dir,
        Some(_) => true,
    }
}

fn may_give(group: u32) -> bool {
    let is_own = || rustix::process::getegid().as_raw() == group;
    let among = || {
        rustix::process::getgroups().is_ok_and(|all| all.iter().any(|one| one.as_raw() == group))
    };
    rustix::process::geteuid().is_root() || is_own() || among()
}
