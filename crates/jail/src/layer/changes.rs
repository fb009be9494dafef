//! What a sandbox changed, by value.
//!
//! Walks the sandbox's own layers and looks up each of their entries in the
//! base; a place that shows nothing of the base (a deleted or replaced
//! directory) is walked in the base as well, to name what is gone. Copying a
//! file up without changing it is no change, whatever the layer holds.

use super::autorun::{is_above_autorun, is_autorun};
use super::compare::same_content_while;
use super::dir::{Dir, Found, Listing};
use super::error::is_fatal;
use super::view::View;
use super::walk::join;
use super::{Bounds, Entry, Layer, LayerError, Result};
use fractal_model::{Change, ChangeKind, EntryKind, SandboxPath};
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// What differs, and how complete the answer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Sorted by path.
    pub list: Vec<Change>,
    /// Whether a bound cut it short.
    pub truncated: bool,
    /// Fifos, sockets and devices among the additions and modifications.
    pub special: u64,
    /// Entries that could not be read. A file that could not be compared is
    /// listed as modified.
    pub unreadable: u64,
}

/// What differs between `base` and `own` (top first) laid over it.
pub fn changes(own: &[Layer], base: &View, bounds: &Bounds) -> Result<Changes> {
    let own = View { layers: own.to_vec(), ..View::default() };
    let comparison = Comparison {
        own: &own,
        base,
        bounds,
        found: Changes::default(),
        entries: 0,
        bytes_left: bounds.bytes_max,
    };
    comparison.run()
}

struct Comparison<'a> {
    own: &'a View,
    base: &'a View,
    bounds: &'a Bounds,
    found: Changes,
    entries: u64,
    bytes_left: u64,
}

/// A path that is a directory on at least one side.
struct Pair {
    path: SandboxPath,
    /// Open in the own layers; `None` when all of it is gone.
    own: Option<Dir>,
    /// Open in the base; `None` when all of it is new.
    base: Option<Dir>,
    /// Whether the base does not show through here.
    closed: bool,
}

/// A subdirectory still to be entered: its name, and the parts from which
/// each side descends.
struct Todo {
    name: CString,
    own_at: Option<usize>,
    base_at: Option<usize>,
}

struct Frame {
    pair: Pair,
    /// Set while the directories are closed to save descriptors.
    parked: bool,
    /// Which sides to open again after parking.
    sides: (bool, bool),
    todo: Vec<Todo>,
}

/// One side of a comparison at a name.
type Side = Option<(Entry, usize)>;

