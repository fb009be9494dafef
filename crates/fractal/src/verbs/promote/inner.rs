//! Projects inside of the project: directories below it with a `fractal.toml`
//! of their own.
//!
//! A gate belongs to the files beneath it, from wherever somebody writes to
//! them. What counts is the file that stands on the host: what a sandbox makes
//! of it cannot open a gate.

use super::Wish;
use crate::config::{Config, FILE_NAME};
use fractal_model::{Check, Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the inner projects that are written to want to hold, each check with
/// the name and the way of its project in front.
pub fn checks(project: &Path, wishes: &[Wish]) -> Result<Vec<Check>> {
    let mut all = Vec::new();
    for way in touched(project, wishes) {
        let shown = way.display();
        for check in Config::load(&project.join(&way), None)?.checks() {
            let name = format!("{shown}/{}", check.name);
            all.push(Check { name, directory: Some(shown.to_string()), ..check });
        }
    }
    Ok(all)
}

/// Refuses to go around the stages of an inner project.
pub fn refuse_staged(project: &Path, wishes: &[Wish]) -> Result<()> {
    for way in touched(project, wishes) {
        let Some(line) = Config::load(&project.join(&way), None)?.line() else { continue };
        let what = format!(
            "`{}` is a project with stages ({}), which this would go around",
            way.display(),
            line.names()
        );
        return Err(Error::denied(what).hint(format!(
            "leave it out with `--only PATH`; what goes into it is made and promoted in {}",
            way.display()
        )));
    }
    Ok(())
}

/// The nearest project of each path, from the outer one, without that itself.
fn touched(project: &Path, wishes: &[Wish]) -> BTreeSet<PathBuf> {
    let mut known = HashMap::new();
    let mut found = BTreeSet::new();
    for wish in wishes {
        let path = Path::new("/").join(OsStr::from_bytes(wish.path.relative()));
        let Ok(way) = path.strip_prefix(project) else { continue };
        // Somebody's whole project may be what goes, or comes.
        found.extend(nearest(project, way, &mut known));
    }
    found
}

/// The nearest directory with a file of its own, on the way up to the project.
fn nearest(
    project: &Path,
    way: &Path,
    known: &mut HashMap<PathBuf, Option<PathBuf>>,
) -> Option<PathBuf> {
    if way.as_os_str().is_empty() {
        return None;
    }
    if let Some(answer) = known.get(way) {
        return answer.clone();
    }
    let has_own = project.join(way).join(FILE_NAME).symlink_metadata().is_ok();
    let answer = match has_own {
        true => Some(way.to_path_buf()),
        false => way.parent().and_then(|above| nearest(project, above, known)),
    };
    known.insert(way.to_path_buf(), answer.clone());
    answer
}
