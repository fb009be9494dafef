//! A directory of a view made whole in one layer, for where nothing can be
//! mounted.
//!
//! The copy is opaque: it shows nothing of what lies below, so the layer means
//! the same to a reader, to an overlay and to a program that works in the copy
//! itself. It is built aside and appears by one rename: a copy that was
//! interrupted is never taken for one.

use super::copy::{Copied, CopyOptions, copy_out};
use super::open::{self, Scope};
use super::{Bounds, Layer, LayerError, Marks, Result, Step, View, Writer};
use fractal_model::{EntryKind, SandboxPath};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The mark of layers that were written without privileges.
const OPAQUE: &str = "user.overlay.opaque";

/// The same mark of layers that root's overlays read.
const TRUSTED: &str = "trusted.overlay.opaque";

/// Beside the tree of a layer that was made whole, where no program can write:
/// tells our mark from one that a program of root's set on its own directory.
const MADE: &str = "whole";

/// Whether the layer in `layer` holds a copy of ours of all of the directory
/// at `path`.
pub fn is_whole(layer: &Path, path: &SandboxPath) -> Result<bool> {
    let made = layer.join(MADE).exists();
    let Some(relative) = relative(path).filter(|_| made) else { return Ok(false) };
    let layer = Layer::open(&layer.join("tree"))?.marked_by(Marks::User);
    match open::directory(&*layer.root, &relative, Scope::Layer) {
        Ok(directory) => Ok(layer.is_opaque(&directory)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
        Err(errno) => Err(LayerError::io("look at", path, errno)),
    }
}

/// Copies the directory at `path`, as `view` shows it, into the layer in
/// `layer`, in place of what the layer says about it. Builds it in `staging`,
/// a new directory on the same filesystem, and leaves there what it replaced.
/// Owners are kept if asked, which takes root.
pub fn make_whole(
    view: &View,
    path: &SandboxPath,
    layer: &Path,
    staging: &Path,
    bounds: &Bounds,
    keep_owner: bool,
) -> Result<Copied> {
    measure(view, path, bounds)?;
    let name = path.components().last().unwrap_or_default().to_vec();
    let (Some(_), Some(parent)) = (relative(path), path.parent()) else {
        return Err(LayerError::Kind { path: path.clone(), wanted: "directory below `/`" });
    };
    std::fs::create_dir(staging).map_err(|source| LayerError::Io {
        verb: "make",
        path: staging.display().to_string(),
        source,
    })?;
    let aside = open_trusted(staging)?;
    let options = CopyOptions { keep_owner, exact: true, bounds: *bounds };
    let copied = copy_out(view, path, aside.as_fd(), OsStr::from_bytes(&name), &options)?;
    if copied.truncated {
        return Err(too_large(path, copied.bytes, bounds));
    }
    let tree = layer.join("tree");
    Writer::open(&tree, view, false)?.directory(&parent, 0o755, (0, 0))?;
    std::fs::write(layer.join(MADE), "").map_err(|source| LayerError::Io {
        verb: "mark",
        path: layer.display().to_string(),
        source,
    })?;
    let name = super::view::c_name(&name);
    put_in_place(&aside, &name, &tree, &parent)
        .map_err(|errno| LayerError::io("keep the copy of", path, errno))?;
    Ok(copied)
}

/// Makes a copy mean to root's overlays what it means to everybody: root
/// without privileges could not leave their mark, root with them can.
pub fn adopt_whole(layer: &Path, path: &SandboxPath) -> Result<()> {
    if !is_whole(layer, path)? {
        return Ok(());
    }
    let fail = |errno| LayerError::io("mark", path, errno);
    let tree = Layer::open(&layer.join("tree"))?;
    let Some(relative) = relative(path) else { return Ok(()) };
    let copy = open::directory(&*tree.root, &relative, Scope::Layer).map_err(fail)?;
    rustix::fs::fsetxattr(&copy, TRUSTED, b"y", XattrFlags::empty()).map_err(fail)
}

/// Moves the finished copy to its place in the tree.
fn put_in_place(
    aside: &OwnedFd,
    name: &CStr,
    tree: &Path,
    parent: &SandboxPath,
) -> std::result::Result<(), Errno> {
    let copy = open::directory(aside, name, Scope::Layer)?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&copy)?.st_mode & 0o7777);
    // Moving a directory writes its `..`, for which we need the right.
    rustix::fs::fchmod(&copy, mode | Mode::RWXU)?;
    rustix::fs::fsetxattr(&copy, OPAQUE, b"y", XattrFlags::empty())?;
    let tree = rustix::fs::openat(CWD, tree, DIRECTORY, Mode::empty())?;
    let parent = match relative(parent) {
        Some(relative) => open::directory(&tree, &relative, Scope::Layer)?,
        None => tree,
    };
    let flags = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => RenameFlags::EXCHANGE,
        Err(_) => RenameFlags::NOREPLACE,
    };
    rustix::fs::renameat_with(aside, name, &parent, name, flags)?;
    rustix::fs::fchmod(&copy, mode)
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open_trusted(path: &Path) -> Result<OwnedFd> {
    rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())
        .map_err(|errno| LayerError::io("open", path.display(), errno))
}

/// Refuses before the first byte is written.
fn measure(view: &View, path: &SandboxPath, bounds: &Bounds) -> Result<()> {
    let mut bytes = 0u64;
    let walked = view.walk(path, bounds, |_, entry| {
        if entry.kind == EntryKind::File {
            bytes = bytes.saturating_add(entry.size);
        }
        Step::Continue
    })?;
    if walked.truncated || bytes > bounds.bytes_max {
        return Err(too_large(path, bytes, bounds));
    }
    Ok(())
}

fn too_large(path: &SandboxPath, bytes: u64, bounds: &Bounds) -> LayerError {
    LayerError::TooLarge { path: path.clone(), bytes, bytes_max: bounds.bytes_max }
}

/// For `openat2` from the tree; none for the root itself.
fn relative(path: &SandboxPath) -> Option<CString> {
    let relative = path.relative();
    if relative.is_empty() { None } else { CString::new(relative).ok() }
}
