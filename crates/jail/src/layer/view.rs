//! What a sandbox sees, computed without mounting anything.

use super::dir::{Dir, Found};
use super::entry::{Entry, Source};
use super::{Attributes, Layer, LayerError, Result};
use fractal_model::{EntryKind, SandboxPath};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::CString;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A stack of layers over the host.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The layers, top first.
    pub layers: Vec<Layer>,
    /// The host's root, at the bottom and live.
    pub host: Option<Layer>,
    /// Paths below which the host is not consulted: scratch mounts, `/proc`,
    /// the state directory, secrets. A hidden directory shows as an empty
    /// one; anything else that is hidden does not exist.
    pub host_hidden: Vec<SandboxPath>,
    /// What is asked below the first path is looked up below the second.
    pub moved: Option<(SandboxPath, SandboxPath)>,
    /// Set once nobody waits any more for what is read: then whatever reads
    /// through this view ends with [`LayerError::Stopped`].
    pub called_off: Option<Arc<AtomicBool>>,
}

/// One name of a directory and what stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, as bytes.
    pub name: Vec<u8>,
    /// What stands there.
    pub entry: Entry,
}

/// A view read path by path in the order of a walk. The directory of the last
/// path stays open: from the root down, every layer would be asked again for
/// every part of every path. What is open may be out of date when somebody
/// swaps directories meanwhile, so make one for a walk and not for longer.
pub struct Reader<'v> {
    view: &'v View,
    last: Option<(SandboxPath, Option<Dir>)>,
}

impl Reader<'_> {
    /// What stands at a path, as [`View::lookup`] tells.
    pub fn lookup(&mut self, path: &SandboxPath) -> Result<Option<Entry>> {
        let fail = |errno| LayerError::io("look up", path, errno);
        let view = self.view;
        view.check_wanted()?;
        let Some((parent, name)) = split(&view.real(path)) else { return view.lookup(path) };
        let Some(dir) = self.dir(parent).map_err(fail)? else { return Ok(None) };
        match dir.find(view, &name, 0).map_err(fail)? {
            Found::Entry(entry, _) => Ok(Some(entry)),
            Found::Absent | Found::Whiteout => Ok(None),
        }
    }

    /// Opens a regular file for reading; everything else is refused.
    pub fn open_file(&mut self, path: &SandboxPath) -> Result<File> {
        let fail = |errno| LayerError::io("open", path, errno);
        let missing = || LayerError::NotFound { path: path.clone() };
        let not_a_file = || LayerError::Kind { path: path.clone(), wanted: "regular file" };
        let view = self.view;
        view.check_wanted()?;
        let (parent, name) = split(&view.real(path)).ok_or_else(not_a_file)?;
        let dir = self.dir(parent).map_err(fail)?.ok_or_else(missing)?;
        match dir.find(view, &name, 0).map_err(fail)? {
            Found::Absent | Found::Whiteout => Err(missing()),
            Found::Entry(entry, _) if entry.kind != EntryKind::File => Err(not_a_file()),
            Found::Entry(_, at) => match dir.open_file(&name, at) {
                // Swapped for something else since we looked.
                Err(Errno::INVAL | Errno::LOOP | Errno::NXIO) => Err(not_a_file()),
                answer => answer.map_err(fail),
            },
        }
    }

    /// What programs noted about a file or directory.
    pub fn attributes(&mut self, path: &SandboxPath) -> Result<Attributes> {
        let fail = |errno| LayerError::attributes(path, errno);
        let view = self.view;
        let Some((parent, name)) = split(&view.real(path)) else {
            return Ok(Attributes::default());
        };
        let Some(dir) = self.dir(parent).map_err(fail)? else { return Ok(Attributes::default()) };
        match dir.find(view, &name, 0).map_err(fail)? {
            Found::Entry(_, at) => dir.attributes(&name, at).map_err(fail),
            Found::Absent | Found::Whiteout => Ok(Attributes::default()),
        }
    }

    fn dir(&mut self, path: SandboxPath) -> std::result::Result<Option<&Dir>, Errno> {
        if self.last.as_ref().is_none_or(|(known, _)| *known != path) {
            let dir = self.view.dir_at(&path)?;
            self.last = Some((path, dir));
        }
        Ok(self.last.as_ref().and_then(|(_, dir)| dir.as_ref()))
    }
}

/// Names that `read_dir` is willing to hold in memory.
const READ_DIR_MAX: u64 = 2_000_000;

impl View {
    /// The same view with more layers on it, given top first.
    #[must_use]
    pub fn with_layers_on_top(&self, own: &[Layer]) -> View {
        let layers = own.iter().chain(&self.layers).cloned().collect();
        View { layers, ..self.clone() }
    }

