//! Bundles: directories in which the records of a problem lie.
//!
//! A bundle is a directory `<name>_skunkworks` with `problem.md`; its records
//! lie in a folder for each kind, and bundles for smaller problems may lie
//! within. It is a bundle of the Open Knowledge Format as well. Records are
//! never written over by accident, names of parallel writers differ, and what
//! lies in a bundle is never followed out of it.

mod pages;
mod place;
mod slug;
mod walk;
mod write;

pub use pages::{Refreshed, is_generated};
pub use slug::slug;
pub use walk::Listing;

use crate::record::{BODY_BYTES_MAX, Draft, HEAD_BYTES_MAX, Kind};
use crate::{IndexError, Result};
use place::{Dir, Over, outside};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How the name of a bundle ends.
pub const SUFFIX: &str = "_skunkworks";
/// The file that says what a bundle is about.
pub const PROBLEM: &str = "problem.md";
/// The file that says what an experiment is about, in its directory.
pub const EXPERIMENT: &str = "experiment.md";
/// The directory of a project in which its bundles lie.
pub const HOME: &str = "sandbox";
/// Two branches that both wrote records have two versions of the pages that are
/// made from them. Git takes the lines of both, and the next page is right.
const ATTRIBUTES: &str = ".gitattributes";
const MERGED: &str = "index.md merge=union\nlog.md merge=union\n";
/// More records than this in one bundle are not looked at.
pub const FILES_MAX: usize = 200_000;
/// Directories that go deeper than this are not looked at.
pub const DEPTH_MAX: usize = 32;
/// A head, what is searched of a body, and the lines between them.
const READ_BYTES_MAX: u64 = (HEAD_BYTES_MAX + BODY_BYTES_MAX + 64) as u64;

/// A directory of records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bundle {
    dir: PathBuf,
}

impl Bundle {
    /// The bundle in a directory.
    pub fn open(dir: &Path) -> Result<Bundle> {
        let dir = absolute(dir)?;
        if is_bundle(&dir) { Ok(Bundle { dir }) } else { Err(IndexError::NoBundle { path: dir }) }
    }

    /// The nearest bundle in which a path lies, which may be its own.
    pub fn containing(path: &Path) -> Option<Bundle> {
        let path = absolute(path).ok()?;
        let dir = path.ancestors().find(|dir| is_bundle(dir))?;
        Some(Bundle { dir: dir.to_owned() })
    }

    /// All bundles of a project, those within bundles as well, in order.
    pub fn find_below(project: &Path) -> Result<Vec<Bundle>> {
        walk::bundles(&absolute(project)?.join(HOME))
    }

    /// Makes the bundle of a problem in `within`, which is made if it is
    /// missing.
    pub fn create(within: &Path, problem: &Draft) -> Result<Bundle> {
        let within = absolute(within)?;
        std::fs::create_dir_all(&within)
            .map_err(|error| IndexError::io("create", &within, error))?;
        let name = format!("{}{SUFFIX}", slug(&problem.record.title));
        // A directory without a problem was left by a creation that was cut
        // off, or made by hand to be filled.
        Dir::open(&within)?.made(&name)?;
        let bundle = Bundle { dir: within.join(name) };
        match bundle.add_problem(problem) {
            Err(IndexError::Exists { .. }) => Err(IndexError::Exists { path: bundle.dir }),
            done => done.map(|()| bundle),
        }
    }

    /// Makes a bundle of a directory that is there and has no problem yet.
    pub fn adopt(dir: &Path, problem: &Draft) -> Result<Bundle> {
        let bundle = Bundle { dir: absolute(dir)? };
        bundle.add_problem(problem)?;
        Bundle::open(dir)
    }

    /// Writes down what a directory of records is about.
    pub fn add_problem(&self, problem: &Draft) -> Result<()> {
        let mut problem = problem.clone();
        problem.record.kind = Kind::Problem;
        let text = write::checked(&problem)?;
        let place = Dir::open(&self.dir)?;
        place.write(PROBLEM, text.as_bytes(), Over::Nothing)?;
        match place.write(ATTRIBUTES, MERGED.as_bytes(), Over::Nothing) {
            // Somebody has attributes of their own.
            Ok(_) | Err(IndexError::Exists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The place of notes in a directory, which is made if it is missing. It
    /// is a bundle in all but its name: it is about no problem.
    pub fn of_notes(dir: &Path) -> Result<Bundle> {
        let dir = absolute(dir)?;
        std::fs::create_dir_all(&dir).map_err(|error| IndexError::io("create", &dir, error))?;
        Ok(Bundle { dir })
    }

    /// Where it lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The nearest bundle above.
    pub fn parent(&self) -> Option<Bundle> {
        Bundle::containing(self.dir.parent()?)
    }

    /// All records in order, without those of bundles within.
    pub fn records(&self) -> Listing {
        walk::list(&self.dir, DEPTH_MAX)
    }

    /// Reads a file of the bundle as [`read_file`] does, and follows no link on
    /// the way to it either.
    pub fn read(&self, path: &Path) -> Result<(Vec<u8>, u64)> {
        let (dir, name) = self.place(path)?;
        let (file, length, _) = dir.file(name)?;
        Ok((place::read(file, path, READ_BYTES_MAX)?, length))
    }

    /// The open directory of a file and its name in there.
    fn place<'a>(&self, path: &'a Path) -> Result<(Dir, &'a OsStr)> {
        let relative = self.relative(path)?;
        let (Some(folder), Some(name)) = (relative.parent(), relative.file_name()) else {
            return Err(outside(path));
        };
        Ok((Dir::open(&self.dir)?.beneath(folder)?, name))
    }

    /// A path as seen from the bundle; one that is relative already is taken
    /// so.
    fn relative<'a>(&self, path: &'a Path) -> Result<&'a Path> {
        if path.is_relative() {
            return Ok(path);
        }
        path.strip_prefix(&self.dir).map_err(|_| outside(path))
    }
}

/// Reads a regular file as far as records are read, and says how long it is.
/// A link, a pipe and anything else is refused. What comes back may be a part
/// only, so it is not for writing back: [`Bundle::edit`] is.
pub fn read_file(path: &Path) -> Result<(Vec<u8>, u64)> {
    let (file, length, _) = place::open_file(path)?;
    Ok((place::read(file, path, READ_BYTES_MAX)?, length))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| IndexError::io("find", path, error))
}

fn is_bundle(dir: &Path) -> bool {
    let has_name = dir.file_name().is_some_and(|name| {
        name.len() > SUFFIX.len() && name.as_encoded_bytes().ends_with(SUFFIX.as_bytes())
    });
    let is = |path: &Path, test: fn(&std::fs::Metadata) -> bool| {
        std::fs::symlink_metadata(path).is_ok_and(|found| test(&found))
    };
    has_name && is(dir, |found| found.is_dir()) && is(&dir.join(PROBLEM), |found| found.is_file())
}
