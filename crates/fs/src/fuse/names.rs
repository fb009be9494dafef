//! Names that come, go, move and are listed.
//!
//! Whoever removes or moves a name announces it in the table first: others who
//! miss what it led to then look again instead of giving up.

use super::attr::errno_of;
use super::server::{Server, checked};
use crate::Paged;
use crate::error::Kind;
use fractal_model::EntryKind;
use fuser::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// How often a file is looked for while it is given another name.
const TRIES_MAX: u32 = 100;

/// How many names are taken from a directory at once.
const PAGE_NAMES: usize = 64;

/// Places in a directory before its first name: the start, `.` and `..`.
const DOTS: u64 = 3;

impl Server {
    pub(super) fn remove_file(&self, dir: u64, name: &OsStr) -> Result<(), Errno> {
        let place = (dir, checked(name)?);
        let _moving = self.table.moving();
        let gone = self.at(dir, name, |view, path| view.remove_name(path))?;
        self.unnamed(&gone, &place);
        Ok(())
    }

    pub(super) fn remove_dir(&self, dir: u64, name: &OsStr) -> Result<(), Errno> {
        let _moving = self.table.moving();
        let last = self.at(dir, name, |view, path| {
            let last = view.lstat(path)?;
            view.given([(path, last.inode)]).remove_dir(path)?;
            Ok(last)
        })?;
        self.table.ended(last.inode, Some(last));
        Ok(())
    }

    pub(super) fn rename_to(&self, names: [(u64, &OsStr); 2], over: bool) -> Result<(), Errno> {
        let [(dir, name), (to_dir, to_name)] = names;
        let (from, to) = ((dir, checked(name)?), (to_dir, checked(to_name)?));
        let _moving = self.table.moving();
        let (moved, last) = self.at_two(names, |view, [from, to]| {
            let last = view.lstat(to).ok();
            Ok((view.rename_name(from, to, over)?, last))
        })?;
        let Some((inode, gone)) = moved else { return Ok(()) };
        if let Some(gone) = gone {
            self.unnamed(&gone, &to);
            let last = last.filter(|last| last.inode == gone.inode);
            if let Some(last) = last.filter(|last| last.kind != EntryKind::File) {
                self.table.ended(gone.inode, Some(last));
            }
        }
        self.table.renamed(inode, &from, to);
        Ok(())
    }

    pub(super) fn exchange(&self, names: [(u64, &OsStr); 2]) -> Result<(), Errno> {
        let [(dir, name), (to_dir, to_name)] = names;
        let (one, two) = ((dir, checked(name)?), (to_dir, checked(to_name)?));
        let _moving = self.table.moving();
        let [first, second] =
            self.at_two(names, |view, [from, to]| view.exchange_names(from, to))?;
        self.table.exchanged([(first, one), (second, two)]);
        Ok(())
    }

    pub(super) fn link_to(&self, inode: u64, dir: u64, name: &OsStr) -> Result<(), Errno> {
        self.table.present(&(dir, checked(name)?));
        let stale = errno_of(Kind::Changed);
        for _ in 0..TRIES_MAX {
            let link = |from: &[u8]| {
                self.at(dir, name, |view, to| view.given([(from, inode)]).link(from, to))
            };
            match self.on(inode, |_, from| Ok(link(from)))? {
                // Either of them was moved between the two.
                Err(error) if error.code() == stale.code() => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                done => return done,
            }
        }
        Err(stale)
    }

    /// Gives names from a place on to `add` until it says that it is full.
    pub(super) fn pages(
        &self,
        dir: u64,
        offset: u64,
        mut add: impl FnMut(u64, &OsStr, Option<&Paged>) -> bool,
    ) -> Result<(), Errno> {
        let (stat, _) = self.stat(dir)?;
        for (place, name) in [(1, "."), (2, "..")] {
            if offset < place && add(place, OsStr::new(name), None) {
                return Ok(());
            }
        }
        if stat.names == 0 {
            return Ok(());
        }
        let mut place = offset.saturating_sub(DOTS);
        loop {
            let page = self.on(dir, |view, path| view.page(path, place, PAGE_NAMES))?;
            for paged in &page {
                let name = OsStr::from_bytes(paged.listed.name.bytes());
                if add(paged.next + DOTS, name, Some(paged)) {
                    return Ok(());
                }
                place = paged.next;
            }
            if page.len() < PAGE_NAMES {
                return Ok(());
            }
        }
    }
}
