//! A directory of the host: asked when needed, never written unless it was
//! opened for that.
//!
//! It is opened once, and every path is resolved beneath that handle without
//! following a link. Links are shown as links and lead to wherever they lead
//! in the view. Only files, directories and links are listed.
//!
//! Mounted frozen, it is frozen by fingerprint: nothing is copied, and what
//! changed on the host since the mount is refused rather than shown. What was
//! read is not kept in memory; the host keeps it.

mod back;
mod beneath;

pub use back::WriteBack;
pub(crate) use back::{times, write_at};
pub(crate) use beneath::{Beneath, fault, kind, modified_ns};

use super::{Ask, Edit, Item, ItemKind, LISTING_ENTRIES_MAX, Source};
use crate::content::READ_BYTES_MAX;
use crate::error::{Fault, Kind};
use beneath::{changed_ns, stamp};
use bytes::Bytes;
use fractal_model::SandboxPath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Stat};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A directory of the host as a source.
pub struct Host {
    root: Beneath,
    shown: PathBuf,
    write_back: bool,
}

impl Host {
    /// Opens a directory for reading.
    pub fn open(dir: impl AsRef<Path>) -> Result<Host, Fault> {
        let dir = dir.as_ref();
        Ok(Host { root: Beneath::open(dir)?, shown: dir.to_owned(), write_back: false })
    }

    /// Opens a directory that [`Vfs::write_back`](crate::Vfs::write_back) may
    /// write, if the policy names this very directory.
    pub fn open_for_writing(dir: impl AsRef<Path>, policy: &WriteBack) -> Result<Host, Fault> {
        let host = Host { write_back: true, ..Host::open(dir)? };
        policy.check(&host.root)?;
        Ok(host)
    }

    fn check_fresh(stat: &Stat, ask: &Ask) -> Result<(), Fault> {
        let changed =
            |what: &str| Fault::because(Kind::Changed, what.to_owned() + " since it was mounted");
        if ask.frozen_ns.is_some_and(|since| changed_ns(stat) > since) {
            return Err(changed("it was changed on the host"));
        }
        match ask.stamp {
            Some(before) if before != stamp(stat) => {
                Err(changed("something else stands there on the host"))
            }
            _ => Ok(()),
        }
    }
}

/// A file that is gone is a change like any other, to a frozen mount.
fn missing(fault: Fault, ask: &Ask) -> Fault {
    match fault.kind {
        Kind::NotFound | Kind::NotADirectory if ask.frozen_ns.is_some() => {
            Fault::because(Kind::Changed, "it is gone from the host since it was mounted")
        }
        _ => fault,
    }
}

impl Source for Host {
    fn kind(&self) -> &str {
        "host"
    }

    fn describe(&self) -> String {
        self.shown.display().to_string()
    }

    fn list(&self, at: &SandboxPath, ask: &Ask) -> Result<Vec<Item>, Fault> {
        let dir = self.root.dir(at).map_err(|fault| missing(fault, ask))?;
        let stat = rustix::fs::fstat(&dir).map_err(|errno| fault(errno, "the directory"))?;
        Host::check_fresh(&stat, ask)?;
        items(&dir)
    }

    fn read(&self, at: &SandboxPath, ask: &Ask) -> Result<Bytes, Fault> {
        let (file, stat) = self.root.file(at).map_err(|fault| missing(fault, ask))?;
        Host::check_fresh(&stat, ask)?;
        if stat.st_size as u64 > READ_BYTES_MAX {
            let reason = format!("{} bytes; read it in ranges", stat.st_size);
            return Err(Fault::because(Kind::TooLarge, reason));
        }
        // One byte more than there should be tells that there is more.
        let size = stat.st_size as u64;
        let end = if ask.frozen_ns.is_some() { size + 1 } else { READ_BYTES_MAX };
        let bytes = read_range(&file, 0..end, size)?;
        self.check_after(&file, &stat, ask)?;
        Ok(bytes)
    }

