//! Names in directories, as the guest makes, moves and removes them.

use super::abi::{CHARACTERS, Done, Errno, FOLLOW, FileStat, kind_of, listed};
use super::beside::{Device, Library};
use super::files::{Files, Slot};
use fractal_fs::{Kind, NewMeta};

/// The most names that one look into a directory gives.
const NAMES_MAX: usize = 1024;

/// What an entry takes besides its name.
const HEAD_BYTES: usize = 24;

impl Files {
    pub(super) fn stat_at(&self, path: &[u8], lookup: u32) -> Done<FileStat> {
        if let Some(library) = Library::at(path) {
            return Ok(library.stat());
        }
        let found = match lookup & FOLLOW {
            0 => self.view.lstat(path),
            _ => self.view.stat(path),
        };
        match found {
            Ok(stat) => Ok(FileStat::from(&stat)),
            Err(error) if error.kind == Kind::NotFound => {
                let device = || Device::at(path).map(|_| FileStat::beside(CHARACTERS, 1, 0));
                Library::on_the_way(path).or_else(device).ok_or_else(|| error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn set_modified_at(&self, path: &[u8], lookup: u32, ns: i64) -> Done {
        let new = NewMeta { modified_ns: Some(ns), ..NewMeta::default() };
        let place = match lookup & FOLLOW {
            0 => path.to_vec(),
            _ => self.view.resolve(path)?,
        };
        Ok(self.view.set_meta(place, new)?)
    }

    /// A piece of a directory as the guest reads it, from a place on: entries
    /// one after the other, the last one cut where there is no more room.
    pub(super) fn names(&self, fd: u32, place: u64, room: usize) -> Done<Vec<u8>> {
        let Slot::Dir(path) = self.slot(fd)? else { return Err(Errno::NOTDIR) };
        let mut out = Vec::with_capacity(room.min(1 << 16));
        let most = (room / HEAD_BYTES + 1).min(NAMES_MAX);
        let (mut place, mut more) = (place, true);
        while more && out.len() < room {
            let page = self.view.page(path, place, most)?;
            more = page.len() == most;
            for entry in page {
                let name = entry.listed.name.bytes();
                let kind = kind_of(entry.listed.kind);
                let head = listed(entry.next, entry.listed.inode, name.len() as u32, kind);
                out.extend_from_slice(&head);
                out.extend_from_slice(name);
                place = entry.next;
                if out.len() >= room {
                    break;
                }
            }
        }
        out.truncate(room);
        Ok(out)
    }

    /// Where a name stands: its directory without links, and the name.
    fn place(&self, path: &[u8]) -> Done<Vec<u8>> {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let path = &path[..end];
        let cut = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let dir = self.view.resolve([&path[..cut], b"/"].concat())?;
        let dir = dir.strip_suffix(b"/").unwrap_or(&dir);
        Ok([dir, &path[cut..]].concat())
    }

    pub(super) fn make_dir(&self, path: &[u8]) -> Done {
        Ok(self.view.make_dir(path, 0o755)?)
    }

    pub(super) fn remove_dir(&self, path: &[u8]) -> Done {
        Ok(self.view.remove_dir(path)?)
    }

    pub(super) fn remove_file(&mut self, path: &[u8]) -> Done {
        let place = self.place(path)?;
        let gone = self.view.remove_name(path)?;
        self.lost(&place, &gone)
    }

    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) -> Done {
        let (old, new) = (self.place(from)?, self.place(to)?);
        let Some((_, over)) = self.view.rename_name(from, to, true)? else { return Ok(()) };
        // First whoever has open what stood there, and then whoever comes.
        if let Some(gone) = over {
            self.lost(&new, &gone)?;
        }
        self.moved(&old, &new);
        Ok(())
    }

    pub(super) fn link(&self, from: &[u8], lookup: u32, to: &[u8]) -> Done {
        let from = match lookup & FOLLOW {
            0 => from.to_vec(),
            _ => self.view.resolve(from)?,
        };
        Ok(self.view.link(from, to)?)
    }

    pub(super) fn symlink(&self, target: &[u8], path: &[u8]) -> Done {
        Ok(self.view.symlink(path, target)?)
    }

    pub(super) fn read_link(&self, path: &[u8]) -> Done<Vec<u8>> {
        Ok(self.view.read_link(path)?)
    }
}