impl Comparison<'_> {
    fn run(mut self) -> Result<Changes> {
        let root = SandboxPath::root();
        let own = Dir::root(self.own).map_err(|errno| fail(&root, errno))?;
        let base = Dir::root(self.base).map_err(|errno| fail(&root, errno))?;
        let closed = own.closed;
        let mut next = Some(Pair { path: root, own: Some(own), base: Some(base), closed });
        let mut stack: Vec<Frame> = Vec::new();
        let open_max = self.base.open_depth_max().min(self.own.open_depth_max()) / 2;
        loop {
            if let Some(pair) = next.take() {
                stack.push(self.compare_dir(pair)?);
                if let Some(far) = stack.len().checked_sub(open_max.max(2)) {
                    stack[far].park();
                }
            }
            let Some(frame) = stack.last_mut() else { break };
            let Some(todo) = frame.todo.pop() else {
                stack.pop();
                continue;
            };
            next = self.enter(frame, &todo)?;
            if stack.len() >= self.bounds.depth_max && next.take().is_some() {
                self.found.truncated = true;
            }
        }
        self.found.list.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(self.found)
    }

    fn enter(&mut self, frame: &mut Frame, todo: &Todo) -> Result<Option<Pair>> {
        match self.try_enter(frame, todo) {
            Ok(pair) => Ok(Some(pair)),
            Err(errno) if is_fatal(errno) => Err(fail(&frame.pair.path, errno)),
            Err(_) => {
                self.found.unreadable += 1;
                Ok(None)
            }
        }
    }

    fn try_enter(&mut self, frame: &mut Frame, todo: &Todo) -> std::result::Result<Pair, Errno> {
        frame.unpark(self.own, self.base)?;
        let pair = &frame.pair;
        let step = |dir: &Option<Dir>, view: &View, at: Option<usize>| match (dir, at) {
            (Some(dir), Some(at)) => dir.descend(view, &todo.name, at).map(Some),
            _ => Ok(None),
        };
        let own = step(&pair.own, self.own, todo.own_at)?;
        // A base that cannot be read must not hide what is in the own layers.
        let base = match step(&pair.base, self.base, todo.base_at) {
            Err(errno) if !is_fatal(errno) => {
                self.found.unreadable += 1;
                None
            }
            answer => answer?,
        };
        let path = pair.path.join(todo.name.to_bytes()).map_err(|_| Errno::NAMETOOLONG)?;
        let closed = pair.closed || own.as_ref().is_none_or(|own| own.closed);
        Ok(Pair { path, own, base, closed })
    }

    fn compare_dir(&mut self, pair: Pair) -> Result<Frame> {
        let names = self.names(&pair)?;
        let mut todo = Vec::new();
        for name in names {
            self.base.check_wanted()?;
            if self.entries >= self.bounds.entries_max {
                self.found.truncated = true;
                break;
            }
            self.entries += 1;
            match self.compare_name(&pair, name) {
                Ok(Some(next)) => todo.push(next),
                Ok(None) => {}
                Err(errno) if is_fatal(errno) => return Err(fail(&pair.path, errno)),
                Err(_) => self.found.unreadable += 1,
            }
        }
        todo.reverse();
        let sides = (pair.own.is_some(), pair.base.is_some());
        Ok(Frame { pair, parked: false, sides, todo })
    }

    /// The names at which the two sides may differ, sorted.
    fn names(&mut self, pair: &Pair) -> Result<Vec<CString>> {
        let room = self.bounds.entries_max.saturating_sub(self.entries);
        let mut names = self.list(pair, pair.own.as_ref(), room)?;
        if pair.closed && pair.base.is_some() {
            names.extend(self.list(pair, pair.base.as_ref(), room)?);
            names.sort_unstable();
            names.dedup();
        }
        Ok(names)
    }

    fn list(&mut self, pair: &Pair, dir: Option<&Dir>, room: u64) -> Result<Vec<CString>> {
        let listing = match dir {
            Some(dir) => dir.list(room).map_err(|errno| fail(&pair.path, errno))?,
            None => Listing::default(),
        };
        self.found.truncated |= listing.truncated;
        self.found.unreadable += u64::from(listing.unreadable);
        Ok(listing.names.into_iter().map(|(name, _)| name).collect())
    }

    fn compare_name(
        &mut self,
        pair: &Pair,
        name: CString,
    ) -> std::result::Result<Option<Todo>, Errno> {
        let found = |dir: &Option<Dir>, view: &View| match dir {
            Some(dir) => dir.find(view, &name, 0),
            None => Ok(Found::Absent),
        };
        let after: Side = match found(&pair.own, self.own)? {
            Found::Entry(entry, at) => Some((entry, at)),
            // Listed a moment ago, gone now: a race, and no statement.
            Found::Absent if !pair.closed => return Ok(None),
            Found::Absent | Found::Whiteout => None,
        };
        let before: Side = match found(&pair.base, self.base) {
            Ok(Found::Entry(entry, at)) => Some((entry, at)),
            Ok(Found::Absent | Found::Whiteout) => None,
            Err(errno) if is_fatal(errno) => return Err(errno),
            // Better listed as new than not at all.
            Err(_) => {
                self.found.unreadable += 1;
                None
            }
        };
        let Some(path) = join(&pair.path, &name) else {
            self.found.truncated = true;
            return Ok(None);
        };
        self.report(&path, pair, &name, &before, &after);
        let directory = |side: &Side| match side {
            Some((entry, at)) if entry.is_dir() => Some(*at),
            _ => None,
        };
        let (own_at, base_at) = (directory(&after), directory(&before));
        Ok((own_at.is_some() || base_at.is_some()).then_some(Todo { name, own_at, base_at }))
    }

    fn report(
        &mut self,
        path: &SandboxPath,
        pair: &Pair,
        name: &CStr,
        before: &Side,
        after: &Side,
    ) {
        let (kind, shown) = match (before, after) {
            (None, None) => return,
            (None, Some((new, _))) => (ChangeKind::Added, new),
            (Some((old, _)), None) => (ChangeKind::Deleted, old),
            (Some((old, old_at)), Some((new, new_at))) => {
                let same = old.same_but_content(new)
                    && (old.same_inode(new)
                        || (new.kind != EntryKind::File
                            || self.same_file(pair, name, *old_at, *new_at))
                            && self.same_attributes(pair, name, *old_at, *new_at));
                if same {
                    return;
                }
                (ChangeKind::Modified, new)
            }
        };
        self.found.add(path, kind, shown);
    }

    /// The same for what programs noted about them.
    fn same_attributes(&mut self, pair: &Pair, name: &CStr, old_at: usize, new_at: usize) -> bool {
        let (Some(base), Some(own)) = (&pair.base, &pair.own) else { return false };
        match (base.attributes(name, old_at), own.attributes(name, new_at)) {
            (Ok(old), Ok(new)) => old == new,
            // More than can be compared: listed, and refused where it matters.
            (Err(Errno::TOOBIG), _) | (_, Err(Errno::TOOBIG)) => false,
            _ => {
                self.found.unreadable += 1;
                false
            }
        }
    }

    /// Whether two files of equal size have equal content. What cannot be
    /// compared is reported as different: a change must never be hidden.
    fn same_file(&mut self, pair: &Pair, name: &CStr, old_at: usize, new_at: usize) -> bool {
        let (Some(base), Some(own)) = (&pair.base, &pair.own) else { return false };
        let opened =
            base.open_file(name, old_at).and_then(|old| Ok((old, own.open_file(name, new_at)?)));
        let same = match opened {
            Ok((old, new)) => {
                let wanted = || self.base.check_wanted().is_ok();
                same_content_while(&old, &new, &mut self.bytes_left, &wanted).ok()
            }
            Err(_) => None,
        };
        match same {
            Some(Some(same)) => same,
            Some(None) => {
                self.found.truncated = true;
                false
            }
            None => {
                self.found.unreadable += 1;
                false
            }
        }
    }
}

