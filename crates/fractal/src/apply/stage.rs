//! Laying out what shall stand in reality, beside it and out of sight.
//!
//! Each entry is complete when it is done: content, owner, attributes, mode
//! and time. Contents come from hostile layers and are read through
//! [`fractal_jail::layer`] alone. Directories are staged empty; their entries
//! are staged beside them and follow when the directory stands in its place.

use super::content::{self, Which};
use super::disk::{At, Disk, Owner};
use super::ground::{c_name, open_listed, open_there};
use super::notes;
use super::plan::{Bytes, Made};
use super::see::seen_at;
use super::trouble::Trouble;
use super::{Content, New, Seen, Step, What};
use fractal_jail::layer::{Attributes, Reader, View};
use fractal_model::{EntryKind, Error, SandboxPath};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Where contents come from and how much of what they say is believed.
pub(super) struct Stager<'a> {
    pub disk: &'a Disk,
    /// Whether the entries stood in reality before: then they come back with
    /// everything, special mode bits and foreign attributes included.
    pub trusted: bool,
    /// Whether what is kept is copied, and stays where it is.
    pub copies: bool,
    reader: Option<Reader<'a>>,
    /// What was made of files with several names, by stage and file.
    linked: HashMap<(RawFd, u64, u64), Linked>,
}

/// The first name of a file that has several.
struct Linked {
    name: CString,
    mode: u32,
    owner: (u32, u32),
    made: Made,
}

