//! Experiments of a project by name.
//!
//! An experiment is a bundle `sandbox/<name>_skunkworks`, with more of them
//! within for its parts. On command lines it goes by its directory's name
//! without the ending; a part has the names above it in front.

use super::{failed, project_of};
use crate::Caller;
use fractal_index::bundle::{Bundle, HOME, SUFFIX};
use fractal_model::{Code, Error, Result};
use std::path::{Path, PathBuf};

/// A bundle of the caller's project.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    pub bundle: Bundle,
    pub name: String,
    pub project: PathBuf,
}

impl Experiment {
    fn of(project: &Path, bundle: Bundle) -> Experiment {
        let below = bundle.dir().strip_prefix(project.join(HOME)).unwrap_or(bundle.dir());
        let names = below.iter().filter_map(|part| part.to_str()?.strip_suffix(SUFFIX));
        let name = names.collect::<Vec<_>>().join("/");
        Experiment { bundle, name, project: project.to_owned() }
    }

    /// A bundle of the caller's project that was just made.
    pub fn at(caller: &Caller, bundle: Bundle) -> Experiment {
        Experiment::of(&project_of(&caller.directory), bundle)
    }

    /// Where something of it lies, from the project.
    pub fn path_of(&self, file: &Path) -> String {
        file.strip_prefix(&self.project).unwrap_or(file).to_string_lossy().into_owned()
    }

    /// Its directory, from the project.
    pub fn path(&self) -> String {
        self.path_of(self.bundle.dir())
    }
}

/// All experiments of the caller's project, by name.
pub(crate) fn all(caller: &Caller) -> Result<Vec<Experiment>> {
    require_owner(caller)?;
    let project = project_of(&caller.directory);
    let bundles = Bundle::find_below(&project).map_err(failed)?;
    Ok(bundles.into_iter().map(|bundle| Experiment::of(&project, bundle)).collect())
}

/// The experiment of this name: the whole name, or the last part of it where
/// there is only one such.
pub(crate) fn named(caller: &Caller, name: &str) -> Result<Experiment> {
    require_owner(caller)?;
    let wanted = name.trim().trim_end_matches('/').trim_end_matches(SUFFIX);
    if let Some(found) = direct(caller, wanted) {
        return Ok(found);
    }
    let all = all(caller)?;
    if let Some(found) = all.iter().find(|it| it.name == wanted) {
        return Ok(found.clone());
    }
    let mut last = all.iter().filter(|it| it.name.rsplit('/').next() == Some(wanted));
    match (last.next(), last.next()) {
        (Some(found), None) => Ok(found.clone()),
        (Some(one), Some(two)) => Err(Error::invalid(format!(
            "several experiments are called `{}`",
            wanted.escape_debug()
        ))
        .hint(format!("name it whole, as in `{}` or `{}`", one.name, two.name))),
        (None, _) => {
            let error =
                Error::not_found(format!("there is no experiment `{}`", name.escape_debug()));
            Err(match all.as_slice() {
                [] => error.hint("`fractal skunk new \"TITLE\"` makes one"),
                some => {
                    let names: Vec<&str> =
                        some.iter().take(10).map(|it| it.name.as_str()).collect();
                    error.hint(format!("there are: {}", names.join(", ")))
                }
            })
        }
    }
}

/// The one that lies where its whole name says, without a look at the others.
fn direct(caller: &Caller, name: &str) -> Option<Experiment> {
    let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.');
    if !name.split('/').all(is_plain) {
        return None;
    }
    let project = project_of(&caller.directory);
    let home = project.join(HOME);
    let dir = name.split('/').fold(home, |dir, part| dir.join(format!("{part}{SUFFIX}")));
    Bundle::open(&dir).ok().map(|bundle| Experiment::of(&project, bundle))
}

/// The experiment that the caller stands in.
pub(crate) fn around(caller: &Caller) -> Option<Experiment> {
    if !caller.is_owner() {
        return None;
    }
    let bundle = Bundle::containing(&caller.directory)?;
    let project = project_of(&caller.directory);
    Some(Experiment::of(&project, bundle))
}

/// The one that is named, otherwise the one that the caller stands in.
pub(crate) fn wanted(caller: &Caller, name: Option<&str>) -> Result<Option<Experiment>> {
    match name {
        Some(name) => named(caller, name).map(Some),
        None => Ok(around(caller)),
    }
}

/// Experiments are directories of the project, which is the local user's.
pub(crate) fn require_owner(caller: &Caller) -> Result<()> {
    if caller.is_owner() {
        return Ok(());
    }
    Err(Error::new(
        Code::Denied,
        format!("the key `{}` has no project to experiment in", caller.who),
    )
    .hint("`note` without an experiment writes down what was learned, `find` brings it back"))
}
