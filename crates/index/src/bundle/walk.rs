//! What lies in a bundle.
//!
//! Links are never followed, and there is a limit to everything: an agent may
//! leave a million files or a tree without end.

use super::{Bundle, DEPTH_MAX, FILES_MAX, is_bundle, is_generated};
use crate::record::FAULTS_MAX;
use crate::{Fault, IndexError, Result};
use std::fs::DirEntry;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// More entries than this are not looked at, whatever they are.
const ENTRIES_MAX: usize = 500_000;
/// What tools put into directories that are full of other people's pages.
const SKIPPED: [&str; 2] = ["node_modules", "target"];

/// The files of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Its records, in order.
    pub files: Vec<PathBuf>,
    /// The bundles directly within, in order. Their records are not listed.
    pub bundles: Vec<PathBuf>,
    /// What could not be looked at, and why.
    pub faults: Vec<Fault>,
}

/// Lists a bundle.
pub(super) fn list(dir: &Path, depth_max: usize) -> Listing {
    let mut listing = Listing::default();
    let mut waiting = vec![(dir.to_owned(), depth_max)];
    let mut seen: usize = 0;
    while let Some((dir, depth)) = waiting.pop() {
        if depth == 0 {
            listing.faults.push(fault(&dir, "lies too deep: its files are left out"));
            continue;
        }
        for entry in entries(&dir, &mut listing.faults) {
            seen += 1;
            if seen > ENTRIES_MAX || listing.files.len() == FILES_MAX {
                let what = "and what follows is left out: the bundle holds too many files";
                listing.faults.push(fault(&entry.path(), what));
                waiting.clear();
                break;
            }
            match sort(&entry) {
                Sort::Record => listing.files.push(entry.path()),
                Sort::Bundle => listing.bundles.push(entry.path()),
                Sort::Folder => waiting.push((entry.path(), depth - 1)),
                Sort::Other => {}
            }
        }
    }
    listing.files.sort();
    listing.faults.truncate(FAULTS_MAX);
    listing.bundles.sort();
    listing
}

/// Finds the bundles that lie in a directory and those within them.
pub(super) fn bundles(home: &Path) -> Result<Vec<Bundle>> {
    match std::fs::symlink_metadata(home) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Ok(Vec::new()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(IndexError::io("read", home, error)),
    }
    let mut found = Vec::new();
    let mut faults = Vec::new();
    let mut waiting: Vec<PathBuf> = entries(home, &mut faults)
        .iter()
        .filter(|entry| matches!(sort(entry), Sort::Bundle))
        .map(DirEntry::path)
        .collect();
    while let Some(dir) = waiting.pop() {
        let depth = dir.strip_prefix(home).map_or(0, |path| path.components().count());
        waiting.extend(list(&dir, DEPTH_MAX.saturating_sub(depth)).bundles);
        found.push(Bundle { dir });
    }
    found.sort();
    Ok(found)
}

enum Sort {
    Record,
    Bundle,
    Folder,
    Other,
}

fn sort(entry: &DirEntry) -> Sort {
    let name = entry.file_name();
    let hidden = name.as_encoded_bytes().starts_with(b".");
    // Of the entry itself: what a link leads to is never asked.
    let Some(kind) = entry.file_type().ok().filter(|_| !hidden) else { return Sort::Other };
    let path = entry.path();
    if kind.is_dir() && is_bundle(&path) {
        Sort::Bundle
    } else if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
        Sort::Folder
    } else if kind.is_file() && path.extension().is_some_and(|e| e == "md") && !is_generated(&path)
    {
        Sort::Record
    } else {
        Sort::Other
    }
}

/// What lies in a directory, in order, as far as it can be read.
fn entries(dir: &Path, faults: &mut Vec<Fault>) -> Vec<DirEntry> {
    let mut found = Vec::new();
    match std::fs::read_dir(dir) {
        Ok(entries) => {
            for entry in entries.take(ENTRIES_MAX + 1) {
                match entry {
                    Ok(entry) => found.push(entry),
                    Err(error) => faults.push(fault(dir, &format!("cannot be read: {error}"))),
                }
            }
        }
        Err(error) => faults.push(fault(dir, &format!("cannot be read: {error}"))),
    }
    found.sort_by_cached_key(DirEntry::file_name);
    found
}

fn fault(path: &Path, what: &str) -> Fault {
    Fault::of_file(format!("{} {what}", path.display()))
}
