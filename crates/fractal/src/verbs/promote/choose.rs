//! Which changes of a sandbox travel, and which stay behind and why.
//!
//! Work travels; litter does not: caches outside the project, what git
//! ignores, git's own files, inputs that somebody copied in, fifos. Each can
//! be asked for. Nothing stays behind silently.

use super::ignore;
use crate::view::path_of;
use crate::{Caller, Engine, base};
use fractal_model::{Change, EntryKind, Error, LeftOut, Promote, Result, SandboxPath, TypedPath};
use fractal_store::SandboxRow;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Paths that are named for each reason.
const NAMED_MAX: usize = 20;

/// What travels and what does not.
#[derive(Default)]
pub struct Chosen {
    pub changes: Vec<Change>,
    /// Left out, by reason.
    left_out: BTreeMap<&'static str, Vec<SandboxPath>>,
}

impl Chosen {
    pub fn leave(&mut self, why: &'static str, path: SandboxPath) {
        self.left_out.entry(why).or_default().push(path);
    }

    /// All paths that stay behind.
    pub fn staying(&self) -> impl Iterator<Item = &SandboxPath> {
        self.left_out.values().flatten()
    }

    pub fn left_out(&self) -> Vec<LeftOut> {
        let row = |(why, paths): (&&'static str, &Vec<SandboxPath>)| LeftOut {
            why: (*why).to_owned(),
            count: paths.len() as u64,
            paths: paths.iter().take(NAMED_MAX).map(ToString::to_string).collect(),
        };
        self.left_out.iter().map(row).collect()
    }
}

pub fn choose(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    asked: &Promote,
    changes: Vec<Change>,
) -> Result<Chosen> {
    let project = path_of(&row.directory)?;
    let only = paths(caller, &asked.only, "--only")?;
    let injected = match asked.ignored {
        true => HashSet::new(),
        false => base::injected(engine, row)?,
    };
    let ignored = match asked.ignored {
        true => HashSet::new(),
        false => ignore::ignored(engine, caller, &row.directory, &changes)?,
    };
    let mut chosen = Chosen::default();
    for change in changes {
        let path = &change.path;
        let is_inside = path.is_within(&project);
        let why = if !only.is_empty() && !only.iter().any(|only| path.is_within(only)) {
            Some("only")
        } else if !is_inside && !asked.outside {
            Some("outside")
        } else if change.entry == EntryKind::Special {
            Some("special")
        } else if !asked.git && path.components().any(|name| name == b".git") {
            Some("git")
        } else if injected.contains(path) {
            Some("injected")
        } else if ignored.contains(path) {
            Some("ignored")
        } else {
            None
        };
        match why {
            Some(why) => chosen.leave(why, change.path),
            None => chosen.changes.push(change),
        }
    }
    let missed = only.iter().filter(|only| !chosen.names(only));
    let mut unknown = missed.filter(|only| !is_known(engine, row, only).unwrap_or(false));
    if let Some(missed) = unknown.next() {
        return Err(Error::not_found(format!("`{}` has nothing at {missed}", row.name))
            .hint(format!("`fractal diff {} --name-status` lists what it changed", row.name)));
    }
    Ok(chosen)
}

/// Whether a sandbox has something at a path, or had: then what it would bring
/// is there already.
fn is_known(engine: &Engine, row: &SandboxRow, path: &SandboxPath) -> Result<bool> {
    let there = engine.views(row, row.base)?.top().lookup(path)?.is_some();
    Ok(there || base::Notes::read(engine, row.id).of(path).is_some())
}

impl Chosen {
    /// Whether something at or below a path changed.
    fn names(&self, at: &SandboxPath) -> bool {
        let kept = self.changes.iter().map(|change| &change.path);
        let left = self.left_out.iter().filter(|(why, _)| **why != "only");
        kept.chain(left.flat_map(|(_, paths)| paths)).any(|path| path.is_within(at))
    }
}

/// Paths as the caller typed them, from the root of the machine.
pub fn paths(caller: &Caller, list: &[TypedPath], flag: &str) -> Result<Vec<SandboxPath>> {
    let read = |typed: &TypedPath| {
        // Lexically: what is named may no longer exist on the host.
        let mut whole = std::path::PathBuf::new();
        for part in caller.directory.join(OsStr::from_bytes(typed.as_bytes())).components() {
            match part {
                std::path::Component::ParentDir => drop(whole.pop()),
                other => whole.push(other),
            }
        }
        path_of(&whole).map_err(|error| Error::invalid(format!("{flag}: {error}")))
    };
    list.iter().map(read).collect()
}
