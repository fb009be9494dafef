//! Writing into reality: plan, then do.
//!
//! A promotion arrives here as a list of [`Step`]s: for each path what stands
//! there now and what shall stand there. New contents are staged beside their
//! targets on the same filesystem and flushed; the decision to go on is one
//! durable row; then each path is exchanged in one system call and what stood
//! there is kept for `undo`. A process that dies on the way leaves a row, and
//! whoever opens the state directory next goes back (before the decision) or
//! on (after it): old or new, never between.

mod back;
mod content;
mod disk;
mod ground;
pub(crate) mod holders;
mod inherit;
pub(crate) mod inverse;
mod keep;
mod links;
mod notes;
mod plan;
mod recover;
mod see;
mod stage;
mod survey;
mod swap;
#[cfg(test)]
mod tests;
mod trouble;
mod work;

pub(crate) use disk::Hook;
pub(crate) use notes::{Noted, digest as digest_of_attributes};
pub(crate) use plan::Bytes;
pub(crate) use recover::recover;

use crate::Engine;
use crate::attest::Facts;
use disk::Disk;
use fractal_jail::layer::View;
use fractal_model::{Code, EntryKind, Error, Id, RecordBody, Result, SandboxPath};
use fractal_store::{ApplyRow, ApplyState, StoreError, Worker, new_id, now_ms};
use plan::{Head, Plan, Planned};
use stage::Stager;
use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use survey::Survey;
use trouble::Trouble;
use work::Work;

/// One path of the host as it shall become.
#[derive(Clone, Debug)]
pub struct Step {
    /// Where, from the root of the machine.
    pub path: SandboxPath,
    /// What stands there and must still stand there when it is exchanged.
    pub old: Option<Seen>,
    /// What shall stand there.
    pub new: Option<New>,
}

/// What was seen at a path of the host: enough to notice any change since.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Seen {
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Last change of the content.
    pub mtime_ns: i64,
    /// Last change of anything about it.
    pub ctime_ns: i64,
    /// Filesystem and inode.
    pub inode: (u64, u64),
}

/// What shall stand at a path.
#[derive(Clone, Debug)]
pub struct New {
    /// Permission bits. Of the special ones only an undo sets any, but for the
    /// set-gid and the sticky bit of directories.
    pub mode: u32,
    /// Owner and group, where we may set them.
    pub owner: Option<(u32, u32)>,
    /// Last change of the content.
    pub mtime_ns: i64,
    /// What programs noted about it, where that is not read with the content:
    /// of directories, and of files made from bytes. `None` leaves a directory
    /// what it has.
    pub noted: Option<Noted>,
    /// The rest, by kind.
    pub what: What,
}

/// The kinds of things that can be made.
#[derive(Clone, Debug)]
pub enum What {
    /// A regular file.
    File(Content),
    /// A directory; its entries are steps of their own.
    Directory,
    /// A symbolic link to these bytes.
    Symlink(Vec<u8>),
    /// A fifo, socket or device that stood there and is kept here. No sandbox
    /// brings one.
    Special(PathBuf),
}

/// Where a file's bytes come from.
#[derive(Clone, Debug)]
pub enum Content {
    /// The file at the same path of the job's view.
    View,
    /// These.
    Bytes(Vec<u8>),
    /// A file of the state directory.
    Kept(PathBuf),
    /// They stay as they are: only mode or owner change, in place.
    Same,
}

/// A list of steps to be carried out completely or not at all.
pub struct Job<'a> {
    /// The directory that every path lies below, opened once.
    pub root: PathBuf,
    /// Sorted by path.
    pub steps: Vec<Step>,
    /// Where [`Content::View`] is read.
    pub view: Option<&'a View>,
    /// What the journal says when it is done; `undo` is added to its detail.
    pub record: RecordBody,
    /// What is signed when it is done, by whoever finishes it.
    pub facts: Option<Facts>,
}

/// A job that was carried out.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The id for `undo`.
    pub undo: Id,
}

/// A digest of what a promotion wrote, from its plan.
pub(crate) fn digest(engine: &Engine, promotion: Id) -> Result<String> {
    Ok(Plan::read(&engine.store.undo_dir(promotion).join("plan"))?.digest())
}

/// Whether a promotion wrote anything in or below a directory. One whose plan
/// cannot be read did not.
pub(crate) fn wrote_below(engine: &Engine, row: &ApplyRow, directory: &Path) -> bool {
    let plan = Plan::read(&engine.store.undo_dir(row.id).join("plan"));
    let inside = |step: &Planned| {
        let path = row.root.join(std::ffi::OsStr::from_bytes(&step.path.0));
        path.starts_with(directory)
    };
    plan.is_ok_and(|plan| plan.steps.iter().any(inside))
}

/// Where the record of a write that takes back a part of a promotion names
/// that one, which goes on standing with the rest.
pub(crate) const PART_OF: &str = "part_of";

pub(crate) fn is_part(record: &RecordBody) -> bool {
    record.detail.get(PART_OF).is_some()
}

/// How long one write waits for another into the same directory.
const WAIT: Duration = Duration::from_secs(3);

/// Carries out a job completely or not at all. On an error the tree is as it
/// was, but for what others wrote there meanwhile.
pub fn apply(engine: &Engine, job: Job<'_>) -> Result<Done> {
    carry_out(engine, job, None)
}

