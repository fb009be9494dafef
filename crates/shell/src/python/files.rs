//! The guest's descriptors over a view.
//!
//! A read or a write is one operation of the view on that very range, so
//! whoever opens the same file sees it at once, and no file is ever held as a
//! whole. The view knows paths and the guest knows descriptors, so a
//! descriptor follows its file: when the guest moves it, the path moves along;
//! when it loses its last name, it goes on in a tree that nobody else sees.

use super::abi::{
    ALL_RIGHTS, APPEND, CHARACTERS, CREATE, DIRECTORY, Done, EXCLUSIVE, Errno, FOLLOW, FileStat,
    ONLY_DIRECTORY, READ, REGULAR, TRUNCATE, UNKNOWN, WRITE, descriptor_stat,
};
use super::beside::{Device, Library};
use fractal_fs::{FsError, Gone, NewMeta, Vfs};
use fractal_model::EntryKind;

/// The descriptor of the root, where the guest's snapshot expects it.
pub(super) const ROOT: u32 = 3;
const DESCRIPTORS_MAX: usize = 1024;

/// The most bytes that one call moves; the guest asks again for the rest.
pub(super) const PIECE_BYTES_MAX: usize = 1 << 20;

pub(super) enum Slot {
    Input,
    Output,
    Errors,
    /// A directory, by its path without links.
    Dir(Vec<u8>),
    File(OpenFile),
    Device(Device),
    Library(Library),
}

pub(super) struct OpenFile {
    /// Where it is, without links; in the attic if it has no name any more.
    path: Vec<u8>,
    inode: u64,
    nameless: bool,
    at: u64,
    read: bool,
    write: bool,
    append: bool,
}

pub(super) struct Files {
    pub(super) view: Vfs,
    /// Files without a name that are still open.
    attic: Vfs,
    slots: Vec<Option<Slot>>,
}

/// How a file is to be opened.
pub(super) struct How {
    pub(super) lookup: u32,
    pub(super) open: u32,
    pub(super) rights: u64,
    pub(super) flags: u32,
}

impl Files {
    pub(super) fn new(view: Vfs) -> Files {
        let slots = vec![Slot::Input, Slot::Output, Slot::Errors, Slot::Dir(b"/".to_vec())];
        let attic = Vfs::new(view.limits());
        Files { view, attic, slots: slots.into_iter().map(Some).collect() }
    }

