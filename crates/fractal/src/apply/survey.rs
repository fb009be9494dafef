//! Before anything is written: is the job possible, and where is its stage?
//!
//! Pure looking. Every step is compared with what stands there now, so that a
//! tree which somebody edited since is refused with all its conflicts before
//! a byte is copied. The same comparison is made again at every exchange.

use super::ground::{Root, filesystem, split};
use super::inherit::Groups;
use super::plan::{Bytes, walk_key};
use super::see::seen_at;
use super::trouble::{Clash, Trouble};
use super::{Content, Job, Seen, Step, What, links};
use fractal_jail::layer::Attributes;
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
    /// Directories, by their path below the root, that get a stage: on each
    /// filesystem the one that all steps there have in common. It is no step
    /// itself, so it stays where it is, and who may write there may stage.
    pub holders: Vec<Bytes>,
}

/// Looks at everything a job is about. What comes `back` stood there before
/// and takes over nothing.
pub(super) fn survey(job: &mut Job<'_>, back: bool) -> Result<Survey> {
    let root = Root::open(&job.root)
        .map_err(|error| Error::from(Trouble::io("open", job.root.display(), &error)))?;
    let base = SandboxPath::parse(job.root.as_os_str().as_bytes())?;
    let mut steps = std::mem::take(&mut job.steps);
    steps.retain(|step| step.old.is_some() || step.new.is_some());
    steps.sort_by_cached_key(|step| walk_key(step.path.relative()));
    if job.view.is_some() && !back {
        links::part(&mut steps, &root, &base);
    }
    let mut found = Survey { root, steps: Vec::new(), places: Vec::new(), holders: Vec::new() };
    let (mut stages, mut groups) = (Stages::default(), Groups::default());
    let mut clashes = Vec::new();
    let made: HashSet<SandboxPath> = steps
        .iter()
        .filter(|step| matches!(step.new.as_ref().map(|new| &new.what), Some(What::Directory)))
        .map(|step| step.path.clone())
        .collect();
    let mut before = None;
    for step in &mut steps {
        check_shape(step, &base, before.as_ref())?;
        before = Some(step.path.clone());
        let relative = below(&step.path, &base).to_vec();
        let makes_way = step.path.parent().is_some_and(|parent| made.contains(&parent));
        let now = look(&found.root, step, &relative, makes_way);
        match now.map_err(|error| cannot_look(&step.path, &error))? {
            // With the bits that whoever planned it may not have seen.
            Ok(now) => step.old = now,
            Err(why) => {
                clashes.push(Clash { path: step.path.to_string(), why });
                continue;
            }
        }
        let dir = split(&relative).0;
        let stage = stages.of(&found.root, dir).map_err(|error| cannot_look(&step.path, &error))?;
        if !back {
            groups
                .pass_on(step, &found.root, dir)
                .map_err(|error| cannot_look(&step.path, &error))?;
        }
        found.places.push((Bytes(relative), stage));
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

pub(super) fn below<'p>(path: &'p SandboxPath, base: &SandboxPath) -> &'p [u8] {
    let cut = base.relative().len();
    let rest = &path.relative()[cut..];
    rest.strip_prefix(b"/").unwrap_or(rest)
}

/// Refuses what makes no sense, whatever stands there.
fn check_shape(step: &Step, base: &SandboxPath, before: Option<&SandboxPath>) -> Result<()> {
    let wrong = |why: &str| Err(Error::internal(format!("{}: {why}", step.path)));
    if !step.path.is_within(base) {
        return wrong("it lies outside of the directory that is written to");
    }
    if before == Some(&step.path) {
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

/// What stands there, or how it differs from what the step expects.
fn look(
    root: &Root,
    step: &Step,
    relative: &[u8],
    makes_way: bool,
) -> io::Result<std::result::Result<Option<Seen>, &'static str>> {
    let noted = step.new.as_ref().and_then(|new| new.noted.as_ref());
    let in_place = matches!(&step.old, Some(old) if old.kind == EntryKind::Directory);
    let now = match root.place(relative) {
        Ok(place) => {
            if let Some(noted) = noted.filter(|_| in_place)
                && Attributes::of_name(&*place.dir, &place.name).ok().as_ref() != Some(&noted.old)
            {
                return Ok(Err("it was edited"));
            }
            seen_at(&*place.dir, &place.name)?
        }
        // Its directory is made, or put into the place of something else, by
        // a step of its own.
        Err(error) if is_no_way(&error) && makes_way => None,
        Err(error) if is_no_way(&error) => return Ok(Err("its directory is gone")),
        Err(error) => return Err(error),
    };
    Ok(match (&step.old, now) {
        (None, None) => Ok(None),
        (Some(old), Some(now)) if old.is_untouched(&now) => Ok(Some(now)),
        (None, Some(_)) => Err("it exists now"),
        (Some(_), None) => Err("it is gone"),
        (Some(old), Some(now)) if old.kind != now.kind => Err("it is something else now"),
        (Some(_), Some(_)) => Err("it was edited"),
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
        let (at, key) = nearest(root, dir)?;
        let known = self.by_filesystem.get(&key).copied();
        let stage = known.unwrap_or(self.holders.len());
        match self.holders.get_mut(stage) {
            Some(holder) => *holder = Bytes(common(&holder.0, at).to_vec()),
            None => self.holders.push(Bytes(at.to_vec())),
        }
        self.by_filesystem.insert(key, stage);
        self.last = Some((dir.to_vec(), stage));
        Ok(stage)
    }
}

/// The directory that both lie in.
fn common<'p>(one: &'p [u8], other: &[u8]) -> &'p [u8] {
    let mut above = one;
    loop {
        let inside = other
            .strip_prefix(above)
            .is_some_and(|rest| above.is_empty() || rest.is_empty() || rest.starts_with(b"/"));
        if inside {
            return above;
        }
        above = split(above).0;
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

#[cfg(test)]
mod tests {
    use super::common;

    #[test]
    fn two_directories_lie_in_a_third() {
        let check = |one: &str, other: &str, expect: &str| {
            assert_eq!(common(one.as_bytes(), other.as_bytes()), expect.as_bytes());
            assert_eq!(common(other.as_bytes(), one.as_bytes()), expect.as_bytes());
        };
        check("a/b", "a/b", "a/b");
        check("a/b/c", "a/b", "a/b");
        check("a/b", "a/bc", "a");
        check("a", "b", "");
        check("", "a/b", "");
    }
}
