//! The tree as bashkit wants to see files.
//!
//! Every operation is one operation of the view. bashkit's own layer above
//! follows a symlink at the end of a path and asks `stat` for the link
//! itself; symlinks on the way, and where a file is opened, are the tree's
//! business.

use crate::name;
use async_trait::async_trait;
use bashkit::{
    BuiltinRegistry, DirEntry, FileSystem, FileSystemExt, FileType, FsLimits, FsUsage, Metadata,
    Result,
};
use fractal_fs::{FsError, Kind, NewMeta, Stat, Vfs};
use fractal_model::EntryKind;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{devices, stubs};

pub(super) struct Files {
    pub(super) view: Vfs,
    /// Commands that are not bashkit's.
    pub(super) commands: BuiltinRegistry,
}

impl Files {
    /// The stand-in for a command that a path names.
    fn stub(&self, place: &[u8]) -> Option<String> {
        stubs::content(place, |name| self.commands.lookup(name).is_some())
    }

    /// What stands at a path that the tree has nothing at, but the shell has.
    fn beside_the_tree(&self, place: &[u8]) -> Option<Metadata> {
        let (size, mode) = match self.stub(place) {
            Some(stub) => (stub.len() as u64, 0o755),
            None if devices::is_one(place) => (0, 0o666),
            None => return None,
        };
        let file_type = FileType::File;
        Some(Metadata { file_type, size, mode, modified: UNIX_EPOCH, created: UNIX_EPOCH })
    }
}

/// A path of bashkit as the tree's bytes.
fn place(path: &Path) -> Vec<u8> {
    match path.to_str() {
        Some(text) => name::bytes(text).into_owned(),
        None => path.as_os_str().as_bytes().to_vec(),
    }
}

/// An error with the words that bash and coreutils print.
fn told(error: FsError) -> bashkit::Error {
    let (kind, text) = match error.kind {
        Kind::NotFound | Kind::NoAttribute => (ErrorKind::NotFound, "No such file or directory"),
        Kind::Exists => (ErrorKind::AlreadyExists, "File exists"),
        Kind::NotADirectory => (ErrorKind::NotADirectory, "Not a directory"),
        Kind::IsADirectory => (ErrorKind::IsADirectory, "Is a directory"),
        Kind::NotEmpty => (ErrorKind::DirectoryNotEmpty, "Directory not empty"),
        Kind::Loop => (ErrorKind::InvalidInput, "Too many levels of symbolic links"),
        Kind::NameTooLong => (ErrorKind::InvalidInput, "File name too long"),
        Kind::Invalid => (ErrorKind::InvalidInput, "Invalid argument"),
        // Of this kind, so that nobody tries again through a symlink.
        Kind::ReadOnly => (ErrorKind::PermissionDenied, "Read-only file system"),
        Kind::Denied => (ErrorKind::PermissionDenied, "Permission denied"),
        Kind::Full => (ErrorKind::StorageFull, "No space left on device"),
        Kind::TooLarge => (ErrorKind::FileTooLarge, "File too large"),
        Kind::Busy => (ErrorKind::ResourceBusy, "Device or resource busy"),
        Kind::Changed => (ErrorKind::StaleNetworkFileHandle, "Stale file handle"),
        Kind::Timeout => (ErrorKind::TimedOut, "Connection timed out"),
        Kind::Unsupported => (ErrorKind::Unsupported, "Operation not supported"),
        Kind::Source => {
            let reason = error.reason.map_or(String::new(), |reason| format!(": {reason}"));
            return Error::other(format!("Input/output error{reason}")).into();
        }
    };
    Error::new(kind, text).into()
}

fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let time = match ns < 0 {
        true => UNIX_EPOCH.checked_sub(distance),
        false => UNIX_EPOCH.checked_add(distance),
    };
    time.unwrap_or(UNIX_EPOCH)
}

fn metadata(stat: &Stat) -> Metadata {
    let file_type = match stat.kind {
        EntryKind::Directory => FileType::Directory,
        EntryKind::Symlink => FileType::Symlink,
        _ => FileType::File,
    };
    // A directory is never empty to `test -s`.
    let size = if file_type.is_dir() { 4096 } else { stat.size };
    let modified = time(stat.meta.modified_ns);
    Metadata { file_type, size, mode: stat.meta.mode, modified, created: modified }
}

