//! Before anything is written: is the job possible, and where is its stage?
//!
//! Pure looking. Every step is compared with what stands there now, so that a
//! tree which somebody edited since is refused with all its conflicts before
//! a byte is copied. The same comparison is made again at every exchange.

use super::ground::{Root, filesystem, split};
use super::plan::{Bytes, walk_key};
use super::see::seen_at;
use super::trouble::{Clash, Trouble};
use super::{Content, Job, Step, What};
use fractal_model::{EntryKind, Error, Result, SandboxPath};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::ffi::OsStrExt;

/// What the looking found.
pub(super) struct Survey {
    pub root: Root,
    /// In the order of a walk.
    pub steps: Vec<Step>,
    /// Per step its path below the root and its stage.
    pub places: Vec<(Bytes, usize)>,
    /// Directories, by their path below the root, that get a stage: the root,
    /// and the topmost directory of every other filesystem.
    pub holders: Vec<Bytes>,
}

/// Looks at everything a job is about.
pub(super) fn survey(job: &mut Job<'_>) -> Result<Survey> {
    let root = Root::open(&job.root)
        .map_err(|error| Error::from(Trouble::io("open", job.root.display(), &error)))?;
    let base = SandboxPath::parse(job.root.as_os_str().as_bytes())?;
    let mut steps = std::mem::take(&mut job.steps);
    steps.retain(|step| step.old.is_some() || step.new.is_some());
    steps.sort_by_cached_key(|step| walk_key(step.path.relative()));
    let mut found = Survey { root, steps: Vec::new(), places: Vec::new(), holders: Vec::new() };
    let mut stages = Stages::default();
    stages.of(&found.root, b"").map_err(|error| cannot_look(&base, &error))?;
    let mut clashes = Vec::new();
    let made: HashSet<&SandboxPath> = steps
        .iter()
        .filter(|step| matches!(step.new.as_ref().map(|new| &new.what), Some(What::Directory)))
        .map(|step| &step.path)
        .collect();
    for (at, step) in steps.iter().enumerate() {
        check_shape(step, &base, at.checked_sub(1).map(|before| &steps[before]))?;
        let relative = below(&step.path, &base);
        let makes_way = step.path.parent().is_some_and(|parent| made.contains(&parent));
        let clash = clash(&found.root, step, relative, makes_way);
        if let Some(why) = clash.map_err(|error| cannot_look(&step.path, &error))? {
            clashes.push(Clash { path: step.path.to_string(), why });
            continue;
        }
        let stage = stages
            .of(&found.root, split(relative).0)
            .map_err(|error| cannot_look(&step.path, &error))?;
        found.places.push((Bytes(relative.to_vec()), stage));
    }
    if !clashes.is_empty() {
        return Err(Trouble::Conflict(clashes).into());
    }
    found.steps = steps;
    found.holders = stages.holders;
    Ok(found)
}

fn cannot_look(path: &SandboxPath, error: &io::Error) -> Error {
    Trouble::io("look at", path, error).into()
}

fn below<'p>(path: &'p SandboxPath, base: &SandboxPath) -> &'p [u8] {
    let cut = base.relative().len();
    let rest = &path.relative()[cut..];
    rest.strip_prefix(b"/").unwrap_or(rest)
}

/// Refuses what makes no sense, whatever stands there.
fn check_shape(step: &Step, base: &SandboxPath, before: Option<&Step>) -> Result<()> {
    let wrong = |why: &str| Err(Error::internal(format!("{}: {why}", step.path)));
    if !step.path.is_within(base) {
        return wrong("it lies outside of the directory that is written to");
    }
    if before.is_some_and(|before| before.path == step.path) {
        return wrong("it is listed twice");
    }
    let old = step.old.as_ref().map(|old| old.kind);
    let in_place = match step.new.as_ref().map(|new| &new.what) {
        Some(What::File(Content::Same)) if old != Some(EntryKind::File) => {
            return wrong("there is no file whose content could stay");
        }
        Some(What::File(Content::Same)) => true,
        Some(What::Directory) => old == Some(EntryKind::Directory),
        _ => false,
    };
    if step.path == *base && !in_place {
        return wrong("the directory that is written to can only change its mode");
    }
    Ok(())
}

/// How what stands there differs from what the step expects.
fn clash(
    root: &Root,
    step: &Step,
    relative: &[u8],
    makes_way: bool,
) -> io::Result<Option<&'static str>> {
    let place = match root.place(relative) {
        Ok(place) => place,
        // Its directory is made, or put into the place of something else, by
        // a step of its own.
        Err(error) if is_no_way(&error) => {
            let expected = makes_way && step.old.is_none();
            return Ok((!expected).then_some("its directory is gone"));
        }
        Err(error) => return Err(error),
    };
    let now = seen_at(&*place.dir, &place.name)?;
    Ok(match (&step.old, &now) {
        (None, None) => None,
        (Some(old), Some(now)) if old.is_untouched(now) => None,
        (None, Some(_)) => Some("it exists now"),
        (Some(_), None) => Some("it is gone"),
        (Some(old), Some(now)) if old.kind != now.kind => Some("it is something else now"),
        (Some(_), Some(_)) => Some("it was edited"),
    })
}

pub(super) fn is_no_way(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// One stage per filesystem.
#[derive(Default)]
struct Stages {
    holders: Vec<Bytes>,
    by_filesystem: HashMap<(u64, u64), usize>,
    /// The last answer: neighbours share their directory.
    last: Option<(Vec<u8>, usize)>,
}

impl Stages {
    /// The stage for entries of a directory.
    fn of(&mut self, root: &Root, dir: &[u8]) -> io::Result<usize> {
        if let Some((path, stage)) = &self.last
            && path == dir
        {
            return Ok(*stage);
        }
        let (mut at, mut key) = nearest(root, dir)?;
        let known = self.by_filesystem.get(&key).copied();
        let stage = match known {
            Some(stage) => stage,
            None => {
                // Up to the topmost directory of this filesystem.
                while !at.is_empty() {
                    let (above, above_key) = nearest(root, split(at).0)?;
                    if above_key != key {
                        break;
                    }
                    (at, key) = (above, above_key);
                }
                self.holders.push(Bytes(at.to_vec()));
                self.by_filesystem.insert(key, self.holders.len() - 1);
                self.holders.len() - 1
            }
        };
        self.last = Some((dir.to_vec(), stage));
        Ok(stage)
    }
}

/// The nearest directory at or above a path that exists, and its filesystem.
fn nearest<'p>(root: &Root, mut dir: &'p [u8]) -> io::Result<(&'p [u8], (u64, u64))> {
    loop {
        match root.dir(dir) {
            Ok(fd) => return Ok((dir, filesystem(&fd)?)),
            Err(error) if is_no_way(&error) && !dir.is_empty() => dir = split(dir).0,
            Err(error) => return Err(error),
        }
    }
}
