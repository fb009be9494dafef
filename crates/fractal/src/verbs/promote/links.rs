//! Files with several names, where a promotion cannot keep them one file.
//!
//! In reality names that were links of one another in the sandbox arrive as
//! such. Layers are written name by name, and a file that somebody has under
//! another name as well is replaced under this one only. Neither loses
//! content, and both are said.

use super::weigh::Wish;
use crate::apply::{Content, What};
use fractal_jail::layer::View;
use fractal_model::{EntryKind, Result};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What to tell of names that come into layers as files of their own.
pub fn separated(ours: &View, wishes: &[Wish]) -> Result<Option<String>> {
    let mut names: HashMap<(u64, u64), usize> = HashMap::new();
    let mut reader = ours.reader();
    for wish in wishes.iter().filter(|wish| brings_content(wish)) {
        if let Some(entry) = reader.lookup(&wish.path)? {
            *names.entry(entry.inode()).or_default() += 1;
        }
    }
    let count: usize = names.into_values().filter(|count| *count > 1).sum();
    let told = "names that were links of one another are files of their own there";
    Ok((count > 0).then(|| format!("{count} {told}")))
}

/// What to tell of files of the host that have further names, which nobody
/// spoke of.
pub fn left_apart(wishes: &[Wish]) -> Option<String> {
    let mut names: HashMap<(u64, u64), (u64, u64)> = HashMap::new();
    for wish in wishes.iter().filter(|wish| brings_content(wish)) {
        let is_file =
            |wish: &Wish| wish.theirs.as_ref().is_some_and(|theirs| theirs.kind == EntryKind::File);
        let path = Path::new("/").join(OsStr::from_bytes(wish.path.relative()));
        if let Some(meta) = path.symlink_metadata().ok().filter(|_| is_file(wish)) {
            let (_, replaced) = names.entry((meta.dev(), meta.ino())).or_insert((meta.nlink(), 0));
            *replaced += 1;
        }
    }
    names.retain(|_, (all, replaced)| all > replaced);
    let told = match names.len() {
        0 => return None,
        1 => "1 file has further names (hard links), which keep what it held".to_owned(),
        count => {
            format!("{count} files have further names (hard links), which keep what they held")
        }
    };
    Some(told)
}

fn brings_content(wish: &Wish) -> bool {
    let what = wish.new.as_ref().map(|new| &new.what);
    matches!(what, Some(What::File(Content::View | Content::Bytes(_))))
}
