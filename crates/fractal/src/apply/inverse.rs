//! The way back from a promotion that is done, possibly weeks later.
//!
//! Conflict is decided by value: a path that still is what the promotion
//! wrote gets back what stood there; one that already is what stood there
//! needs nothing; anything else is somebody's later work and is named. The
//! result is an ordinary list of steps, carried out like any other.

use super::ground::{Place, Root, c_name, open_there};
use super::plan::{Act, Bytes, Made, Plan, Planned};
use super::see::seen_at;
use super::work::open_root;
use super::{Content, New, Noted, Seen, Step, What, content, notes};
use crate::Engine;
use fractal_jail::layer::Attributes;
use fractal_model::{Conflict, EntryKind, Error, RecordBody, Result, SandboxPath};
use fractal_store::ApplyRow;
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What taking a promotion back means today.
pub(crate) struct Inverse {
    /// What the journal says of the promotion.
    pub record: RecordBody,
    pub steps: Vec<Step>,
    pub conflicts: Vec<Conflict>,
}

/// How a path stands to a promotion.
enum Standing {
    /// As the promotion wrote it.
    New,
    /// As before the promotion.
    Old,
    /// Something else, in words.
    Other(String),
}

/// Works out the way back, of everything or of what lies at or below some
/// paths. Changes nothing.
pub(crate) fn inverse(engine: &Engine, row: &ApplyRow, only: &[SandboxPath]) -> Result<Inverse> {
    let dir = engine.store.undo_dir(row.id);
    let plan = Plan::read(&dir.join("plan"))?;
    let look = Look { root: open_root(row).map_err(Error::from)?, row, dir };
    let mut found = Inverse { record: plan.head.record, steps: Vec::new(), conflicts: Vec::new() };
    let wanted = wanted(row, &plan.steps, only)?;
    for (number, step) in plan.steps.iter().enumerate().filter(|(number, _)| wanted[*number]) {
        let fail = |error: io::Error| {
            Error::denied(format!("cannot look at {}: {error}", step.path.shown(&row.root)))
        };
        let now = look.now(step).map_err(fail)?;
        match look.standing(number, step, now.as_ref()).map_err(fail)? {
            Standing::Old => {}
            Standing::New => found.steps.push(look.step(number, step, now.map(|now| now.1))?),
            Standing::Other(why) => found.conflicts.push(conflict(row, &step.path, why)),
        }
    }
    let strangers = look.strangers(&found)?;
    found.conflicts.extend(strangers);
    Ok(found)
}

/// Which steps are to be taken back. What stood in a directory that the
/// promotion took away needs that directory again.
fn wanted(row: &ApplyRow, steps: &[Planned], only: &[SandboxPath]) -> Result<Vec<bool>> {
    if only.is_empty() {
        return Ok(vec![true; steps.len()]);
    }
    let whole = |step: &Planned| {
        SandboxPath::parse([row.root.as_os_str().as_bytes(), b"/", &step.path.0].concat())
    };
    let paths = steps.iter().map(whole).collect::<Result<Vec<_>>>()?;
    for path in only {
        if !paths.iter().any(|written| written.is_within(path)) {
            return Err(Error::invalid(format!("{} wrote nothing at {path}", row.id))
                .hint(format!("`fractal undo {} --dry-run` lists what it wrote", row.id)));
        }
    }
    let is_asked = |path: &SandboxPath| only.iter().any(|at| path.is_within(at));
    let mut wanted: Vec<bool> = paths.iter().map(is_asked).collect();
    let is_dir = |kind: Option<EntryKind>| kind == Some(EntryKind::Directory);
    for at in 0..steps.len() {
        let old = steps[at].old.as_ref().map(|old| old.kind);
        let new = steps[at].new.as_ref().map(|new| new.kind);
        // A directory stands before what is in it.
        let in_it =
            || (at + 1..steps.len()).take_while(|inside| paths[*inside].is_within(&paths[at]));
        if is_dir(old) && !is_dir(new) && in_it().any(|inside| wanted[inside]) {
            wanted[at] = true;
        }
    }
    Ok(wanted)
}