impl<'a> Stager<'a> {
    pub fn new(disk: &'a Disk, view: Option<&'a View>, trusted: bool) -> Stager<'a> {
        let reader = view.map(View::reader);
        Stager { disk, trusted, copies: false, reader, linked: HashMap::new() }
    }

    /// Makes what a step brings under its number; what changes in place needs
    /// nothing made.
    pub fn make(
        &mut self,
        step: &Step,
        stage: &OwnedFd,
        number: usize,
    ) -> Result<Option<Made>, Trouble> {
        let Some(new) = &step.new else { return Ok(None) };
        let name = c_name(number.to_string().as_bytes());
        let at = At { dir: stage, name: &name };
        let fail = |error: io::Error| Trouble::io("prepare", &step.path, &error);
        let made = match (&new.what, &step.old) {
            (What::File(Content::Same), Some(old)) => in_place(new, old),
            (What::Directory, Some(old)) if old.kind == EntryKind::Directory => Made {
                attributes: new.noted.as_ref().map(|noted| notes::digest(&noted.new)),
                noted: new.noted.clone(),
                ..in_place(new, old)
            },
            (What::Directory, _) => self.directory(new, at).map_err(fail)?,
            (What::Symlink(target), _) => self.symlink(new, target, at).map_err(fail)?,
            (What::File(content), _) => self.file(step, new, content, at)?,
            (What::Special(path), _) => self.special(new, path, at).map_err(fail)?,
        };
        Ok(Some(made))
    }

    fn directory(&self, new: &New, at: At<'_>) -> io::Result<Made> {
        self.disk.make_dir(at)?;
        self.give(new, at)?;
        let mut attributes = String::new();
        if let Some(noted) = &new.noted {
            let dir = File::from(open_listed(at.dir, at.name)?);
            content::give_all(self.disk, &dir, &noted.new)?;
            attributes = notes::digest(&Attributes::of(&dir)?);
        }
        // Mode and time follow when its entries are in it.
        let made = seen(at)?;
        let (mode, mtime_ns) = (self.mode(new), new.mtime_ns);
        Ok(Made { mode, mtime_ns, attributes: Some(attributes), ..described(new, &made) })
    }

    fn symlink(&self, new: &New, target: &[u8], at: At<'_>) -> io::Result<Made> {
        self.disk.make_link(target, at)?;
        self.give(new, at)?;
        self.disk.set_time(at, new.mtime_ns)?;
        Ok(Made { target: Some(Bytes(target.to_vec())), ..described(new, &seen(at)?) })
    }

    fn file(
        &mut self,
        step: &Step,
        new: &New,
        content: &Content,
        at: At<'_>,
    ) -> Result<Made, Trouble> {
        let fail = |error: io::Error| Trouble::io("prepare", &step.path, &error);
        let source = match content {
            Content::View => Some(self.open(&step.path)?),
            Content::Kept(path) => {
                let source = open_kept(path).map_err(|error| cannot_read(path, &error))?;
                if self.trusted
                    && !self.copies
                    && let Some(made) = self.again(path, &source, at).map_err(fail)?
                {
                    return Ok(made);
                }
                Some(source)
            }
            Content::Bytes(_) | Content::Same => None,
        };
        let bytes: &[u8] = if let Content::Bytes(bytes) = content { bytes } else { &[] };
        match source {
            Some(source) => self.copied(new, &source, at).map_err(fail),
            None => self.filled(new, None, bytes, at).map_err(fail),
        }
    }

    /// A copy of a file; of one that was copied under another name already, a
    /// second name. Names that were links of one another stay so.
    fn copied(&mut self, new: &New, source: &File, at: At<'_>) -> io::Result<Made> {
        let stat = rustix::fs::fstat(source)?;
        if stat.st_nlink < 2 {
            return self.filled(new, Some(source), &[], at);
        }
        let file = (at.dir.as_raw_fd(), stat.st_dev, stat.st_ino);
        let (mode, owner) = (self.mode(new), owner_of(new, at.dir)?);
        let first = self.linked.get(&file);
        if let Some(first) = first.filter(|first| (first.mode, first.owner) == (mode, owner)) {
            match self.disk.link(At { dir: at.dir, name: &first.name }, at) {
                Err(error) if can_be_copied(&error) => {}
                answer => return answer.map(|()| first.made.clone()),
            }
        }
        let made = self.filled(new, Some(source), &[], at)?;
        let linked = Linked { name: at.name.to_owned(), mode, owner, made: made.clone() };
        self.linked.insert(file, linked);
        Ok(made)
    }

    /// A file that stood in reality comes back as itself where it can: with
    /// its inode, further names and attributes.
    fn again(&self, path: &Path, source: &File, at: At<'_>) -> io::Result<Option<Made>> {
        if !self.link_kept(path, at)? {
            return Ok(None);
        }
        let made = seen(at)?;
        let sha256 = Some(content::hash(source)?);
        let attributes = Attributes::of(source).ok().map(|noted| notes::digest(&noted));
        Ok(Some(Made { sha256, attributes, ..of_seen(&made) }))
    }

    /// Gives what is kept another name, here; false where it cannot have one.
    fn link_kept(&self, path: &Path, at: At<'_>) -> io::Result<bool> {
        let Some((parent, name)) = path.parent().zip(path.file_name()) else { return Ok(false) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags, Mode::empty())?;
        let name = c_name(name.as_encoded_bytes());
        match self.disk.link(At { dir: &parent, name: &name }, at) {
            Err(error) if can_be_copied(&error) => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    /// A fifo, socket or device comes back as itself, or as one of its kind.
    /// Nobody here opens it.
    fn special(&self, new: &New, path: &Path, at: At<'_>) -> io::Result<Made> {
        if !self.link_kept(path, at)? {
            let kept = rustix::fs::lstat(path)?;
            let kind = FileType::from_raw_mode(kept.st_mode);
            self.disk.make_special(at, kind, kept.st_rdev)?;
            self.give(new, at)?;
            let handle = open_there(at.dir, at.name.to_bytes(), OFlags::PATH)?;
            self.disk.set_mode(&handle, self.mode(new))?;
            self.disk.set_time(at, new.mtime_ns)?;
        }
        Ok(of_seen(&seen(at)?))
    }

    fn filled(
        &self,
        new: &New,
        source: Option<&File>,
        bytes: &[u8],
        at: At<'_>,
    ) -> io::Result<Made> {
        let file = self.disk.create(at, self.mode(new))?;
        let (_, hash) = self.disk.write(|| match source {
            Some(source) => content::copy(source, &file),
            None => {
                file.write_all_at(bytes, 0)?;
                Ok((bytes.len() as u64, content::hash_bytes(bytes)))
            }
        })?;
        self.give(new, at)?;
        if let Some(source) = source {
            // Before the mode: a file that may not be written takes none.
            let which = if self.trusted { Which::All } else { Which::OfLayer };
            content::copy_attributes(self.disk, source, &file, which)?;
        } else if let Some(noted) = &new.noted {
            content::give_all(self.disk, &file, &noted.new)?;
        }
        // As they arrived: not every filesystem takes them.
        let attributes = Attributes::of(&file).ok().map(|noted| notes::digest(&noted));
        let has = Seen::of(&rustix::fs::fstat(&file)?).mode;
        if has != self.mode(new) {
            self.disk.set_mode(&file, self.mode(new))?;
        }
        self.disk.set_time(at, new.mtime_ns)?;
        let made = Seen::of(&rustix::fs::fstat(&file)?);
        Ok(Made { sha256: Some(hash), attributes, ..described(new, &made) })
    }

    fn mode(&self, new: &New) -> u32 {
        // A layer's files bring no bit that gives rights.
        let given = if matches!(new.what, What::Directory) { 0o3777 } else { 0o777 };
        new.mode & if self.trusted { 0o7777 } else { given }
    }

    /// Owners are set where we may; elsewhere everything new is ours.
    fn give(&self, new: &New, at: At<'_>) -> io::Result<()> {
        let Some((uid, gid)) = new.owner else { return Ok(()) };
        let now = seen(at)?;
        if (now.uid, now.gid) == (uid, gid) {
            return Ok(());
        }
        give(self.disk, at, (Some(uid), Some(gid)))
    }

    fn open(&mut self, path: &SandboxPath) -> Result<File, Trouble> {
        let reader = self.reader.as_mut();
        let reader = reader.ok_or_else(|| Error::internal("a job without a view needs one"))?;
        Ok(reader.open_file(path).map_err(Error::from)?)
    }
}

/// What changes in place. Bits that a sandbox never gives out stay as they
/// are: the content they stand for is the same.
fn in_place(new: &New, old: &Seen) -> Made {
    let mode = (old.mode & !old.mode_mask()) | (new.mode & old.mode_mask());
    Made { inode: None, mode, owner: new.owner, ..of_seen(old) }
}

fn described(new: &New, made: &Seen) -> Made {
    Made { owner: new.owner, ..of_seen(made) }
}

fn of_seen(seen: &Seen) -> Made {
    Made {
        kind: seen.kind,
        mode: seen.mode,
        owner: Some((seen.uid, seen.gid)),
        mtime_ns: seen.mtime_ns,
        size: seen.size,
        sha256: None,
        target: None,
        attributes: None,
        noted: None,
        inode: Some(seen.inode),
    }
}

/// Whose a new entry of a stage will be.
fn owner_of(new: &New, stage: &OwnedFd) -> io::Result<(u32, u32)> {
    const SET_GID: u32 = 0o2000;
    if let Some(owner) = new.owner {
        return Ok(owner);
    }
    let stage = Seen::of(&rustix::fs::fstat(stage)?);
    let shared = stage.mode & SET_GID != 0;
    let group = if shared { stage.gid } else { rustix::process::getegid().as_raw() };
    Ok((rustix::process::geteuid().as_raw(), group))
}

/// Gives away; an ordinary user may not, and keeps it.
pub(super) fn give(disk: &Disk, at: At<'_>, owner: Owner) -> io::Result<()> {
    match disk.give(at, owner) {
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied
                && !rustix::process::geteuid().is_root() =>
        {
            Ok(())
        }
        answer => answer,
    }
}

fn seen(at: At<'_>) -> io::Result<Seen> {
    seen_at(at.dir, at.name)?.ok_or_else(|| Errno::NOENT.into())
}

fn can_be_copied(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::NOTSUP))
}

fn open_kept(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

fn cannot_read(path: &Path, error: &io::Error) -> Trouble {
    let message = format!("cannot read what was kept in {}: {error}", path.display());
    Error::new(fractal_model::Code::Corrupt, message).hint("run `fractal doctor`").into()
}