impl Changes {
    pub(super) fn add(&mut self, path: &SandboxPath, kind: ChangeKind, shown: &Entry) {
        let gone = kind == ChangeKind::Deleted;
        if shown.kind == EntryKind::Special && !gone {
            self.special += 1;
        }
        let has_size = matches!(shown.kind, EntryKind::File | EntryKind::Symlink);
        self.list.push(Change {
            path: path.clone(),
            kind,
            entry: shown.kind,
            mode: shown.mode,
            size_bytes: if has_size && !gone { shown.size } else { 0 },
            autorun: !gone
                && match shown.kind {
                    EntryKind::Directory => false,
                    EntryKind::Symlink => is_autorun(path) || is_above_autorun(path),
                    EntryKind::File | EntryKind::Special => is_autorun(path),
                },
        });
    }
}

impl Frame {
    fn park(&mut self) {
        self.parked = true;
        self.pair.own = None;
        self.pair.base = None;
    }

    fn unpark(&mut self, own: &View, base: &View) -> std::result::Result<(), Errno> {
        if !self.parked {
            return Ok(());
        }
        let open = |wanted: bool, view: &View| match wanted {
            true => view.dir(&self.pair.path),
            false => Ok(None),
        };
        let (own, base) = (open(self.sides.0, own)?, open(self.sides.1, base)?);
        self.pair.own = own;
        self.pair.base = base;
        self.parked = false;
        Ok(())
    }
}

fn fail(path: &SandboxPath, errno: Errno) -> LayerError {
    LayerError::io("compare", path, errno)
}
