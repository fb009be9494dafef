//! The seam: every call that changes a disk while writing into reality.
//!
//! One method per kind of call and nothing else in here, so that a test can
//! stop the process, or make the disk fail, before any single one of them.
//! Names are relative to open directories and nothing is followed.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Called before each change with its kind and its number, from 1. An error
/// is what the call then fails with.
pub type Hook = Arc<dyn Fn(&'static str, u64) -> io::Result<()> + Send + Sync>;

/// The disk under a write into reality.
#[derive(Default)]
pub(super) struct Disk {
    hook: Option<Hook>,
    count: AtomicU64,
}

/// A name in an open directory.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub dir: &'a OwnedFd,
    pub name: &'a CStr,
}

/// Owner and group; `None` leaves it as it is.
pub(super) type Owner = (Option<u32>, Option<u32>);

impl Disk {
    pub fn new(hook: Option<Hook>) -> Disk {
        Disk { hook, count: AtomicU64::new(0) }
    }

    fn before(&self, call: &'static str) -> io::Result<()> {
        match &self.hook {
            Some(hook) => hook(call, self.count.fetch_add(1, Ordering::Relaxed) + 1),
            None => Ok(()),
        }
    }

    /// A transaction of the store.
    pub fn commit<T>(
        &self,
        job: impl FnOnce() -> fractal_store::Result<T>,
    ) -> fractal_model::Result<T> {
        self.before("commit").map_err(|error| {
            fractal_model::Error::new(
                super::trouble::code_of(&error),
                format!("cannot write the state directory: {error}"),
            )
        })?;
        Ok(job()?)
    }

    pub fn make_dir(&self, at: At<'_>) -> io::Result<()> {
        self.before("mkdir")?;
        Ok(rustix::fs::mkdirat(at.dir, at.name, Mode::RWXU)?)
    }

    /// A new file that must not exist, with a mode as far as the process's mask
    /// lets it. Its directory is closed to others.
    pub fn create(&self, at: At<'_>, mode: u32) -> io::Result<File> {
        self.before("create")?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode & 0o777) | Mode::RUSR | Mode::WUSR;
        Ok(File::from(rustix::fs::openat(at.dir, at.name, flags, mode)?))
    }

    /// Whatever fills a file that was created.
    pub fn write<T>(&self, fill: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.before("write")?;
        fill()
    }

    pub fn make_link(&self, target: &[u8], at: At<'_>) -> io::Result<()> {
        self.before("symlink")?;
        Ok(rustix::fs::symlinkat(target, at.dir, at.name)?)
    }

    /// A second name for a file of ours.
    pub fn link(&self, from: At<'_>, to: At<'_>) -> io::Result<()> {
        self.before("link")?;
        Ok(rustix::fs::linkat(from.dir, from.name, to.dir, to.name, AtFlags::empty())?)
    }

    pub fn make_special(&self, at: At<'_>, kind: rustix::fs::FileType, dev: u64) -> io::Result<()> {
        self.before("mknod")?;
        Ok(rustix::fs::mknodat(at.dir, at.name, kind, Mode::RUSR, dev)?)
    }

    /// Gives away what is open, or what a name stands for if it is a link.
    pub fn give(&self, at: At<'_>, (uid, gid): Owner) -> io::Result<()> {
        self.before("chown")?;
        // The id -1 means "leave as it is" to the kernel, and panics in rustix.
        let valid = |id: Option<u32>| id.filter(|id| *id != u32::MAX);
        let (uid, gid) = (valid(uid).map(Uid::from_raw), valid(gid).map(Gid::from_raw));
        Ok(rustix::fs::chownat(at.dir, at.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub fn set_mode(&self, file: impl AsFd, mode: u32) -> io::Result<()> {
        self.before("chmod")?;
        let mode = Mode::from_raw_mode(mode);
        match rustix::fs::fchmod(&file, mode) {
            // A handle without the right to read takes no fchmod, and a name
            // may have become a link to something else; this one cannot.
            Err(Errno::BADF) => Ok(rustix::fs::chmodat(CWD, fixed(&file), mode, AtFlags::empty())?),
            answer => Ok(answer?),
        }
    }

    pub fn set_time(&self, at: At<'_>, mtime_ns: i64) -> io::Result<()> {
        self.before("utimens")?;
        const SECOND_NS: i64 = 1_000_000_000;
        let time = Timespec {
            tv_sec: mtime_ns.div_euclid(SECOND_NS) as _,
            tv_nsec: mtime_ns.rem_euclid(SECOND_NS) as _,
        };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(rustix::fs::utimensat(at.dir, at.name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub fn set_attribute(&self, file: impl AsFd, name: &[u8], value: &[u8]) -> io::Result<()> {
        self.before("setxattr")?;
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::fsetxattr(&file, name, value, flags) {
            // As with the mode.
            Err(Errno::BADF) => Ok(rustix::fs::setxattr(fixed(&file), name, value, flags)?),
            answer => Ok(answer?),
        }
    }

    pub fn remove_attribute(&self, file: impl AsFd, name: &[u8]) -> io::Result<()> {
        self.before("removexattr")?;
        match rustix::fs::fremovexattr(&file, name) {
            Err(Errno::BADF) => Ok(rustix::fs::removexattr(fixed(&file), name)?),
            answer => Ok(answer?),
        }
    }

    /// Moves an entry to a name that must be free.
    pub fn rename(&self, from: At<'_>, to: At<'_>) -> io::Result<()> {
        self.before("rename")?;
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(from.dir, from.name, to.dir, to.name, flags) {
            // Some filesystems have no such flag. Between the look and the
            // rename somebody may make the name; there is no way to know.
            Err(Errno::INVAL) => match super::see::stat_at(to.dir, to.name)? {
                Some(_) => Err(Errno::EXIST.into()),
                None => Ok(rustix::fs::renameat(from.dir, from.name, to.dir, to.name)?),
            },
            answer => Ok(answer?),
        }
    }

    /// Puts each of two entries where the other one was, in one moment.
    pub fn exchange(&self, one: At<'_>, other: At<'_>) -> io::Result<()> {
        self.before("exchange")?;
        let flags = RenameFlags::EXCHANGE;
        Ok(rustix::fs::renameat_with(one.dir, one.name, other.dir, other.name, flags)?)
    }

    pub fn unlink(&self, at: At<'_>) -> io::Result<()> {
        self.before("unlink")?;
        Ok(rustix::fs::unlinkat(at.dir, at.name, AtFlags::empty())?)
    }

    pub fn remove_dir(&self, at: At<'_>) -> io::Result<()> {
        self.before("rmdir")?;
        Ok(rustix::fs::unlinkat(at.dir, at.name, AtFlags::REMOVEDIR)?)
    }

    /// Waits until everything written to a filesystem is on its disk: one call
    /// instead of one per file.
    pub fn sync(&self, on: impl AsFd) -> io::Result<()> {
        self.before("sync")?;
        Ok(rustix::fs::syncfs(on)?)
    }
}

/// A name for what is open that leads nowhere else.
fn fixed(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}
