//! Several sealed layers as one with the same meaning.
//!
//! What one layer says about a path and the layers below it say too is said
//! once, as the uppermost says it. Two things reach beyond the layers at hand
//! and are kept for whatever lies below: deletions, and directories through
//! which nothing shows. A deletion inside such a directory has nothing left to
//! delete.
//!
//! Files are linked, not copied: sealed layers are never written, and an
//! overlay copies a file before it changes it. So this costs names, not bytes.

use super::dir::{Dir, Found};
use super::open::{self, Scope};
use super::raw::{At, copy_file, dress, make_special};
use super::view::View;
use super::walk::join;
use super::{Bounds, Layer, LayerError, Marks, Result};
use fractal_model::SandboxPath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::path::Path;

/// Puts what `layers` (top first) say together into an empty directory;
/// returns the entries made. Whole or an error.
pub fn flatten(layers: &[Layer], to: &Path, bounds: &Bounds) -> Result<u64> {
    let view = View { layers: layers.to_vec(), ..View::default() };
    let marks = layers.first().map_or(Marks::Either, |layer| layer.marks);
    let cannot = |errno| LayerError::io("flatten layers into", to.display(), errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let to = rustix::fs::openat(CWD, to, flags, Mode::empty()).map_err(cannot)?;
    let from = Dir::root(&view).map_err(cannot)?;
    let mut work = Flatten { view: &view, family: family(marks), bounds, entries: 0 };
    work.tree(from, to)?;
    Ok(work.entries)
}

/// Start of the names of the overlay's own attributes.
fn family(marks: Marks) -> &'static str {
    match marks {
        Marks::Trusted | Marks::Either => "trusted.overlay.",
        Marks::User => "user.overlay.",
    }
}

struct Flatten<'a> {
    view: &'a View,
    family: &'static str,
    bounds: &'a Bounds,
    entries: u64,
}

struct Frame {
    path: SandboxPath,
    /// `None` while it is closed to save descriptors.
    from: Option<Dir>,
    to: OwnedFd,
    /// Whether it has to say that nothing shows through it.
    opaque: bool,
    todo: Vec<(CString, usize)>,
}

impl Flatten<'_> {
    fn tree(&mut self, from: Dir, to: OwnedFd) -> Result<()> {
        let opaque = from.closed;
        let mut stack = vec![self.fill(from, to, opaque)?];
        loop {
            if let Some(far) = stack.len().checked_sub(self.view.open_depth_max() + 1) {
                stack[far].from = None;
            }
            let depth = stack.len();
            let Some(frame) = stack.last_mut() else { return Ok(()) };
            let path = frame.path.clone();
            self.reopen(frame).map_err(|errno| fail(&path, errno))?;
            let Some(from) = &frame.from else { return Err(fail(&path, Errno::STALE)) };
            let Some((name, at)) = frame.todo.pop() else {
                self.finish(frame, from).map_err(|errno| fail(&path, errno))?;
                stack.pop();
                continue;
            };
            if depth >= self.bounds.depth_max {
                return Err(LayerError::Bound { path: path.to_string() });
            }
            let (inner, to) =
                enter(self.view, from, &frame.to, &name, at).map_err(|errno| fail(&path, errno))?;
            // Below a directory that says it already nothing shows anyway.
            let opaque = inner.closed && !from.closed;
            let next = self.fill(inner, to, opaque)?;
            stack.push(next);
        }
    }

    fn reopen(&self, frame: &mut Frame) -> std::result::Result<(), Errno> {
        if frame.from.is_none() {
            frame.from = self.view.dir(&frame.path)?;
        }
        Ok(())
    }

    /// Makes everything of a directory but its subdirectories.
    fn fill(&mut self, from: Dir, to: OwnedFd, opaque: bool) -> Result<Frame> {
        let path = from.path.clone();
        let here = |errno| fail(&path, errno);
        let room = self.bounds.entries_max.saturating_sub(self.entries);
        let listing = from.list(room).map_err(here)?;
        if listing.truncated {
            return Err(LayerError::Bound { path: path.to_string() });
        }
        if listing.unreadable {
            return Err(here(Errno::ACCESS));
        }
        let mut todo = Vec::new();
        for (name, at) in listing.names {
            self.entries += 1;
            if join(&path, &name).is_none() {
                return Err(LayerError::Bound { path: path.to_string() });
            }
            match from.find(self.view, &name, at).map_err(here)? {
                Found::Absent => {}
                Found::Whiteout if from.closed => {}
                Found::Whiteout => {
                    let kind = FileType::CharacterDevice;
                    rustix::fs::mknodat(&to, &name, kind, Mode::empty(), 0).map_err(here)?;
                }
                Found::Entry(entry, at) if entry.is_dir() => todo.push((name, at)),
                Found::Entry(_, at) => {
                    let source = from.part(at).ok_or_else(|| here(Errno::STALE))?;
                    place(At { dir: source, name: &name }, At::new(&to, &name)).map_err(here)?;
                }
            }
        }
        Ok(Frame { path, from: Some(from), to, opaque, todo })
    }

    /// Gives a directory what the uppermost layer that has it says of it; last,
    /// so that one without rights can be filled and keeps its time.
    fn finish(&self, frame: &Frame, from: &Dir) -> std::result::Result<(), Errno> {
        let top = from.part(0).ok_or(Errno::STALE)?;
        let stat = rustix::fs::fstat(top)?;
        if frame.opaque {
            let name = format!("{}opaque", self.family);
            rustix::fs::fsetxattr(&frame.to, name.as_str(), b"y", XattrFlags::empty())?;
        }
        let others = |name: &[u8]| !name.starts_with(self.family.as_bytes());
        dress(At { dir: top, name: c"." }, At::new(&frame.to, c"."), &stat, others)
    }
}

/// Opens a subdirectory on both sides.
fn enter(
    view: &View,
    from: &Dir,
    to: &OwnedFd,
    name: &CStr,
    at: usize,
) -> std::result::Result<(Dir, OwnedFd), Errno> {
    let inner = from.descend(view, name, at)?;
    rustix::fs::mkdirat(to, name, Mode::RWXU)?;
    Ok((inner, open::directory(to, name, Scope::Layer)?))
}

/// Gives a file a second name; copies what cannot have one more, as after
/// 65,000 on ext4.
fn place(from: At<'_>, to: At<'_>) -> std::result::Result<(), Errno> {
    match rustix::fs::linkat(from.dir, from.name, to.dir.as_fd(), to.name, AtFlags::empty()) {
        Err(Errno::MLINK | Errno::PERM | Errno::XDEV) => {}
        answer => return answer,
    }
    let stat = open::status(from.dir, from.name)?;
    if open::file_type(&stat) == FileType::RegularFile {
        copy_file(from, to, &mut || true)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    } else {
        make_special(from, to, &stat)?;
    }
    dress(from, to, &stat, |_| true)
}

fn fail(path: &SandboxPath, errno: Errno) -> LayerError {
    LayerError::io("flatten", path, errno)
}
