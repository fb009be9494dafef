//! `diff`: what a sandbox changed, as a list, a patch, or a summary.

use super::run::without_mount_points;
use crate::patch::{PatchError, PatchOptions, Stat, write_name_status, write_patch, write_stat};
use crate::view::{Views, path_of};
use crate::{Caller, Cancel, Engine, stale};
use fractal_jail::layer::{Bounds, Changes};
use fractal_model::{Change, Code, DiffReply, Error, Result, SandboxPath, Staleness};
use fractal_store::{Reads, SandboxRow};
use std::io::Write;

/// How a diff is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffFormat {
    /// A patch for `git apply` in the sandbox's directory; changes outside of
    /// it are counted only.
    Patch,
    /// A patch of everything, with paths from `/`.
    PatchAll,
    /// Lines changed per file, bars as wide as the terminal allows.
    Stat {
        /// Columns.
        width: usize,
    },
    /// A letter and a path each.
    NameStatus,
}

/// What a written diff leaves to be said.
#[derive(Clone, Debug, Default)]
pub struct DiffOutput {
    /// All changes.
    pub changes: usize,
    /// Whether there are more, too many or too deep down to be listed.
    pub truncated: bool,
    /// Changes outside the sandbox's directory, which a patch leaves out.
    pub outside: u64,
    /// Files too large for a patch.
    pub skipped: Vec<String>,
    /// Changed directories, devices and owners, which a patch cannot say.
    pub unsayable: u64,
    /// How far reality moved.
    pub stale: Option<Staleness>,
    /// The reader went away.
    pub broken_pipe: bool,
}

pub fn diff(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    since: Option<&str>,
) -> Result<DiffReply> {
    let row = engine.find(caller, selector)?;
    let (_, found) = listed(engine, &row, since, &caller.cancel)?;
    Ok(DiffReply {
        sandbox: row.name.clone(),
        changes: found.list,
        truncated: found.truncated,
        stale: stale::look(engine, &row),
    })
}

/// A sandbox's changes against its base, or against one of its snapshots: all
/// of them, for those who act on them.
pub fn changes(
    engine: &Engine,
    row: &SandboxRow,
    since: Option<&str>,
) -> Result<(Views, Vec<Change>)> {
    changes_while(engine, row, since, &Cancel::default())
}

/// The same for those who only read: it ends when nobody waits for it any more.
pub fn changes_while(
    engine: &Engine,
    row: &SandboxRow,
    since: Option<&str>,
    cancel: &Cancel,
) -> Result<(Views, Vec<Change>)> {
    let (views, found) = listed(engine, row, since, cancel)?;
    if found.truncated {
        return Err(Error::new(
            Code::Limit,
            format!("`{}` changed more than can be listed, or too deep down", row.name),
        )
        .hint(format!(
            "see what is too deep with `fractal diff {0}`, and remove it with `fractal enter {0}`",
            row.name
        )));
    }
    if found.unreadable > 0 {
        let message = format!("parts of what `{}` changed cannot be read", row.name);
        return Err(Error::denied(message)
            .hint(format!("make them readable with `fractal enter {}`", row.name)));
    }
    Ok((views, found.list))
}

/// How many paths differ, as far as they can be listed.
pub fn count(engine: &Engine, row: &SandboxRow, cancel: &Cancel) -> Result<usize> {
    Ok(listed(engine, row, None, cancel)?.1.list.len())
}

/// The same as far as it can be listed, for those who look.
fn listed(
    engine: &Engine,
    row: &SandboxRow,
    since: Option<&str>,
    cancel: &Cancel,
) -> Result<(Views, Changes)> {
    let base = match since {
        None => row.base,
        Some(name) => {
            let snapshot = engine.store.snapshot(row.id, name)?;
            let missing = || {
                Error::not_found(format!("`{}` has no snapshot `{name}`", row.name))
                    .hint("`fractal show` lists them")
            };
            Some(snapshot.ok_or_else(missing)?.layer)
        }
    };
    let views = engine.views(row, base)?.wanted_until(cancel);
    let mut found = views.changes(&Bounds::default())?;
    without_mount_points(&mut found.list, &row.mounts)?;
    Ok((views, found))
}

pub fn write(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    since: Option<&str>,
    format: DiffFormat,
    out: &mut dyn Write,
) -> Result<DiffOutput> {
    let row = engine.find(caller, selector)?;
    let (views, found) = listed(engine, &row, since, &caller.cancel)?;
    let changes = found.list;
    let mut output = DiffOutput {
        changes: changes.len(),
        truncated: found.truncated,
        stale: stale::look(engine, &row),
        ..DiffOutput::default()
    };
    let root = path_of(&row.directory)?;
    let result = match format {
        DiffFormat::NameStatus => {
            write_name_status(out, &changes, &root).map_err(PatchError::Write)
        }
        DiffFormat::Stat { width } => count_lines(changes, &views, &root, &mut output)
            .and_then(|stat| write_stat(out, &stat, width).map_err(PatchError::Write)),
        DiffFormat::Patch => patch(out, &changes, &views, &root, &mut output).map(|_| ()),
        DiffFormat::PatchAll => {
            patch(out, &changes, &views, &SandboxPath::root(), &mut output).map(|_| ())
        }
    };
    match result.and_then(|()| out.flush().map_err(PatchError::Write)) {
        Err(PatchError::Write(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            output.broken_pipe = true
        }
        other => other?,
    }
    Ok(output)
}

/// Lines changed in every file: those below the root, then all others.
fn count_lines(
    changes: Vec<Change>,
    views: &Views,
    root: &SandboxPath,
    output: &mut DiffOutput,
) -> std::result::Result<Stat, PatchError> {
    let (inside, outside): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|change| change.path.is_within(root));
    let mut nowhere = std::io::sink();
    let mut stat = patch(&mut nowhere, &inside, views, root, output)?;
    let mut others = patch(&mut nowhere, &outside, views, &SandboxPath::root(), output)?;
    others.files.iter_mut().for_each(|file| file.absolute = true);
    stat.files.append(&mut others.files);
    Ok(stat)
}

fn patch(
    out: &mut dyn Write,
    changes: &[Change],
    views: &Views,
    root: &SandboxPath,
    output: &mut DiffOutput,
) -> std::result::Result<Stat, PatchError> {
    let stat =
        write_patch(out, changes, &views.base(), &views.top(), root, &PatchOptions::default())?;
    output.outside += stat.outside;
    output.unsayable += stat.directories + stat.special + stat.attributes + stat.of_git;
    output.skipped.extend(stat.skipped.iter().map(|skipped| skipped.path.to_string()));
    Ok(stat)
}