    fn read_range(
        &self,
        at: &SandboxPath,
        range: Range<u64>,
        ask: &Ask,
    ) -> Result<Option<Bytes>, Fault> {
        let (file, stat) = self.root.file(at).map_err(|fault| missing(fault, ask))?;
        Host::check_fresh(&stat, ask)?;
        let end = range.end.min(range.start.saturating_add(READ_BYTES_MAX));
        let bytes = read_range(&file, range.start..end, stat.st_size as u64)?;
        self.check_after(&file, &stat, ask)?;
        Ok(Some(bytes))
    }

    fn rereads(&self) -> bool {
        true
    }

    fn write(&self, at: &SandboxPath, edit: &Edit, _: &Ask) -> Result<(), Fault> {
        match self.write_back {
            true => back::write(&self.root, at, edit),
            false => Err(Fault::because(Kind::ReadOnly, "the directory was opened for reading")),
        }
    }
}

impl Host {
    /// Whether the file stayed the same while it was read.
    fn check_after(&self, file: &OwnedFd, before: &Stat, ask: &Ask) -> Result<(), Fault> {
        if ask.frozen_ns.is_none() {
            return Ok(());
        }
        let after = rustix::fs::fstat(file).map_err(|errno| fault(errno, "the file"))?;
        match stamp(&after) == stamp(before) {
            true => Ok(()),
            false => Err(Fault::because(Kind::Changed, "the host wrote it while it was read")),
        }
    }
}

/// What stands in a directory of the host; what is neither file, directory
/// nor link is left out.
fn items(dir: &OwnedFd) -> Result<Vec<Item>, Fault> {
    let listing = Dir::read_from(dir).map_err(|errno| fault(errno, "the directory"))?;
    let mut items = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|errno| fault(errno, "the directory"))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if items.len() >= LISTING_ENTRIES_MAX {
            let reason = format!("it has more than {LISTING_ENTRIES_MAX} names");
            return Err(Fault::because(Kind::Source, reason));
        }
        // What goes away meanwhile was not there.
        let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = match kind(&stat) {
            FileType::Directory => ItemKind::Dir,
            FileType::RegularFile => ItemKind::File(Some(stat.st_size as u64)),
            FileType::Symlink => match rustix::fs::readlinkat(dir, name, Vec::new()) {
                Ok(target) => ItemKind::Link(target.into_bytes()),
                Err(_) => continue,
            },
            _ => continue,
        };
        items.push(Item {
            name: name.to_vec(),
            kind,
            mode: Some(stat.st_mode & 0o7777),
            owner: Some((stat.st_uid, stat.st_gid)),
            modified_ns: Some(modified_ns(&stat)),
            stamp: Some(stamp(&stat)),
        });
    }
    Ok(items)
}

/// A part of a file; the end of the range may lie behind the file's end.
pub fn read_range(file: &impl AsFd, range: Range<u64>, size: u64) -> Result<Bytes, Fault> {
    let expect = range.end.min(size).saturating_sub(range.start);
    let mut out = Vec::new();
    // One more, to find out that there is nothing more.
    let room = (expect + 1).min(range.end.saturating_sub(range.start));
    let full = |_| Fault::because(Kind::Full, "there is no memory for it");
    out.try_reserve_exact(room as usize).map_err(full)?;
    while (out.len() as u64) < range.end.saturating_sub(range.start) {
        let start = out.len();
        let want = (room as usize).saturating_sub(start).max(64 * 1024);
        let want = want.min((range.end - range.start) as usize - start);
        out.resize(start + want, 0);
        let got = loop {
            match rustix::io::pread(file, &mut out[start..], range.start + start as u64) {
                Err(rustix::io::Errno::INTR) => {}
                done => break done.map_err(|errno| fault(errno, "reading it"))?,
            }
        };
        out.truncate(start + got);
        if got == 0 {
            break;
        }
    }
    Ok(out.into())
}