    /// The same view with one directory seen at the place of another, so that
    /// two trees can be compared path by path.
    #[must_use]
    pub fn seen_at(&self, place: SandboxPath, directory: SandboxPath) -> View {
        View { moved: Some((place, directory)), ..self.clone() }
    }

    /// Whether somebody still waits for what is read.
    pub fn check_wanted(&self) -> Result<()> {
        match &self.called_off {
            Some(flag) if flag.load(Ordering::Acquire) => Err(LayerError::Stopped),
            _ => Ok(()),
        }
    }

    fn real<'p>(&self, path: &'p SandboxPath) -> Cow<'p, SandboxPath> {
        let moved = self.moved.as_ref().and_then(|(place, real)| path.moved(place, real));
        moved.map_or(Cow::Borrowed(path), Cow::Owned)
    }

    /// What stands at a path. Symlinks are reported and never followed, so a
    /// path through one does not exist.
    pub fn lookup(&self, path: &SandboxPath) -> Result<Option<Entry>> {
        let fail = |errno| LayerError::io("look up", path, errno);
        self.check_wanted()?;
        let path = &*self.real(path);
        let Some((parent, name)) = split(path) else {
            return Dir::root(self).and_then(|root| root.own_entry(self)).map_err(fail);
        };
        let Some(dir) = self.dir_at(&parent).map_err(fail)? else { return Ok(None) };
        match dir.find(self, &name, 0).map_err(fail)? {
            Found::Entry(entry, _) => Ok(Some(entry)),
            Found::Absent | Found::Whiteout => Ok(None),
        }
    }

    /// The entries of a directory, sorted by name.
    pub fn read_dir(&self, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        let fail = |errno| LayerError::io("list", path, errno);
        let Some(dir) = self.dir(path).map_err(fail)? else {
            return Err(match self.lookup(path)? {
                None => LayerError::NotFound { path: path.clone() },
                Some(_) => LayerError::Kind { path: path.clone(), wanted: "directory" },
            });
        };
        let listing = dir.list(READ_DIR_MAX).map_err(fail)?;
        if listing.unreadable {
            return Err(fail(Errno::ACCESS));
        }
        if listing.truncated {
            return Err(fail(Errno::TOOBIG));
        }
        let mut entries = Vec::with_capacity(listing.names.len());
        for (name, at) in listing.names {
            match dir.find(self, &name, at).map_err(fail)? {
                Found::Entry(entry, _) => entries.push(DirEntry { name: name.into_bytes(), entry }),
                Found::Absent | Found::Whiteout => {}
            }
        }
        Ok(entries)
    }

    /// Opens a regular file for reading; everything else is refused.
    pub fn open_file(&self, path: &SandboxPath) -> Result<File> {
        self.reader().open_file(path)
    }

    /// What programs noted about a file or directory; nothing where nothing
    /// stands.
    pub fn attributes(&self, path: &SandboxPath) -> Result<Attributes> {
        self.reader().attributes(path)
    }

    /// For looking at many paths in the order of a walk.
    pub fn reader(&self) -> Reader<'_> {
        Reader { view: self, last: None }
    }

    /// The directory at a path; `None` when something else or nothing stands
    /// there.
    pub(super) fn dir(&self, path: &SandboxPath) -> std::result::Result<Option<Dir>, Errno> {
        self.dir_at(&self.real(path))
    }

    fn dir_at(&self, path: &SandboxPath) -> std::result::Result<Option<Dir>, Errno> {
        let mut dir = Dir::root(self)?;
        for name in path.components() {
            let name = c_name(name);
            match dir.find(self, &name, 0)? {
                Found::Entry(entry, at) if entry.is_dir() => {
                    dir = dir.descend(self, &name, at)?;
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(dir))
    }

    /// The layers and then the host.
    pub(super) fn sources(&self) -> impl Iterator<Item = (Source, &Layer)> {
        let layers = self.layers.iter().enumerate();
        let host = self.host.iter().map(|host| (Source::Host, host));
        layers.map(|(at, layer)| (Source::Layer(at), layer)).chain(host)
    }

    pub(super) fn layer(&self, source: Source) -> &Layer {
        match source {
            Source::Layer(at) => &self.layers[at],
            Source::Host => self.host.as_ref().expect("a part of the host needs a host"),
        }
    }

    /// How many nested directories a walk keeps open, so that a deep tree in
    /// many layers does not use up this process's descriptors.
    pub(super) fn open_depth_max(&self) -> usize {
        (256 / (self.layers.len() + 1)).max(4)
    }
}

pub(super) fn split(path: &SandboxPath) -> Option<(SandboxPath, CString)> {
    let name = path.components().last()?;
    Some((path.parent()?, c_name(name)))
}

pub(super) fn c_name(name: &[u8]) -> CString {
    CString::new(name).expect("a sandbox path holds no NUL")
}
