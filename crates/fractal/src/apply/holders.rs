//! The directories that hold a stage: where they lie, and which they are.
//!
//! A path may lead to another directory tomorrow: a project is renamed and
//! another one put into its place. Whoever finishes a write that a crash
//! interrupted must not write there, nor take the stage for lost. So each
//! directory is noted when its stage is made, in `undo/<id>/holders`.

use super::disk::Disk;
use super::ground::{Root, open_listed, stage_name};
use super::plan::Bytes;
use super::trouble::Trouble;
use super::work::open_root;
use fractal_model::{Code, Error};
use fractal_store::{ApplyRow, Store};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, StatxFlags};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Their paths below the root.
pub(super) fn holders(row: &ApplyRow) -> Result<Vec<Bytes>, Trouble> {
    let read = |text: &String| Bytes::try_from(text.clone()).ok().filter(Bytes::is_safe);
    let corrupt = || {
        let message = format!("the row of {} names a stage that cannot be", row.id);
        Error::new(Code::Corrupt, message)
    };
    let list = row.stages.iter().map(|text| read(text).ok_or_else(corrupt));
    Ok(list.collect::<Result<_, _>>()?)
}

/// Notes which directories they are, before a stage is made in them.
pub(super) fn note(disk: &Disk, dir: &Path, row: &ApplyRow, root: &Root) -> Result<(), Trouble> {
    let mut text = String::new();
    for holder in holders(row)? {
        let identity = root.dir(&holder.0).and_then(identity);
        let fail = |error: io::Error| Trouble::io("look at", holder.shown(&row.root), &error);
        text.push_str(&format!("{}\n", identity.map_err(fail)?));
    }
    let path = dir.join("holders");
    disk.write(|| fs::write(&path, &text))
        .map_err(|error| Trouble::io("write", path.display(), &error))
}

/// The first one that is not where it was: nothing stands there, or another
/// directory. What is not known to be elsewhere is taken to be there.
pub(crate) fn elsewhere(store: &Store, row: &ApplyRow) -> Option<PathBuf> {
    let noted = fs::read_to_string(store.undo_dir(row.id).join("holders")).ok()?;
    let holders = holders(row).ok()?;
    let root = open_root(row).ok();
    let is_there = |holder: &Bytes, noted: &str| {
        let dir = root.as_ref().and_then(|root| root.dir(&holder.0).ok());
        // Its stage makes it the one, whatever became of its number.
        dir.is_some_and(|dir| {
            open_listed(&*dir, &stage_name(row.id)).is_ok()
                || identity(dir).is_ok_and(|now| now == noted)
        })
    };
    let away = holders.iter().zip(noted.lines()).find(|(holder, noted)| !is_there(holder, noted));
    away.map(|(holder, _)| PathBuf::from(holder.shown(&row.root)))
}

/// What to tell whoever meets a write whose directory is elsewhere.
pub(super) fn waits(row: &ApplyRow, dir: &Path) -> Error {
    let message = format!(
        "promotion {} was interrupted, and {} is not the directory that it was written to",
        row.id,
        dir.display()
    );
    Error::new(Code::Busy, message).hint(way_out(row, dir))
}

/// The same for `doctor`.
pub(crate) fn way_out(row: &ApplyRow, dir: &Path) -> String {
    format!(
        "move it back to {}: the next command finishes the promotion. If it is gone for good: \
         fractal gc --undo 1s (what stood there then lies in `{}` of the old directory)",
        dir.display(),
        stage_name(row.id).to_string_lossy()
    )
}

/// Number and birth of a directory, which no other one shares. Where no birth
/// is known, its filesystem, whose number may be another one after a reboot.
fn identity(dir: impl AsFd) -> io::Result<String> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let status = rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, wanted)?;
    Ok(match status.stx_mask & StatxFlags::BTIME.bits() != 0 {
        true => {
            let birth = status.stx_btime;
            format!("{} born {}.{:09}", status.stx_ino, birth.tv_sec, birth.tv_nsec)
        }
        false => format!("{} on {}:{}", status.stx_ino, status.stx_dev_major, status.stx_dev_minor),
    })
}
