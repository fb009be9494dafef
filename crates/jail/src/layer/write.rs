//! Writing into a layer from outside, as an overlay would have done it.
//!
//! Used for copying in and for importing archives, on a layer that nothing is
//! mounted on. Every path is resolved beneath the layer's tree, one component
//! at a time, without following links; what is missing on the way is made
//! with the attributes it has in the view below.

use super::entry::mode_mask;
use super::open::{self, Scope};
use super::{Attributes, Layer, LayerError, Result, View};
use fractal_model::{EntryKind, SandboxPath};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Puts entries into a layer.
pub struct Writer<'a> {
    tree: OwnedFd,
    /// What the layer stands on.
    below: &'a View,
    opaque_name: &'static str,
    keep_owner: bool,
}

impl<'a> Writer<'a> {
    /// Opens a layer's tree for writing. `trusted` says which attributes the
    /// overlay of this machine reads, and whether owners can be set.
    pub fn open(tree: &Path, below: &'a View, trusted: bool) -> Result<Writer<'a>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, tree, flags, Mode::empty())
            .map_err(|errno| LayerError::io("open the layer", tree.display(), errno))?;
        let opaque_name = if trusted { "trusted.overlay.opaque" } else { "user.overlay.opaque" };
        Ok(Writer { tree: fd, below, opaque_name, keep_owner: trusted })
    }

    /// Writes a regular file; set-uid bits are not kept.
    pub fn file(
        &self,
        path: &SandboxPath,
        mode: u32,
        owner: (u32, u32),
        attributes: &Attributes,
        content: &mut dyn Read,
    ) -> Result<u64> {
        let (dir, name) = self.parent(path)?;
        let fail = |errno: Errno| LayerError::io("write", path, errno);
        let temporary = c".fractal-incoming";
        let _ = rustix::fs::unlinkat(&dir, temporary, AtFlags::empty());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            rustix::fs::openat(&dir, temporary, flags, Mode::from_raw_mode(0o600)).map_err(fail)?;
        let mut file = File::from(fd);
        let copied = std::io::copy(content, &mut file);
        let result = copied
            .map_err(|error| fail(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
            .and_then(|bytes| {
                self.set_owner(&file, owner);
                // Before the mode: a file that may not be written takes none.
                attributes.give(&file).map_err(fail)?;
                rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777)).map_err(fail)?;
                self.clear(&dir, &name).map_err(fail)?;
                rustix::fs::renameat(&dir, temporary, &dir, &name).map_err(fail)?;
                Ok(bytes)
            });
        if result.is_err() {
            let _ = rustix::fs::unlinkat(&dir, temporary, AtFlags::empty());
        }
        result
    }

    /// Makes a directory, or takes an existing one as it is.
    pub fn directory(&self, path: &SandboxPath, mode: u32, owner: (u32, u32)) -> Result<()> {
        let Some(_) = path.parent() else { return Ok(()) };
        let fail = |errno: Errno| LayerError::io("make the directory", path, errno);
        let (dir, name) = self.parent(path)?;
        if kind_at(&dir, &name) == Some(FileType::Directory) {
            return Ok(());
        }
        let covered = kind_at(&dir, &name).is_some();
        self.clear(&dir, &name).map_err(fail)?;
        let below = self.below.lookup(path)?;
        let merges =
            !covered && below.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory);
        let (mode, owner, attributes) = match below.filter(|_| merges) {
            Some(entry) => (entry.mode, (entry.uid, entry.gid), self.below.attributes(path)?),
            None => (mode, owner, Attributes::default()),
        };
        let made = self.make_directory(&dir, &name, mode, owner, &attributes).map_err(fail)?;
        if !merges && covered {
            // Whatever the deletion hid must stay hidden.
            rustix::fs::fsetxattr(&made, self.opaque_name, b"y", XattrFlags::empty())
                .map_err(fail)?;
        }
        Ok(())
    }

    /// Gives a directory of the layer its mode, owner and attributes, and takes
    /// others from it. Apart from making it, because what lies in it may have
    /// to be written first.
    pub fn dress(
        &self,
        path: &SandboxPath,
        mode: u32,
        owner: (u32, u32),
        attributes: &Attributes,
    ) -> Result<()> {
        let Some(_) = path.parent() else { return Ok(()) };
        let fail = |errno: Errno| LayerError::io("set the mode of", path, errno);
        let (dir, name) = self.parent(path)?;
        if kind_at(&dir, &name) != Some(FileType::Directory) {
            return Ok(());
        }
        let directory = open::directory(&dir, &name, Scope::Layer).map_err(fail)?;
        self.set_owner(&directory, owner);
        let has =
            Attributes::of(&directory).map_err(|errno| LayerError::attributes(path, errno))?;
        for (name, _) in has.iter().filter(|(name, _)| attributes.get(name).is_none()) {
            rustix::fs::fremovexattr(&directory, name).map_err(fail)?;
        }
        attributes.give(&directory).map_err(fail)?;
        rustix::fs::fchmod(&directory, directory_mode(mode)).map_err(fail)
    }

    /// Makes a named pipe, which nobody here ever opens.
    pub fn fifo(&self, path: &SandboxPath, mode: u32, owner: (u32, u32)) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        let fail = |errno: Errno| LayerError::io("make the fifo", path, errno);
        self.clear(&dir, &name).map_err(fail)?;
        let mode = Mode::from_raw_mode(mode & 0o777);
        rustix::fs::mknodat(&dir, &name, FileType::Fifo, mode, 0).map_err(fail)?;
        if self.keep_owner {
            let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let _ = rustix::fs::chownat(&dir, &name, Some(uid), Some(gid), flags);
        }
        // Whoever writes this layer is we alone, so the name is still ours.
        rustix::fs::chmodat(&dir, &name, mode, AtFlags::empty()).map_err(fail)
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, path: &SandboxPath, target: &[u8]) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        let fail = |errno: Errno| LayerError::io("make the link", path, errno);
        self.clear(&dir, &name).map_err(fail)?;
        rustix::fs::symlinkat(target, &dir, &name).map_err(fail)
    }

    /// Marks a path as deleted, if there is something below to hide.
    pub fn delete(&self, path: &SandboxPath) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        let fail = |errno: Errno| LayerError::io("delete", path, errno);
        self.clear(&dir, &name).map_err(fail)?;
        if self.below.lookup(path)?.is_some() {
            let kind = FileType::CharacterDevice;
            rustix::fs::mknodat(&dir, &name, kind, Mode::empty(), 0).map_err(fail)?;
        }
        Ok(())
    }

    /// The directory that holds `path`, made where it is missing.
    fn parent(&self, path: &SandboxPath) -> Result<(OwnedFd, CString)> {
        let fail = |errno: Errno| LayerError::io("reach", path, errno);
        let mut at = rustix::io::dup(&self.tree).map_err(fail)?;
        let mut here = SandboxPath::root();
        let parts: Vec<&[u8]> = path.components().collect();
        let (name, above) =
            parts.split_last().ok_or(LayerError::io("write", path, Errno::ISDIR))?;
        let none = Attributes::default();
        let c = |bytes: &[u8]| CString::new(bytes).map_err(|_| fail(Errno::INVAL));
        for part in above {
            here = here.join(part).map_err(|_| fail(Errno::INVAL))?;
            let name = c(part)?;
            at = match kind_at(&at, &name) {
                Some(FileType::Directory) => {
                    open::directory(&at, &name, Scope::Layer).map_err(fail)?
                }
                Some(FileType::CharacterDevice) => {
                    self.clear(&at, &name).map_err(fail)?;
                    let made =
                        self.make_directory(&at, &name, 0o755, (0, 0), &none).map_err(fail)?;
                    rustix::fs::fsetxattr(&made, self.opaque_name, b"y", XattrFlags::empty())
                        .map_err(fail)?;
                    made
                }
                Some(_) => return Err(fail(Errno::NOTDIR)),
                None => self.copy_directory(&at, &name, &here)?,
            };
        }
        Ok((at, c(name)?))
    }

    /// A directory that only the view below has, or that nobody has.
    fn copy_directory(&self, at: &OwnedFd, name: &CString, path: &SandboxPath) -> Result<OwnedFd> {
        let fail = |errno: Errno| LayerError::io("make the directory", path, errno);
        let (mode, owner) = match self.below.lookup(path)? {
            None => (0o755, (0, 0)),
            Some(entry) if entry.kind == EntryKind::Directory => {
                (entry.mode, (entry.uid, entry.gid))
            }
            Some(_) => return Err(fail(Errno::NOTDIR)),
        };
        let attributes = self.below.attributes(path)?;
        self.make_directory(at, name, mode, owner, &attributes).map_err(fail)
    }

    fn make_directory(
        &self,
        at: &OwnedFd,
        name: &CString,
        mode: u32,
        owner: (u32, u32),
        attributes: &Attributes,
    ) -> std::result::Result<OwnedFd, Errno> {
        rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o700))?;
        let dir = open::directory(at, name, Scope::Layer)?;
        self.set_owner(&dir, owner);
        attributes.give(&dir)?;
        rustix::fs::fchmod(&dir, directory_mode(mode))?;
        Ok(dir)
    }

    /// Owners are kept where we may set them; elsewhere everything is ours.
    fn set_owner(&self, file: impl AsFd, (uid, gid): (u32, u32)) {
        if self.keep_owner {
            let _ = rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        }
    }

    /// Removes what the layer has at a name; a directory with its content.
    fn clear(&self, dir: &OwnedFd, name: &CString) -> std::result::Result<(), Errno> {
        match kind_at(dir, name) {
            None => Ok(()),
            Some(FileType::Directory) => remove_tree(dir, name),
            Some(_) => rustix::fs::unlinkat(dir, name, AtFlags::empty()),
        }
    }
}