/// The same; with `undoes`, contents that stood in reality come back.
pub(crate) fn carry_out(engine: &Engine, mut job: Job<'_>, undoes: Option<Id>) -> Result<Done> {
    let disk = Disk::new(engine.fault_hook());
    let survey = survey::survey(&mut job, undoes.is_some())?;
    let row = begin(engine, &disk, &job, &survey, undoes)?;
    let undo = row.id;
    let _underway = recover::Underway(engine, row.clone());
    let mut work = lay_out(engine, &disk, row, job, survey)?;
    let done = work.decide().and_then(|()| work.go_on()).and_then(|()| work.finish(false));
    match done {
        Ok(()) => Ok(Done { undo }),
        Err(trouble) => Err(work.give_up(trouble, false)),
    }
}

/// Notes who writes where, before the first byte. Another write into the same
/// directory is waited for, and finished if its process died.
fn begin(
    engine: &Engine,
    disk: &Disk,
    job: &Job<'_>,
    survey: &Survey,
    undoes: Option<Id>,
) -> Result<ApplyRow> {
    let row = ApplyRow {
        id: new_id(),
        state: ApplyState::Staging,
        root: job.root.clone(),
        stages: survey.holders.iter().cloned().map(String::from).collect(),
        worker: Worker::own(),
        created_ms: now_ms(),
        sandbox: job.record.sandbox,
        seq: None,
        undoes,
        undone_by: None,
        kept: true,
        tenant: job.record.tenant.clone().unwrap_or_default(),
    };
    let start = Instant::now();
    loop {
        let inserted = disk.commit(|| match engine.store.transact(|tx| tx.insert_apply(&row)) {
            Err(StoreError::Applying { .. }) if start.elapsed() < WAIT => Ok(false),
            answer => answer.map(|()| true),
        })?;
        if inserted {
            return Ok(row);
        }
        recover(engine)?;
        recover::make_way(engine, &row)?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Stages everything and writes the plan. What fails here leaves nothing.
fn lay_out<'e>(
    engine: &'e Engine,
    disk: &'e Disk,
    row: ApplyRow,
    job: Job<'_>,
    survey: Survey,
) -> Result<Work<'e>> {
    match try_lay_out(engine, disk, &row, job, survey) {
        Ok((root, stages, plan)) => Ok(Work::new(engine, disk, row, root, stages, plan)),
        Err(trouble) => Err(match recover::forget(engine, disk, &row) {
            Ok(()) => trouble.into(),
            Err(again) => recover::postponed(engine, &row, trouble, &again),
        }),
    }
}

fn try_lay_out(
    engine: &Engine,
    disk: &Disk,
    row: &ApplyRow,
    job: Job<'_>,
    survey: Survey,
) -> std::result::Result<(ground::Root, Vec<work::Stage>, Plan), Trouble> {
    let undo_dir = engine.store.new_undo_dir(row.id).map_err(Error::from)?;
    holders::note(disk, &undo_dir, row, &survey.root)?;
    let stages = Work::make_stages(disk, row, &survey.root)?;
    let mut stager = Stager::new(disk, job.view, row.undoes.is_some());
    // What is kept for the rest stays, and must not be what stands there.
    stager.copies = is_part(&job.record);
    let mut steps = Vec::with_capacity(survey.steps.len());
    for (number, (step, (path, stage))) in survey.steps.iter().zip(survey.places).enumerate() {
        let new = stager.make(step, &stages[stage].dir, number)?;
        steps.push(Planned { path, stage, old: step.old.clone(), new });
    }
    if let Some(facts) = &job.facts {
        disk.write(|| facts.note(&undo_dir)).map_err(|error| {
            let message = format!("cannot write below {}: {error}", undo_dir.display());
            Error::new(trouble::code_of(&error), message)
                .hint("run `fractal gc`, or free space there")
        })?;
    }
    let plan = Plan { head: Head::new(steps.len(), job.record), steps };
    let file = undo_dir.join("plan");
    let write = || {
        let file = std::fs::File::create_new(&file)?;
        plan.write(&mut BufWriter::with_capacity(1 << 20, &file))
    };
    disk.write(write).map_err(|error| {
        let message = format!("cannot write {}: {error}", file.display());
        Error::new(trouble::code_of(&error), message).hint("run `fractal gc`, or free space there")
    })?;
    Ok((survey.root, stages, plan))
}

impl Work<'_> {
    /// The decision: what is staged and the plan are on disk, and from this
    /// row on a crash means going on instead of going back.
    fn decide(&mut self) -> std::result::Result<(), Trouble> {
        self.sync()?;
        let (store, row) = (&self.engine.store, &self.row);
        self.disk.commit(|| {
            let swapping = ApplyState::Swapping;
            store.transact(|tx| tx.set_apply_state(row.id, row.worker, swapping))
        })?;
        self.row.state = ApplyState::Swapping;
        Ok(())
    }
}

/// The error of a write that was neither finished nor taken back.
pub(crate) fn unfinished(error: Error, why: &Error) -> Error {
    let message = format!(
        "{}; taking back what was done failed as well ({}), which the next command tries again",
        error.message, why.message
    );
    Error::new(Code::Internal, message).hint("run `fractal doctor` when the cause is gone")
}
