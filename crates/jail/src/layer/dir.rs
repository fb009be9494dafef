//! One directory of a view: the same path open in several layers at once.
//!
//! Holds the overlay's rules in two functions: [`Dir::find`] (the first layer
//! that says something about a name decides what stands there) and
//! [`Dir::descend`] (a directory shows through to the layers below until one
//! of them is opaque or has something else in its place).

use super::Attributes;
use super::entry::{Entry, Source};
use super::open::{self, Scope};
use super::view::View;
use fractal_model::SandboxPath;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

/// Bytes asked of the kernel per listing call: some 500 names.
const LIST_BYTES: usize = 32 * 1024;

/// A directory in one layer of the view.
struct Part {
    source: Source,
    fd: OwnedFd,
}

/// A directory as the view shows it.
pub(super) struct Dir {
    pub path: SandboxPath,
    /// Top first; empty when the view has no such directory.
    parts: Vec<Part>,
    /// Whether a layer of this view keeps whatever is below the view from
    /// showing through.
    pub closed: bool,
    /// Names in here that the host keeps to itself.
    hidden: Vec<Vec<u8>>,
}

/// What a view says about a name.
pub(super) enum Found {
    /// No layer mentions it.
    Absent,
    /// A layer marks it as deleted.
    Whiteout,
    /// This stands there; the number is for `descend` and `open_file`.
    Entry(Entry, usize),
}

/// Names of a directory, each with the topmost part that mentions it.
#[derive(Default)]
pub(super) struct Listing {
    pub names: Vec<(CString, usize)>,
    /// Whether the bound cut it short.
    pub truncated: bool,
    /// Whether a layer's part could not be listed.
    pub unreadable: bool,
}

impl Dir {
    /// The view's root, in all of its layers.
    pub fn root(view: &View) -> Result<Dir, Errno> {
        let mut dir = Dir::empty(view, SandboxPath::root());
        for (source, layer) in view.sources() {
            let fd = layer.open_root(scope(source))?;
            let opaque = source != Source::Host && layer.is_opaque(&fd);
            dir.parts.push(Part { source, fd });
            if opaque {
                dir.closed = true;
                break;
            }
        }
        dir.drop_hidden_host(view);
        Ok(dir)
    }

    fn empty(view: &View, path: SandboxPath) -> Dir {
        let below = |hidden: &SandboxPath| {
            let name = hidden.relative().rsplit(|byte| *byte == b'/').next();
            (hidden.parent().as_ref() == Some(&path)).then(|| name.unwrap_or_default().to_vec())
        };
        let hidden = view.host_hidden.iter().filter_map(below).collect();
        Dir { path, parts: Vec::new(), closed: false, hidden }
    }

    fn drop_hidden_host(&mut self, view: &View) {
        if view.host_hidden.contains(&self.path) {
            self.parts.retain(|part| part.source != Source::Host);
        }
    }

    /// What stands at a name, looking from part `from` downwards.
    pub fn find(&self, view: &View, name: &CStr, from: usize) -> Result<Found, Errno> {
        for (at, part) in self.parts.iter().enumerate().skip(from) {
            let stat = match open::status(&part.fd, name) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            };
            let kind = open::file_type(&stat);
            if part.source == Source::Host {
                if kind != FileType::Directory && self.hides(name) {
                    continue;
                }
            } else if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
                return Ok(Found::Whiteout);
            }
            let target = match kind {
                FileType::Symlink => {
                    Some(rustix::fs::readlinkat(&part.fd, name, Vec::new())?.into_bytes())
                }
                _ => None,
            };
            return Ok(Found::Entry(
                Entry::new(&stat, target, part.source, view.layer(part.source)),
                at,
            ));
        }
        Ok(Found::Absent)
    }

    /// A hidden path that is no directory on the host does not exist for us:
    /// it may be a secret, and nothing may ever read it through a view.
    fn hides(&self, name: &CStr) -> bool {
        self.hidden.iter().any(|hidden| hidden == name.to_bytes())
    }

    /// Opens the directory at a name in every part from `from` downwards that
    /// shows through.
    pub fn descend(&self, view: &View, name: &CStr, from: usize) -> Result<Dir, Errno> {
        let path = self.path.join(name.to_bytes()).map_err(|_| Errno::INVAL)?;
        let mut dir = Dir::empty(view, path);
        for part in self.parts.iter().skip(from) {
            match open::directory(&part.fd, name, scope(part.source)) {
                Ok(fd) => {
                    let layer = view.layer(part.source);
                    dir.closed = part.source != Source::Host && layer.is_opaque(&fd);
                    dir.parts.push(Part { source: part.source, fd });
                }
                Err(Errno::NOENT) => continue,
                // A whiteout, a file or a symlink: what lies below is hidden.
                Err(Errno::NOTDIR | Errno::LOOP) => dir.closed = true,
                Err(errno) => return Err(errno),
            }
            if dir.closed {
                break;
            }
        }
        dir.closed |= self.closed;
        dir.drop_hidden_host(view);
        Ok(dir)
    }

    /// All names of all parts, sorted, at most `room` of them.
    pub fn list(&self, room: u64) -> Result<Listing, Errno> {
        let mut listing = Listing::default();
        for (at, part) in self.parts.iter().enumerate() {
            match list_part(&part.fd, at, room, &mut listing) {
                Ok(()) => {}
                Err(errno) if super::error::is_fatal(errno) => return Err(errno),
                Err(_) => listing.unreadable = true,
            }
        }
        // By name, then topmost part first, which is the one that stays.
        listing.names.sort_unstable();
        listing.names.dedup_by(|later, earlier| later.0 == earlier.0);
        Ok(listing)
    }

    /// Opens the regular file that `find` reported in part `at`.
    pub fn open_file(&self, name: &CStr, at: usize) -> Result<std::fs::File, Errno> {
        let part = self.parts.get(at).ok_or(Errno::NOENT)?;
        open::file(&part.fd, name, scope(part.source)).map(|(file, _)| file)
    }

    /// The attributes of what `find` reported in part `at`.
    pub fn attributes(&self, name: &CStr, at: usize) -> Result<Attributes, Errno> {
        let part = self.parts.get(at).ok_or(Errno::NOENT)?;
        Attributes::of_name(&part.fd, name)
    }

    /// The directory in the layer where `find` found something.
    pub fn part(&self, at: usize) -> Option<BorrowedFd<'_>> {
        self.parts.get(at).map(|part| part.fd.as_fd())
    }

    /// How many descriptors it holds.
    pub fn width(&self) -> usize {
        self.parts.len()
    }

    /// The directory's own entry in its topmost part.
    pub fn own_entry(&self, view: &View) -> Result<Option<Entry>, Errno> {
        let Some(part) = self.parts.first() else { return Ok(None) };
        let stat = rustix::fs::fstat(&part.fd)?;
        Ok(Some(Entry::new(&stat, None, part.source, view.layer(part.source))))
    }
}

fn scope(source: Source) -> Scope {
    match source {
        Source::Layer(_) => Scope::Layer,
        Source::Host => Scope::Host,
    }
}

fn list_part(fd: &OwnedFd, at: usize, room: u64, listing: &mut Listing) -> Result<(), Errno> {
    let mut buffer: Vec<MaybeUninit<u8>> = Vec::new();
    buffer.resize(LIST_BYTES, MaybeUninit::uninit());
    let mut entries = RawDir::new(fd, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if listing.names.len() as u64 >= room {
            listing.truncated = true;
            return Ok(());
        }
        listing.names.push((name.to_owned(), at));
    }
    Ok(())
}
