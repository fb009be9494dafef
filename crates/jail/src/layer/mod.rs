//! Reading layers: what a sandbox sees, and what it changed.
//!
//! A layer on disk is the upper directory of an overlay: a tree mirrored from
//! the sandbox's `/`, in which a character device 0:0 marks a deletion and an
//! xattr marks a directory through which nothing below shows. A [`View`] lays
//! several of them over the host without mounting anything.
//!
//! The content was written by hostile programs that may still be running.
//! Nothing in here follows a symlink, leaves a layer, opens anything but
//! regular files and directories, waits, or trusts a size; every walk is
//! iterative and bounded and says when it was cut short. This module knows
//! nothing of sandboxes, mounts or processes.

mod attributes;
mod autorun;
mod beside;
mod changes;
mod compare;
mod copy;
mod dir;
mod duplicate;
mod entry;
mod error;
mod flatten;
mod open;
mod raw;
mod usage;
mod view;
mod walk;
mod whole;
mod write;

pub use attributes::Attributes;
pub use autorun::is_autorun;
pub use beside::changes_between;
pub use changes::{Changes, changes};
pub use compare::same_content;
pub use copy::{Copied, CopyOptions, copy_out};
pub use duplicate::duplicate;
pub use entry::{Entry, Source, nanoseconds};
pub use error::{LayerError, Result};
pub use flatten::flatten;
pub use usage::{DiskUsage, disk_usage};
pub use view::{DirEntry, Reader, View};
pub use walk::{Step, Walked};
pub use whole::{adopt_whole, is_whole, make_whole};
pub use write::Writer;

use open::Scope;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// The longest path that is reported; deeper ones count as cut short.
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// How far a walk goes before it says that it was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Entries looked at.
    pub entries_max: u64,
    /// Directories nested in each other.
    pub depth_max: usize,
    /// Bytes of content read (to compare or to copy).
    pub bytes_max: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { entries_max: 2_000_000, depth_max: 256, bytes_max: 64 << 30 }
    }
}

/// Which xattrs mark a directory as opaque. A program inside an overlay that
/// uses one family can write the other one freely, so a caller that knows how
/// the layer was mounted should say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Marks {
    /// Either family counts.
    #[default]
    Either,
    /// `trusted.overlay.*`, of overlays mounted by root.
    Trusted,
    /// `user.overlay.*`, of overlays mounted with `userxattr`.
    User,
}

/// One layer's tree (or the host's), open for reading. Cloning shares the
/// descriptor.
#[derive(Clone, Debug)]
pub struct Layer {
    root: Arc<OwnedFd>,
    marks: Marks,
    id_shift: u32,
}

impl Layer {
    /// Opens the tree of a layer. The path is ours and is trusted; what lies
    /// below it is not.
    pub fn open(path: &Path) -> Result<Layer> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map(Layer::from_fd)
            .map_err(|errno| LayerError::io("open the layer", path.display(), errno))
    }

    /// A layer whose tree is open already.
    pub fn from_fd(root: OwnedFd) -> Layer {
        Layer { root: Arc::new(root), marks: Marks::Either, id_shift: 0 }
    }

    /// Says which xattrs the overlay that wrote it uses.
    #[must_use]
    pub fn marked_by(mut self, marks: Marks) -> Layer {
        self.marks = marks;
        self
    }

    /// Says that id 0 inside is stored as `shift` on disk, as in layers that
    /// were written through an id map.
    #[must_use]
    pub fn shifted_by(mut self, shift: u32) -> Layer {
        self.id_shift = shift;
        self
    }

    fn inside_id(&self, id: u32) -> u32 {
        id.checked_sub(self.id_shift).unwrap_or(id)
    }

    /// A descriptor of the root with a reading position of its own.
    fn open_root(&self, scope: Scope) -> std::result::Result<OwnedFd, Errno> {
        open::directory(&*self.root, c".", scope)
    }

    fn is_opaque(&self, directory: impl AsFd) -> bool {
        let families: &[&str] = match self.marks {
            Marks::Either => &["trusted.overlay.opaque", "user.overlay.opaque"],
            Marks::Trusted => &["trusted.overlay.opaque"],
            Marks::User => &["user.overlay.opaque"],
        };
        families.iter().any(|name| {
            let mut value = [0u8; 2];
            let length = rustix::fs::fgetxattr(&directory, *name, &mut value[..]);
            matches!(length, Ok(1)) && value[0] == b'y'
        })
    }
}
