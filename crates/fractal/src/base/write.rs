//! What is noted when: at the end of a run, after a promotion, an undo, an
//! update, and on the way through stages.

use super::file;
use super::notes::{Line, Notes};
use super::pen::Pen;
use crate::Engine;
use crate::view::path_of;
use fractal_jail::layer::{Changes, Source, View};
use fractal_model::{Change, Id, Result, SandboxPath};
use fractal_store::{Reads, SandboxRow};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Paths that one run may add.
const PATHS_MAX: usize = 200_000;

/// Writes down what the host has where a run changed something for the first
/// time. The host's file clock at the fork tells whether it had it then.
pub fn note(engine: &Engine, row: &SandboxRow, run: Id, changes: &Changes) -> Result<()> {
    let known = Notes::read(engine, row.id);
    let project = path_of(&row.directory)?;
    let mut pen = Pen::new(engine, row)?;
    let untouched = Untouched::since_last_note(engine, row, &known)?;
    let start = Start::of(engine, row, &known)?;
    let fresh =
        |change: &&Change| change.path.is_within(&project) && known.of(&change.path).is_none();
    let host = pen.host.clone();
    let mut reader = host.reader();
    let mut nothing_at: Option<SandboxPath> = None;
    let mut complete = !changes.truncated && changes.unreadable == 0;
    for (count, change) in changes.list.iter().filter(fresh).enumerate() {
        if nothing_at.as_ref().is_some_and(|above| change.path.is_within(above))
            || untouched.holds(change)?
        {
            continue;
        }
        if count >= PATHS_MAX {
            complete = false;
            break;
        }
        let entry = reader.lookup(&change.path)?;
        let marker_ns = start.ns(&change.path, entry.is_some())?;
        pen.note(&change.path, entry.as_ref(), &mut reader, marker_ns);
        if entry.is_none() {
            nothing_at = Some(change.path.clone());
        }
    }
    if complete {
        pen.line(&Line::Run { run });
    }
    pen.finish()
}

/// Since when a sandbox has seen the host at a path: since the fork, or since
/// it went back to a state in which it had not changed it.
struct Start {
    fork_ns: i64,
    back: Option<(i64, View)>,
}

impl Start {
    fn of(engine: &Engine, row: &SandboxRow, known: &Notes) -> Result<Start> {
        let mut start = Start { fork_ns: known.fork_ns(row), back: None };
        let Some(back) = known.back else { return Ok(start) };
        if back.leads_to(&engine.store.stack(row.top)?, row.base) {
            let shown = match back.to.or(row.base) {
                None => engine.host_view(row, Vec::new())?,
                Some(top) => engine.views(&SandboxRow { top, ..row.clone() }, row.base)?.top(),
            };
            start.back = Some((back.clock_ns, shown));
        }
        Ok(start)
    }

    fn ns(&self, path: &SandboxPath, is_there: bool) -> Result<i64> {
        let Some((back_ns, shown)) = &self.back else { return Ok(self.fork_ns) };
        Ok(match shown.lookup(path)? {
            Some(entry) if entry.source == Source::Host => *back_ns,
            None if !is_there => *back_ns,
            _ => self.fork_ns,
        })
    }
}

/// What a sandbox has not written since its last note. A path that did not
/// differ then and does now was changed outside, not by the sandbox.
struct Untouched {
    top: View,
    /// When the last note was written, by the clock of files.
    noted_ns: Option<i64>,
}

impl Untouched {
    fn since_last_note(engine: &Engine, row: &SandboxRow, known: &Notes) -> Result<Untouched> {
        let noted = known.last_run().and_then(|_| fs::metadata(file(&known.dir)).ok());
        let noted_ns = noted.map(|meta| meta.ctime() * 1_000_000_000 + meta.ctime_nsec());
        Ok(Untouched { top: engine.views(row, row.base)?.top(), noted_ns })
    }

    fn holds(&self, change: &Change) -> Result<bool> {
        let Some(noted_ns) = self.noted_ns else { return Ok(false) };
        let entry = self.top.lookup(&change.path)?;
        Ok(entry.is_some_and(|entry| entry.ctime_ns < noted_ns))
    }
}

/// After a promotion the host holds what the sandbox holds: that is its base
/// from now on, until it is taken back. Not so where two edits were joined:
/// there the sandbox lacks one of them, and stands on what it stood on.
pub fn note_promoted<'a>(
    engine: &Engine,
    row: &SandboxRow,
    promotion: Option<Id>,
    paths: impl Iterator<Item = &'a SandboxPath>,
) -> Result<()> {
    let mut pen = Pen::landed(engine, row)?;
    pen.by = promotion;
    pen.note_all(paths, i64::MAX)?;
    pen.finish()
}

/// A promotion was taken back, or brought again.
pub fn note_undone(engine: &Engine, row: &SandboxRow, promotion: Id, again: bool) -> Result<()> {
    let mut pen = Pen::new(engine, row)?;
    pen.line(&Line::Undone { undone: promotion, again });
    pen.finish()
}

/// The sandbox was moved onto what the host has now: nothing else is its base.
pub fn note_moved<'a>(
    engine: &Engine,
    row: &SandboxRow,
    paths: impl Iterator<Item = &'a SandboxPath>,
) -> Result<()> {
    let mut pen = Pen::landed(engine, row)?;
    pen.anew = true;
    pen.note_all(paths, i64::MAX)?;
    pen.finish()
}

/// After a promotion into a stage: what the stage shows now is a base of who
/// brought it, and what that one started from is a base of the stage. So a
/// change is compared with what it was made on, however far it has come.
pub fn note_staged<'a>(
    engine: &Engine,
    from: &SandboxRow,
    stage: &SandboxRow,
    shows: &View,
    paths: impl Iterator<Item = &'a SandboxPath> + Clone,
) -> Result<()> {
    let known = Notes::read(engine, from.id);
    let mut pen = Pen::new(engine, stage)?;
    for path in paths.clone() {
        match known.of(path) {
            Some(states) => pen.copy(path, states, &known.dir),
            None => pen.note_all([path].into_iter(), known.fork_ns(from))?,
        }
    }
    pen.finish()?;
    let mut pen = Pen::landed(engine, from)?;
    pen.host = shows.clone();
    pen.note_all(paths, i64::MAX)?;
    pen.finish()
}