fn directory_mode(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & mode_mask(FileType::Directory))
}

fn kind_at(dir: &OwnedFd, name: &CString) -> Option<FileType> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// Removes a directory below `dir`, depth first and without recursion on our
/// stack: a hostile tree may be thousands of levels deep.
fn remove_tree(dir: &OwnedFd, name: &CString) -> std::result::Result<(), Errno> {
    const LEVELS_MAX: usize = 4096;
    let mut stack = vec![(rustix::io::dup(dir)?, name.clone())];
    while let Some((parent, name)) = stack.last() {
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {
                stack.pop();
                continue;
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) if stack.len() < LEVELS_MAX => {}
            Err(errno) => return Err(errno),
        }
        let here = open::directory(parent, name, Scope::Layer)?;
        let mut subdirectory = None;
        for entry in rustix::fs::Dir::read_from(&here)? {
            let entry = entry?;
            let entry_name = entry.file_name().to_owned();
            if entry_name.as_bytes() == b"." || entry_name.as_bytes() == b".." {
                continue;
            }
            if kind_at(&here, &entry_name) == Some(FileType::Directory) {
                subdirectory = Some(entry_name);
            } else {
                rustix::fs::unlinkat(&here, &entry_name, AtFlags::empty())?;
            }
        }
        if let Some(subdirectory) = subdirectory {
            stack.push((here, subdirectory));
        }
    }
    Ok(())
}

impl Layer {
    /// Whether the layer holds nothing at all.
    pub fn is_empty(&self) -> bool {
        let Ok(root) = self.open_root(Scope::Layer) else { return false };
        let Ok(entries) = rustix::fs::Dir::read_from(&root) else { return false };
        entries.flatten().all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    }
}
