//! How much a sandbox changed, and what it made of each file.
//!
//! What counts is what a promotion would bring: neither caches elsewhere on
//! the machine, nor what git ignores, nor git's own files are what attempts
//! are compared by.

use crate::merge::merge;
use crate::patch::{Amount, PatchOptions, blob_id, write_patch};
use crate::verbs::diff;
use crate::verbs::promote::choose::choose;
use crate::view::path_of;
use crate::{Caller, Engine};
use fractal_jail::layer::View;
use fractal_model::rank::Changed;
use fractal_model::{Change, Overlap, Promote, Result, SandboxPath};
use fractal_store::SandboxRow;
use std::collections::BTreeMap;
use std::io::Read;

/// Files larger than this count as changed, without their lines.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Overlapping files that stand in a reply.
const OVERLAP_MAX: usize = 1000;

/// The size of a change.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub files: u64,
    pub lines: u64,
    pub changed: Changed,
}

pub fn measure(engine: &Engine, caller: &Caller, row: &SandboxRow) -> Result<Measured> {
    let (views, changes) = diff::changes(engine, row, None)?;
    let changes = choose(engine, caller, row, &Promote::default(), changes)?.changes;
    let (base, top) = (views.base(), views.top());
    let (root, options) = (path_of(&row.directory)?, options());
    let stat = write_patch(&mut std::io::sink(), &changes, &base, &top, &root, &options)?;
    let lines = stat.files.iter().map(|file| match file.amount {
        Amount::Lines { added, deleted } => added + deleted,
        Amount::Bytes { .. } => 0,
    });
    let mut measured = Measured { lines: lines.sum(), ..Measured::default() };
    let within = |path: &SandboxPath| below(&root, path);
    for path in stat.files.iter().map(|file| within(&file.path)) {
        measured.add(&top, path?, &options)?;
    }
    for skipped in stat.skipped {
        measured.add(&top, skipped.path, &options)?;
    }
    Ok(measured)
}

impl Measured {
    fn add(&mut self, top: &View, path: SandboxPath, options: &PatchOptions) -> Result<()> {
        self.files += 1;
        let id = blob_id(top, &path, options)?;
        self.changed.insert(path.to_string(), id);
        Ok(())
    }
}

/// Counting needs no contents of binary files.
fn options() -> PatchOptions {
    PatchOptions {
        file_bytes_max: FILE_BYTES_MAX,
        binary_contents: false,
        ..PatchOptions::default()
    }
}

/// A path of a patch as a path of the sandbox.
fn below(root: &SandboxPath, name: &SandboxPath) -> Result<SandboxPath> {
    SandboxPath::parse([root.relative(), b"/", name.relative()].concat())
}

/// Files that several sandboxes changed, and whether they agree.
pub fn overlap(all: &[(&str, &Changed)]) -> Vec<Overlap> {
    let mut by_path: BTreeMap<&String, Vec<(&str, &Option<String>)>> = BTreeMap::new();
    for (name, changed) in all {
        for (path, id) in *changed {
            by_path.entry(path).or_default().push((name, id));
        }
    }
    let several = by_path.into_iter().filter(|(_, list)| list.len() > 1);
    let told = several.map(|(path, list)| Overlap {
        path: path.clone(),
        attempts: list.iter().map(|(name, _)| (*name).to_owned()).collect(),
        same: list.iter().all(|(_, id)| *id == list[0].1),
        joins: false,
    });
    told.take(OVERLAP_MAX).collect()
}

/// Finds which of the files that several sandboxes changed in different ways
/// could be joined: all must have made their text from the same one.
pub fn find_joins(
    engine: &Engine,
    rows: &[(String, SandboxRow)],
    list: &mut [Overlap],
) -> Result<()> {
    if list.iter().all(|one| one.same) {
        return Ok(());
    }
    let mut views = Vec::new();
    for (name, row) in rows {
        views.push((name, engine.views(row, row.base)?));
    }
    let views: Vec<(&String, View, View)> =
        views.iter().map(|(name, views)| (*name, views.base(), views.top())).collect();
    for one in list.iter_mut().filter(|one| !one.same) {
        let path = SandboxPath::parse(&one.path)?;
        let sides = views.iter().filter(|(name, ..)| one.attempts.contains(name));
        let texts = sides.map(|(_, base, top)| text(base, &path).zip(text(top, &path)));
        let texts: Option<Vec<(Vec<u8>, Vec<u8>)>> = texts.collect();
        one.joins = texts.is_some_and(|texts| {
            let base = &texts[0].0;
            let mut rest = texts[1..].iter();
            texts.iter().all(|(other, _)| other == base)
                && rest
                    .try_fold(texts[0].1.clone(), |all, (_, one)| merge(base, &all, one))
                    .is_some()
        });
    }
    Ok(())
}

/// A file that is small enough to be compared.
fn text(view: &View, path: &SandboxPath) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let file = view.open_file(path).ok()?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).ok()?;
    (text.len() as u64 <= FILE_BYTES_MAX).then_some(text)
}

/// What two sandboxes have made of the files that either of them changed.
pub fn either(mut a: Vec<Change>, b: Vec<Change>) -> Vec<Change> {
    a.extend(b);
    a.sort_by(|one, two| one.path.cmp(&two.path));
    a.dedup_by(|one, two| one.path == two.path);
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_changed_alike_do_not_clash() {
        let changed = |list: &[(&str, Option<&str>)]| -> Changed {
            list.iter().map(|(path, id)| ((*path).into(), id.map(Into::into))).collect()
        };
        let a = changed(&[("same", Some("1")), ("clash", Some("1")), ("own", None)]);
        let b = changed(&[("same", Some("1")), ("clash", None)]);
        let found = overlap(&[("a", &a), ("b", &b)]);
        let expect = |path: &str, same| Overlap {
            path: path.into(),
            attempts: vec!["a".into(), "b".into()],
            same,
            joins: false,
        };
        assert_eq!(found, [expect("clash", false), expect("same", true)]);
    }
}
