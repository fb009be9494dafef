//! A second layer like the first, for a snapshot of a sandbox in which
//! something runs: its top goes on being written and cannot be sealed.
//!
//! The caller has frozen whoever writes the layer. Blocks are shared where the
//! filesystem can, links within the layer stay links, deletions and opaque
//! directories stay what they are. It is a whole copy or an error, never part
//! of one: a snapshot that lacks something is worse than none.

use super::open::{self, Scope};
use super::raw::{At, copy_file, dress, make_special};
use super::{Bounds, Layer, LayerError, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::path::Path;

/// Entries between two looks at whether to go on.
const LOOK_EVERY: u64 = 64;

/// Copies a layer's tree into an empty directory; returns the entries copied.
/// `go_on` is asked every now and then, and ends it by returning false.
pub fn duplicate(
    from: &Layer,
    to: &Path,
    bounds: &Bounds,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<u64> {
    let fail = |errno| LayerError::io("copy the layer to", to.display(), errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let target = rustix::fs::openat(CWD, to, flags, Mode::empty()).map_err(fail)?;
    let source = from.open_root(Scope::Layer).map_err(fail)?;
    let root = rustix::io::dup(&target).map_err(fail)?;
    let mut copy = Duplicate { root, links: HashMap::new(), bounds, entries: 0, go_on };
    copy.tree(source, target)?;
    Ok(copy.entries)
}

struct Duplicate<'a> {
    /// The new layer's tree.
    root: OwnedFd,
    /// Files with several names: inode, and where its copy stands.
    links: HashMap<u64, Vec<u8>>,
    bounds: &'a Bounds,
    entries: u64,
    go_on: &'a mut dyn FnMut() -> bool,
}

struct Frame {
    from: OwnedFd,
    to: OwnedFd,
    /// From the tree's root, without a slash in front.
    path: Vec<u8>,
    todo: Vec<CString>,
}

impl Duplicate<'_> {
    fn tree(&mut self, from: OwnedFd, to: OwnedFd) -> Result<()> {
        let mut stack = vec![self.fill(from, to, Vec::new())?];
        loop {
            let depth = stack.len();
            let Some(frame) = stack.last_mut() else { return Ok(()) };
            let Some(name) = frame.todo.pop() else {
                // Last, so that a directory without rights can be filled and
                // keeps its time.
                let (from, to) = (At::new(&frame.from, c"."), At::new(&frame.to, c"."));
                let done = rustix::fs::fstat(&frame.from)
                    .and_then(|stat| dress(from, to, &stat, |_| true));
                done.map_err(|errno| fail(&frame.path, errno))?;
                stack.pop();
                continue;
            };
            let path = join(&frame.path, &name);
            if depth >= self.bounds.depth_max {
                return Err(LayerError::Bound { path: text(&path) });
            }
            let opened = || {
                rustix::fs::mkdirat(&frame.to, &name, Mode::RWXU)?;
                let from = open::directory(&frame.from, &name, Scope::Layer)?;
                Ok((from, open::directory(&frame.to, &name, Scope::Layer)?))
            };
            let (from, to) = opened().map_err(|errno| fail(&path, errno))?;
            let next = self.fill(from, to, path)?;
            stack.push(next);
        }
    }

    /// Copies everything of a directory but its subdirectories.
    fn fill(&mut self, from: OwnedFd, to: OwnedFd, path: Vec<u8>) -> Result<Frame> {
        let mut frame = Frame { from, to, path, todo: Vec::new() };
        let entries = Dir::read_from(&frame.from).map_err(|errno| fail(&frame.path, errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| fail(&frame.path, errno))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.entries += 1;
            if self.entries > self.bounds.entries_max {
                return Err(LayerError::Bound { path: text(&frame.path) });
            }
            if self.entries.is_multiple_of(LOOK_EVERY) && !(self.go_on)() {
                return Err(LayerError::Stopped);
            }
            let path = join(&frame.path, name);
            let stat = open::status(&frame.from, name).map_err(|errno| fail(&path, errno))?;
            match open::file_type(&stat) {
                FileType::Directory => frame.todo.push(name.to_owned()),
                _ => self.leaf(&frame, name, path, &stat)?,
            }
        }
        Ok(frame)
    }

    fn leaf(&mut self, frame: &Frame, name: &CStr, path: Vec<u8>, stat: &Stat) -> Result<()> {
        let (from, to) = (At::new(&frame.from, name), At::new(&frame.to, name));
        if stat.st_nlink > 1 && self.link(frame, name, stat) {
            return Ok(());
        }
        if open::file_type(stat) == FileType::RegularFile {
            let whole = copy_file(from, to, self.go_on);
            if !whole.map_err(|source| failed(&path, source))? {
                return Err(LayerError::Stopped);
            }
        } else {
            make_special(from, to, stat).map_err(|errno| fail(&path, errno))?;
        }
        dress(from, to, stat, |_| true).map_err(|errno| fail(&path, errno))?;
        if stat.st_nlink > 1 {
            self.links.insert(stat.st_ino, path);
        }
        Ok(())
    }

    /// Gives the copy of another name of the same file this name too. Where
    /// that is not possible it becomes a file of its own.
    fn link(&self, frame: &Frame, name: &CStr, stat: &Stat) -> bool {
        let Some(first) = self.links.get(&stat.st_ino) else { return false };
        let linked =
            rustix::fs::linkat(&self.root, first.as_slice(), &frame.to, name, AtFlags::empty());
        linked.is_ok()
    }
}

fn join(path: &[u8], name: &CStr) -> Vec<u8> {
    match path {
        b"" => name.to_bytes().to_vec(),
        path => [path, b"/", name.to_bytes()].concat(),
    }
}

fn text(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

fn fail(path: &[u8], errno: Errno) -> LayerError {
    LayerError::io("copy", text(path), errno)
}

fn failed(path: &[u8], source: std::io::Error) -> LayerError {
    LayerError::Io { verb: "copy", path: text(path), source }
}