/// Whether every path is still as the promotion left it. Needs nothing of what
/// stood there before.
pub(crate) fn still_stands(engine: &Engine, row: &ApplyRow) -> Result<bool> {
    let dir = engine.store.undo_dir(row.id);
    let plan = Plan::read(&dir.join("plan"))?;
    let look = Look { root: open_root(row).map_err(Error::from)?, row, dir };
    for step in &plan.steps {
        let is_new = || is_as_written(step, look.now(step)?.as_ref());
        let fail = |error: io::Error| {
            Error::denied(format!("cannot look at {}: {error}", step.path.shown(&row.root)))
        };
        if !is_new().map_err(fail)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn conflict(row: &ApplyRow, path: &Bytes, why: String) -> Conflict {
    Conflict { path: path.shown(&row.root), why }
}

struct Look<'a> {
    root: Root,
    row: &'a ApplyRow,
    dir: PathBuf,
}

impl Look<'_> {
    /// What stands at a path; a path through something else than directories
    /// does not exist.
    fn now(&self, step: &Planned) -> io::Result<Option<(Place, Seen)>> {
        match self.root.place(&step.path.0) {
            Ok(place) => {
                let seen = seen_at(&*place.dir, &place.name)?;
                Ok(seen.map(|seen| (place, seen)))
            }
            Err(error) if super::survey::is_no_way(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn standing(
        &self,
        number: usize,
        step: &Planned,
        now: Option<&(Place, Seen)>,
    ) -> io::Result<Standing> {
        if is_as_written(step, now)? {
            return Ok(match self.was_edited_in_keeping(number, step) {
                Some(kept) => Standing::Other(format!(
                    "what stood there was edited since, under another name or by a program that \
                     had it open: it is in {}",
                    kept.display()
                )),
                None => Standing::New,
            });
        }
        let is_old = match (&step.old, now) {
            (None, None) => true,
            (Some(old), Some((place, now))) => self.is_as_kept(number, step, old, place, now)?,
            _ => false,
        };
        let other = |why: &str| Standing::Other(why.to_owned());
        Ok(match now {
            _ if is_old => Standing::Old,
            None => other("it was deleted since"),
            Some(_) if step.new.is_none() => other("it was made again since"),
            Some(_) => other("it was edited since"),
        })
    }

    /// Where what stood there is kept, if it is no longer what stood there: the
    /// very file is kept where it can be, and may have further names or be
    /// open in a program. A copy is nobody's but ours.
    fn was_edited_in_keeping(&self, number: usize, step: &Planned) -> Option<PathBuf> {
        let old = step.old.as_ref().filter(|old| old.kind == EntryKind::File)?;
        let path = self.kept(number, step);
        let kept = Seen::of(&rustix::fs::lstat(&path).ok()?);
        let is_itself = kept.inode == old.inode && step.act() != Act::Change;
        (is_itself && !old.is_same_but_moved(&kept)).then_some(path)
    }

    fn is_as_kept(
        &self,
        number: usize,
        step: &Planned,
        old: &Seen,
        place: &Place,
        now: &Seen,
    ) -> io::Result<bool> {
        if old.kind != now.kind || !same_mode(old.mode, now) {
            return Ok(false);
        }
        match old.kind {
            _ if step.act() == Act::Change => notes::are_as_before(step, &*place.dir, &place.name),
            EntryKind::File => {
                let kept = File::open(self.kept(number, step))?;
                let now = open_file(place)?;
                let noted = Attributes::of(&kept)? == Attributes::of(&now)?;
                Ok(noted && content::is_equal(&now, &kept)?)
            }
            EntryKind::Symlink => Ok(read_link(place)? == self.kept_link(number, step)?),
            EntryKind::Directory => Ok(true),
            EntryKind::Special => Ok(false),
        }
    }

    /// The step that puts back what stood there.
    fn step(&self, number: usize, step: &Planned, now: Option<Seen>) -> Result<Step> {
        let path = [self.row.root.as_os_str().as_bytes(), b"/", &step.path.0].concat();
        let new = match &step.old {
            None => None,
            Some(old) => Some(self.old_as_new(number, step, old)?),
        };
        Ok(Step { path: SandboxPath::parse(path)?, old: now, new })
    }

    fn old_as_new(&self, number: usize, step: &Planned, old: &Seen) -> Result<New> {
        let in_place = step.act() == Act::Change;
        let lost = |error: io::Error| {
            let message =
                format!("what stood at {} is gone: {error}", step.path.shown(&self.row.root));
            Error::new(fractal_model::Code::Corrupt, message).hint("run `fractal doctor`")
        };
        let what = match old.kind {
            EntryKind::Directory => What::Directory,
            EntryKind::File if in_place => What::File(Content::Same),
            EntryKind::File => What::File(Content::Kept(self.kept(number, step))),
            EntryKind::Symlink => What::Symlink(self.kept_link(number, step).map_err(lost)?),
            EntryKind::Special => What::Special(self.kept(number, step)),
        };
        // What the promotion did not give away was never taken from its owner.
        let given = !in_place || step.new.as_ref().is_some_and(|new| new.owner.is_some());
        let owner = given.then_some((old.uid, old.gid));
        let noted = self.noted(number, step, old).map_err(lost)?;
        Ok(New { mode: old.mode, owner, mtime_ns: old.mtime_ns, noted, what })
    }

    /// The attributes of a directory that stood there; a file brings its own.
    fn noted(&self, number: usize, step: &Planned, old: &Seen) -> io::Result<Option<Noted>> {
        if old.kind != EntryKind::Directory {
            return Ok(None);
        }
        if step.act() == Act::Change {
            let noted = step.new.as_ref().and_then(|new| new.noted.as_ref());
            return Ok(noted.map(Noted::inverse));
        }
        let kept = Attributes::of_path(&self.kept(number, step))?;
        Ok((!kept.is_empty()).then(|| Noted::fresh(kept)))
    }

    /// Where what stood there is kept.
    fn kept(&self, number: usize, step: &Planned) -> PathBuf {
        let stage = self.dir.join(step.stage.to_string());
        let aside = stage.join(format!("{number}.old"));
        match aside.symlink_metadata() {
            Ok(_) => aside,
            Err(_) => stage.join(number.to_string()),
        }
    }

    fn kept_link(&self, number: usize, step: &Planned) -> io::Result<Vec<u8>> {
        let target = std::fs::read_link(self.kept(number, step))?;
        Ok(target.into_os_string().into_encoded_bytes())
    }

    /// Entries of directories that would go, which the promotion did not
    /// bring: going with the directory, they would be lost.
    fn strangers(&self, found: &Inverse) -> Result<Vec<Conflict>> {
        let goes = |step: &&Step| step.new.as_ref().is_none_or(|new| !is_directory(new));
        let going: HashSet<&SandboxPath> =
            found.steps.iter().filter(goes).map(|step| &step.path).collect();
        let mut list = Vec::new();
        for step in found.steps.iter().filter(goes) {
            let was_dir = step.old.as_ref().is_some_and(|old| old.kind == EntryKind::Directory);
            if !was_dir {
                continue;
            }
            let fail = |error: io::Error| {
                Error::denied(format!("cannot look into {}: {error}", step.path))
            };
            for name in self.names(&step.path).map_err(fail)? {
                let path = step.path.join(&name)?;
                if !going.contains(&path) {
                    let why = "it came later, into a directory of the promotion".to_owned();
                    list.push(Conflict { path: path.to_string(), why });
                }
            }
        }
        Ok(list)
    }

    fn names(&self, path: &SandboxPath) -> io::Result<Vec<Vec<u8>>> {
        let below = &path.relative()[self.row.root.as_os_str().len().saturating_sub(1)..];
        let below = below.strip_prefix(b"/").unwrap_or(below);
        let place = self.root.place(below)?;
        let dir = super::ground::open_listed(&*place.dir, &c_name(place.name.to_bytes()))?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }
}

fn is_directory(new: &New) -> bool {
    matches!(new.what, What::Directory)
}

/// Whether a path is what the promotion wrote there.
fn is_as_written(step: &Planned, now: Option<&(Place, Seen)>) -> io::Result<bool> {
    match (&step.new, now) {
        (None, None) => Ok(true),
        (Some(new), Some((place, now))) => is_as_made(new, place, now),
        _ => Ok(false),
    }
}

/// By content: a time and a size can be kept through an edit.
fn is_as_made(new: &Made, place: &Place, now: &Seen) -> io::Result<bool> {
    if new.kind != now.kind || !same_mode(new.mode, now) {
        return Ok(false);
    }
    if !notes::are_as_made(new.attributes.as_deref(), &*place.dir, &place.name)? {
        return Ok(false);
    }
    match (new.kind, &new.sha256, &new.target) {
        (EntryKind::File, Some(hash), _) => {
            Ok(new.size == now.size && content::hash(&open_file(place)?)? == *hash)
        }
        (EntryKind::Symlink, _, Some(target)) => Ok(read_link(place)? == target.0),
        // Changed in place, or a directory: the mode is all there is.
        _ => Ok(true),
    }
}

/// Links have no mode of their own.
fn same_mode(mode: u32, now: &Seen) -> bool {
    now.kind == EntryKind::Symlink || mode == now.mode
}

fn open_file(place: &Place) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    Ok(File::from(open_there(&*place.dir, place.name.to_bytes(), flags)?))
}

fn read_link(place: &Place) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlinkat(&*place.dir, &place.name, Vec::new())?.into_bytes())
}
