//! Visiting everything below a path of a view.
//!
//! Iterative, with the directories on the way down kept open: each name is
//! resolved from its parent's descriptor, so the cost of an entry does not
//! grow with its depth. Far up the way the descriptors are closed and opened
//! again by path on the way back.

use super::dir::{Dir, Found};
use super::error::is_fatal;
use super::view::View;
use super::{Bounds, Entry, LayerError, PATH_BYTES_MAX, Result};
use fractal_model::SandboxPath;
use std::ffi::CString;

/// What to do after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Go on, into it if it is a directory.
    Continue,
    /// Go on, but not into it.
    Skip,
    /// End the walk.
    Stop,
}

/// How far a walk came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Entries visited.
    pub entries: u64,
    /// Whether a bound cut it short.
    pub truncated: bool,
    /// Directories and entries that could not be read.
    pub unreadable: u64,
}

/// A directory whose subdirectories are still to be entered.
struct Frame {
    /// `None` while it is closed to save descriptors.
    dir: Option<Dir>,
    path: SandboxPath,
    /// Reversed, so that `pop` gives the next in order.
    todo: Vec<(CString, usize)>,
}

impl View {
    /// Calls `visit` for every entry below `path` (not for `path` itself):
    /// the entries of one directory in order, then the directories in it.
    pub fn walk(
        &self,
        path: &SandboxPath,
        bounds: &Bounds,
        mut visit: impl FnMut(&SandboxPath, &Entry) -> Step,
    ) -> Result<Walked> {
        let fail = |errno| LayerError::io("walk", path, errno);
        let mut walked = Walked::default();
        let Some(start) = self.dir(path).map_err(fail)? else { return Ok(walked) };
        let mut stack: Vec<Frame> = Vec::new();
        let mut next = Some(start);
        loop {
            if let Some(dir) = next.take() {
                match self.visit_dir(dir, bounds, &mut walked, &mut visit)? {
                    Some(frame) => stack.push(frame),
                    None => return Ok(walked),
                }
                if let Some(far) = stack.len().checked_sub(self.open_depth_max()) {
                    stack[far].dir = None;
                }
            }
            let Some(frame) = stack.last_mut() else { return Ok(walked) };
            let Some((name, at)) = frame.todo.pop() else {
                stack.pop();
                continue;
            };
            next = self.enter(frame, &name, at, &mut walked)?;
            if stack.len() >= bounds.depth_max && next.take().is_some() {
                walked.truncated = true;
            }
        }
    }

    fn enter(
        &self,
        frame: &mut Frame,
        name: &CString,
        at: usize,
        walked: &mut Walked,
    ) -> Result<Option<Dir>> {
        let fail = |errno| LayerError::io("walk", &frame.path, errno);
        let opened = match &frame.dir {
            Some(dir) => dir.descend(self, name, at).map(Some),
            None => self.dir(&frame.path).and_then(|dir| match dir {
                Some(dir) => {
                    let child = dir.descend(self, name, at).map(Some);
                    frame.dir = Some(dir);
                    child
                }
                None => Ok(None),
            }),
        };
        match opened {
            Ok(Some(dir)) => return Ok(Some(dir)),
            Err(errno) if is_fatal(errno) => return Err(fail(errno)),
            Ok(None) | Err(_) => walked.unreadable += 1,
        }
        Ok(None)
    }

    /// Visits the entries of one directory; `None` means stop.
    fn visit_dir(
        &self,
        dir: Dir,
        bounds: &Bounds,
        walked: &mut Walked,
        visit: &mut impl FnMut(&SandboxPath, &Entry) -> Step,
    ) -> Result<Option<Frame>> {
        let fail = |errno| LayerError::io("list", &dir.path, errno);
        let room = bounds.entries_max.saturating_sub(walked.entries);
        let listing = dir.list(room).map_err(fail)?;
        walked.truncated |= listing.truncated;
        walked.unreadable += u64::from(listing.unreadable);
        let mut todo = Vec::new();
        for (name, at) in listing.names {
            let (entry, at) = match dir.find(self, &name, at) {
                Ok(Found::Entry(entry, at)) => (entry, at),
                Ok(Found::Absent | Found::Whiteout) => continue,
                Err(errno) if is_fatal(errno) => return Err(fail(errno)),
                Err(_) => {
                    walked.unreadable += 1;
                    continue;
                }
            };
            let Some(path) = join(&dir.path, &name) else {
                walked.truncated = true;
                continue;
            };
            if walked.entries >= bounds.entries_max {
                walked.truncated = true;
                return Ok(None);
            }
            walked.entries += 1;
            match visit(&path, &entry) {
                Step::Stop => return Ok(None),
                Step::Continue if entry.is_dir() => todo.push((name, at)),
                Step::Continue | Step::Skip => {}
            }
        }
        todo.reverse();
        Ok(Some(Frame { path: dir.path.clone(), dir: Some(dir), todo }))
    }
}

/// The child's path, unless it is too long to be reported.
pub(super) fn join(path: &SandboxPath, name: &CString) -> Option<SandboxPath> {
    let name = name.to_bytes();
    if path.relative().len() + 1 + name.len() > PATH_BYTES_MAX {
        return None;
    }
    path.join(name).ok()
}