#[async_trait]
impl FileSystemExt for Files {
    fn usage(&self) -> FsUsage {
        let held = self.view.usage();
        FsUsage { total_bytes: held.bytes, file_count: held.entries, dir_count: 0 }
    }

    fn limits(&self) -> FsLimits {
        let limits = self.view.limits();
        FsLimits {
            max_total_bytes: limits.bytes_max,
            max_file_count: limits.entries_max,
            ..FsLimits::unlimited()
        }
    }

    fn backend_kind(&self) -> &'static str {
        "fractal"
    }
}

#[async_trait]
impl FileSystem for Files {
    async fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        let place = place(path);
        match self.view.read(&place) {
            Ok(content) => Ok(content.into()),
            Err(error) if error.kind == Kind::NotFound => match self.stub(&place) {
                Some(stub) => Ok(stub.into_bytes()),
                None if devices::is_one(&place) => devices::read(path).await,
                None => Err(told(error)),
            },
            Err(error) => Err(told(error)),
        }
    }

    async fn write_file(&self, path: &Path, content: &[u8]) -> Result<()> {
        let place = place(path);
        if devices::is_one(&place) && !self.view.exists(&place) {
            return devices::write(&place);
        }
        self.view.write(&place, content.to_vec()).map(drop).map_err(told)
    }

    async fn append_file(&self, path: &Path, content: &[u8]) -> Result<()> {
        let place = place(path);
        if devices::is_one(&place) && !self.view.exists(&place) {
            return devices::write(&place);
        }
        self.view.append(&place, content).map_err(told)
    }

    async fn mkdir(&self, path: &Path, recursive: bool) -> Result<()> {
        let place = place(path);
        let made = match recursive {
            true => self.view.make_dir_all(&place),
            false => self.view.make_dir(&place, 0o755),
        };
        made.map_err(told)
    }

    async fn remove(&self, path: &Path, recursive: bool) -> Result<()> {
        let place = place(path);
        let gone = match recursive {
            true => self.view.remove_all(&place),
            false => match self.view.remove_file(&place) {
                Err(error) if error.kind == Kind::IsADirectory => self.view.remove_dir(&place),
                done => done,
            },
        };
        gone.map_err(told)
    }

    /// Of the link itself, as bashkit's layers below its outermost have it.
    async fn stat(&self, path: &Path) -> Result<Metadata> {
        let place = place(path);
        match self.view.lstat(&place) {
            Ok(stat) => Ok(metadata(&stat)),
            Err(error) if error.kind == Kind::NotFound => {
                self.beside_the_tree(&place).ok_or_else(|| told(error))
            }
            Err(error) => Err(told(error)),
        }
    }

    async fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let listed = self.view.glance(place(path)).map_err(told)?;
        let entry = |(name, stat): &(fractal_fs::Name, Stat)| DirEntry {
            name: name::text(name.bytes()).into_owned(),
            metadata: metadata(stat),
        };
        Ok(listed.iter().map(entry).collect())
    }

    async fn exists(&self, path: &Path) -> Result<bool> {
        let place = place(path);
        Ok(self.view.exists(&place) || self.beside_the_tree(&place).is_some())
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.view.rename(place(from), place(to)).map_err(told)
    }

    async fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        let from_place = place(from);
        if devices::is_one(&from_place) && !self.view.exists(&from_place) {
            let content = devices::read(from).await?;
            return self.write_file(to, &content).await;
        }
        self.view.copy_file(from_place, place(to)).map_err(told)
    }

    async fn symlink(&self, target: &Path, link: &Path) -> Result<()> {
        self.view.symlink(place(link), place(target)).map_err(told)
    }

    async fn read_link(&self, path: &Path) -> Result<PathBuf> {
        let target = self.view.read_link(place(path)).map_err(told)?;
        Ok(PathBuf::from(&*name::text(&target)))
    }

    async fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        let new = NewMeta { mode: Some(mode), ..NewMeta::default() };
        self.view.set_meta(place(path), new).map_err(told)
    }

    async fn set_modified_time(&self, path: &Path, time: SystemTime) -> Result<()> {
        let ns = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
        };
        let new = NewMeta { modified_ns: Some(ns), ..NewMeta::default() };
        self.view.set_meta(place(path), new).map_err(told)
    }
}