    pub(super) fn slot(&self, fd: u32) -> Done<&Slot> {
        self.slots.get(fd as usize).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    pub(super) fn slot_mut(&mut self, fd: u32) -> Done<&mut Slot> {
        self.slots.get_mut(fd as usize).and_then(Option::as_mut).ok_or(Errno::BADF)
    }

    /// The path that the guest names by a directory and a path from there.
    pub(super) fn path(&self, fd: u32, path: &[u8]) -> Done<Vec<u8>> {
        match self.slot(fd)? {
            Slot::Dir(_) if path.starts_with(b"/") => Ok(path.to_vec()),
            Slot::Dir(dir) => Ok([dir, &b"/"[..], path].concat()),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub(super) fn open(&mut self, path: &[u8], how: &How) -> Done<u32> {
        let slot = self.opened(path, how)?;
        let free = self.slots.iter().position(Option::is_none);
        let fd = free.unwrap_or(self.slots.len());
        if fd >= DESCRIPTORS_MAX {
            return Err(Errno::MFILE);
        }
        if free.is_none() {
            self.slots.push(None);
        }
        self.slots[fd] = Some(slot);
        Ok(fd as u32)
    }

    fn opened(&self, path: &[u8], how: &How) -> Done<Slot> {
        let writes = how.rights & WRITE != 0;
        if let Some(library) = Library::at(path) {
            return if writes { Err(Errno::ROFS) } else { Ok(Slot::Library(library)) };
        }
        let there = match self.view.lstat(path) {
            Ok(_) if how.open & EXCLUSIVE != 0 && how.open & CREATE != 0 => {
                return Err(Errno::EXIST);
            }
            Ok(stat) if stat.kind == EntryKind::Symlink && how.lookup & FOLLOW == 0 => {
                return Err(Errno::LOOP);
            }
            Ok(stat) if stat.kind == EntryKind::Symlink => self.view.stat(path),
            found => found,
        };
        let (stat, place) = match there {
            Ok(stat) => (stat, self.view.resolve(path)?),
            Err(error) if Errno::from(error.clone()) != Errno::NOENT => return Err(error.into()),
            Err(error) => match Device::at(path) {
                Some(device) => return Ok(Slot::Device(device)),
                None if how.open & CREATE == 0 => return Err(error.into()),
                None => {
                    // Through a link that leads to nothing yet, if there is one.
                    let place = self.view.resolve(path)?;
                    self.view.create(&place, 0o644)?;
                    (self.view.lstat(&place)?, place)
                }
            },
        };
        match stat.kind {
            EntryKind::Directory if writes => Err(Errno::ISDIR),
            EntryKind::Directory => Ok(Slot::Dir(place)),
            _ if how.open & ONLY_DIRECTORY != 0 || path.ends_with(b"/") => Err(Errno::NOTDIR),
            _ => {
                if how.open & TRUNCATE != 0 && stat.size > 0 {
                    self.view.truncate(&place, 0)?;
                }
                Ok(Slot::File(OpenFile {
                    path: place,
                    inode: stat.inode,
                    nameless: false,
                    at: 0,
                    read: how.rights & READ != 0,
                    write: writes,
                    append: how.flags & APPEND != 0,
                }))
            }
        }
    }

    pub(super) fn close(&mut self, fd: u32) -> Done {
        if fd == ROOT {
            return Err(Errno::NOTSUP);
        }
        let slot = self.slots.get_mut(fd as usize).and_then(Option::take).ok_or(Errno::BADF)?;
        if let Slot::File(OpenFile { inode, nameless: true, path, .. }) = slot
            && !self.is_open(inode)
        {
            self.attic.remove_file(path)?;
        }
        Ok(())
    }

    fn files(&self) -> impl Iterator<Item = &OpenFile> {
        self.slots.iter().flatten().filter_map(|slot| match slot {
            Slot::File(file) => Some(file),
            _ => None,
        })
    }

    fn is_open(&self, inode: u64) -> bool {
        self.files().any(|file| file.inode == inode)
    }

    /// An operation on an open file: on that one or on none, whoever else
    /// moves things in the view.
    fn on<T>(
        &self,
        file: &OpenFile,
        act: impl FnOnce(&Vfs, &[u8]) -> Result<T, FsError>,
    ) -> Done<T> {
        let view = if file.nameless { &self.attic } else { &self.view };
        Ok(act(&view.given([(&file.path[..], file.inode)]), &file.path)?)
    }

    fn file(&self, fd: u32) -> Done<&OpenFile> {
        match self.slot(fd)? {
            Slot::File(file) => Ok(file),
            Slot::Dir(_) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Reads at a place, or where the descriptor stands, which moves on then.
    pub(super) fn read(&mut self, fd: u32, at: Option<u64>, most: usize) -> Done<Vec<u8>> {
        let most = most.min(PIECE_BYTES_MAX);
        let bytes = match self.slot(fd)? {
            Slot::File(file) if !file.read => return Err(Errno::BADF),
            Slot::File(file) => {
                let from = at.unwrap_or(file.at);
                let range = from..from.saturating_add(most as u64);
                self.on(file, |view, path| view.read_range(path, range))?.to_vec()
            }
            Slot::Library(library) => library.read(at, most).to_vec(),
            Slot::Device(device) => device.read(most)?,
            Slot::Dir(_) => return Err(Errno::ISDIR),
            Slot::Input | Slot::Output | Slot::Errors => return Err(Errno::BADF),
        };
        if at.is_none() {
            match self.slot_mut(fd)? {
                Slot::File(file) => file.at += bytes.len() as u64,
                Slot::Library(library) => library.at += bytes.len() as u64,
                _ => {}
            }
        }
        Ok(bytes)
    }

    /// Writes at a place, or where the descriptor stands, or at the end.
    pub(super) fn write(&mut self, fd: u32, at: Option<u64>, bytes: &[u8]) -> Done {
        let end = match self.slot(fd)? {
            Slot::File(file) if !file.write => return Err(Errno::BADF),
            Slot::File(file) if file.append && at.is_none() => self.on(file, |view, path| {
                view.append(path, bytes)?;
                Ok(view.lstat(path)?.size)
            })?,
            Slot::File(file) => {
                let from = at.unwrap_or(file.at);
                self.on(file, |view, path| view.write_at(path, from, bytes))?;
                from + bytes.len() as u64
            }
            Slot::Device(device) => return device.write(),
            Slot::Dir(_) => return Err(Errno::ISDIR),
            _ => return Err(Errno::BADF),
        };
        if let (None, Slot::File(file)) = (at, self.slot_mut(fd)?) {
            file.at = end;
        }
        Ok(())
    }

    /// Moves a descriptor to a place; `whence` as WASI counts: from the
    /// start, from here, from the end.
    pub(super) fn seek(&mut self, fd: u32, by: i64, whence: u32) -> Done<u64> {
        let (here, end) = match self.slot(fd)? {
            Slot::File(file) if whence == 2 => {
                (file.at, self.on(file, |view, path| Ok(view.lstat(path)?.size))?)
            }
            Slot::File(file) => (file.at, 0),
            Slot::Library(library) => (library.at, library.size()),
            Slot::Device(_) => return Ok(0),
            Slot::Dir(_) => return Err(Errno::ISDIR),
            _ => return Err(Errno::SPIPE),
        };
        let from = match whence {
            0 => 0,
            1 => here,
            2 => end,
            _ => return Err(Errno::INVAL),
        };
        let to = from.checked_add_signed(by).ok_or(Errno::INVAL)?;
        match self.slot_mut(fd)? {
            Slot::File(file) => file.at = to,
            Slot::Library(library) => library.at = to,
            _ => {}
        }
        Ok(to)
    }

    pub(super) fn resize(&self, fd: u32, size: u64) -> Done {
        match self.file(fd)? {
            file if file.write => self.on(file, |view, path| view.truncate(path, size)),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn set_modified(&self, fd: u32, ns: i64) -> Done {
        let new = NewMeta { modified_ns: Some(ns), ..NewMeta::default() };
        match self.slot(fd)? {
            Slot::Dir(path) => Ok(self.view.set_meta(path, new)?),
            Slot::Device(_) => Ok(()),
            _ => self.on(self.file(fd)?, |view, path| view.set_meta(path, new)),
        }
    }

    pub(super) fn set_append(&mut self, fd: u32, append: bool) -> Done {
        if let Slot::File(file) = self.slot_mut(fd)? {
            file.append = append;
        }
        Ok(())
    }

    pub(super) fn stat(&self, fd: u32) -> Done<FileStat> {
        Ok(match self.slot(fd)? {
            Slot::File(file) => FileStat::from(&self.on(file, |view, path| view.lstat(path))?),
            Slot::Dir(path) => FileStat::from(&self.view.stat(path)?),
            Slot::Library(library) => library.stat(),
            Slot::Device(_) => FileStat::beside(CHARACTERS, u64::from(fd) + 1, 0),
            Slot::Input | Slot::Output | Slot::Errors => {
                FileStat::beside(UNKNOWN, u64::from(fd) + 1, 0)
            }
        })
    }

    /// Kind, flags and rights. Standard input and output are like pipes: a
    /// terminal would make programs colour what they say.
    pub(super) fn descriptor(&self, fd: u32) -> Done<[u8; 24]> {
        Ok(match self.slot(fd)? {
            Slot::Input => descriptor_stat(UNKNOWN, false, READ),
            Slot::Output | Slot::Errors => descriptor_stat(UNKNOWN, false, WRITE),
            Slot::Dir(_) => descriptor_stat(DIRECTORY, false, ALL_RIGHTS),
            Slot::File(file) => descriptor_stat(REGULAR, file.append, ALL_RIGHTS),
            Slot::Library(_) => descriptor_stat(REGULAR, false, ALL_RIGHTS & !WRITE),
            // With the right to seek, so that it is not taken for a terminal.
            Slot::Device(_) => descriptor_stat(CHARACTERS, false, ALL_RIGHTS),
        })
    }

    /// What was open at `from` or below is at `to` now.
    pub(super) fn moved(&mut self, from: &[u8], to: &[u8]) {
        for slot in self.slots.iter_mut().flatten() {
            let path = match slot {
                Slot::File(OpenFile { path, nameless: false, .. }) | Slot::Dir(path) => path,
                _ => continue,
            };
            let rest = path.strip_prefix(from);
            if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with(b"/")) {
                *path = [to, rest].concat();
            }
        }
    }

    /// A name went away. Whoever has the file open keeps it: by another name
    /// of its, or without one.
    pub(super) fn lost(&mut self, path: &[u8], gone: &Gone) -> Done {
        let is_it = |file: &OpenFile| file.inode == gone.inode && !file.nameless;
        if !self.files().any(|file| is_it(file) && file.path == path) {
            return Ok(());
        }
        let attic = format!("/{}", gone.inode).into_bytes();
        let nameless = self.attic.adopt(&attic, gone)?;
        let path_now = match nameless {
            true => attic,
            false => self.view.name_of(gone.inode).ok_or(Errno::IO)?,
        };
        for slot in self.slots.iter_mut().flatten() {
            match slot {
                Slot::File(file) if is_it(file) => {
                    (file.path, file.nameless) = (path_now.clone(), nameless);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
