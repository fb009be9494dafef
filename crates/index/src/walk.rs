//! Which files are records: one walk, with a mark of each file's state.
//!
//! Nothing is read here. A walk follows no link, enters nothing that holds other
//! people's work (environments, build output, hidden directories), and is bounded
//! in depth and number, so that a directory made to hurt costs little.

use crate::record::{BODY_BYTES_MAX, HEAD_BYTES_MAX};
use crate::{IndexError, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat, statat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// Deeper than people nest.
const DEPTH_MAX: usize = 40;
/// More records than one index is made for.
pub(crate) const FILES_MAX: usize = 1_000_000;
/// With more, threads wait for each other inside of the kernel.
const THREADS_MAX: usize = 8;
/// With fewer directories a thread takes longer to start than to look.
const STARTS_PER_THREAD: usize = 8;
/// Directories that are full of others' files.
const FOREIGN: [&str; 7] =
    ["node_modules", "target", "venv", "__pycache__", "site-packages", "dist", "build"];
/// Pages that are made from the records.
const GENERATED: [&str; 2] = ["index.md", "log.md"];
/// A file that changed so shortly before it was looked at may change again
/// without its times showing it, on kernels whose file clock ticks coarsely.
const TICK_NS: i64 = 20_000_000;

/// A directory whose records are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// What it is called in answers; unique in one index.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Which of the files below it are meant.
    pub kind: RootKind,
}

/// Which files below a root are records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// A project: only what lies in its bundles, `sandbox/*_skunkworks`.
    Project,
    /// Every Markdown file.
    Notes,
}

/// A file as the walk saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its path from the root.
    pub path: String,
    /// What changes when the file does.
    pub stamp: Stamp,
}

/// What changes when a file does: its number, size and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp([i64; 4]);

impl Stamp {
    fn of(stat: &Stat) -> Stamp {
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        let mtime = ns(stat.st_mtime, stat.st_mtime_nsec as i64);
        let ctime = ns(stat.st_ctime, stat.st_ctime_nsec as i64);
        Stamp([stat.st_ino as i64, stat.st_size, mtime, ctime])
    }

    /// The same, or one that equals no file's if it is too young to be trusted.
    pub fn settled(self, now_ns: i64) -> Stamp {
        if self.0[3].saturating_add(TICK_NS) < now_ns { self } else { Stamp::default() }
    }

    fn bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (place, number) in bytes.chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub fn to_text(self) -> String {
        self.0.map(|number| number.to_string()).join(" ")
    }
}

/// Everything that a walk found, and one number for all of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    pub files: Vec<Seen>,
    /// Differs when any path or stamp does.
    pub digest: String,
    /// Set when there was more than is ever read.
    pub cut: bool,
}

/// Finds the records below a root. A root that does not exist has none.
pub(crate) fn walk(root: &Root) -> Result<Walked> {
    let Some(ground) = Ground::open(root)? else { return Ok(Walked::of(Vec::new())) };
    let mut top = Part::default();
    let starts = match root.kind {
        RootKind::Notes => {
            let dir = ground.at("", OFlags::DIRECTORY).ok();
            dir.map(|dir| list(dir, "", &mut top).1).unwrap_or_default()
        }
        RootKind::Project => bundles(&ground),
    };
    let mut parts = descend_all(&ground, &starts);
    parts.push(top.finished());
    Ok(Walked::of(parts))
}

/// The outermost bundles of a project, from its root.
fn bundles(project: &Ground<'_>) -> Vec<String> {
    let Ok(dir) = project.at("sandbox", OFlags::DIRECTORY) else { return Vec::new() };
    let mut names = list(dir, "sandbox", &mut Part::default()).1;
    names.retain(|name| name.ends_with(crate::bundle::SUFFIX));
    names.into_iter().map(|name| format!("sandbox/{name}")).collect()
}

/// What one thread found, below some of the places where a walk begins.
#[derive(Default)]
struct Part {
    files: Vec<Seen>,
    cut: bool,
    digest: [u8; 32],
}

impl Part {
    /// In order and with its digest, which is work for the thread that found it.
    fn finished(mut self) -> Part {
        self.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let mut hasher = Sha256::new();
        for seen in &self.files {
            hasher.update(seen.path.as_bytes());
            hasher.update([0]);
            hasher.update(seen.stamp.bytes());
        }
        self.digest = hasher.finalize().into();
        self
    }
}

impl Walked {
    fn of(parts: Vec<Part>) -> Walked {
        let (mut walked, mut hasher) = (Walked::default(), Sha256::new());
        for part in parts {
            hasher.update(part.digest);
            walked.cut |= part.cut;
            walked.files.extend(part.files);
        }
        // Each thread stops by itself, so that together they may have more.
        walked.cut |= walked.files.len() > FILES_MAX;
        walked.files.truncate(FILES_MAX);
        walked.digest = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        walked
    }
}

/// What lies below each of these directories, in their order. The kernel spends
/// about a microsecond on every file, so where there are many directories they
/// are shared among threads.
fn descend_all(ground: &Ground<'_>, starts: &[String]) -> Vec<Part> {
    let (next, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut parts = Vec::new();
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(start) = starts.get(at) else { return parts };
            let mut part = Part::default();
            if let Ok(dir) = ground.at(start, OFlags::DIRECTORY) {
                descend(dir, start, 0, &count, &mut part);
            }
            parts.push((at, part.finished()));
        }
    };
    let cores = thread::available_parallelism().map_or(1, |count| count.get());
    let threads = cores.min(THREADS_MAX).min(starts.len() / STARTS_PER_THREAD).max(1);
    let mut parts = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut parts = work();
        for other in others {
            parts.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        parts
    });
    parts.sort_unstable_by_key(|(at, _)| *at);
    parts.into_iter().map(|(_, part)| part).collect()
}

fn descend(dir: OwnedFd, path: &str, depth: usize, count: &AtomicUsize, into: &mut Part) {
    if depth > DEPTH_MAX || count.load(Relaxed) >= FILES_MAX {
        into.cut = true;
        return;
    }
    let before = into.files.len();
    let (dir, names) = list(dir, path, into);
    count.fetch_add(into.files.len() - before, Relaxed);
    let Some(dir) = dir else { return };
    for name in names {
        let Ok(fd) = dir.fd() else { return };
        // One name, so that not to follow a link is to stay beneath.
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        if let Ok(below) = openat(fd, &name, flags, Mode::empty()) {
            descend(below, &format!("{path}/{name}"), depth + 1, count, into);
        }
    }
}

/// Takes the records of a directory and gives the names, in order, of the
/// directories to look into. What is gone meanwhile, what may not be looked at,
/// and names that are not UTF-8 are left out.
fn list(dir: OwnedFd, path: &str, into: &mut Part) -> (Option<Dir>, Vec<String>) {
    let mut names = Vec::new();
    let Ok(mut dir) = Dir::new(dir) else { return (None, names) };
    while let Some(Ok(entry)) = dir.read() {
        if into.files.len() >= FILES_MAX {
            into.cut = true;
            break;
        }
        let Ok(name) = entry.file_name().to_str() else { continue };
        let (Ok(fd), kind) = (dir.fd(), entry.file_type()) else { break };
        // The kind that the directory tells saves a look at what is no record.
        let may_be_record =
            matches!(kind, FileType::RegularFile | FileType::Unknown) && is_record_name(name);
        let stat = (may_be_record || kind == FileType::Unknown)
            .then(|| statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).ok())
            .flatten();
        let kind = stat.as_ref().map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
        match (kind, stat) {
            (FileType::Directory, _) if is_entered(name) => names.push(name.to_owned()),
            (FileType::RegularFile, Some(stat)) if may_be_record => {
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
                into.files.push(Seen { path, stamp: Stamp::of(&stat) });
            }
            _ => {}
        }
    }
    names.sort_unstable();
    (Some(dir), names)
}

fn is_entered(name: &str) -> bool {
    !name.starts_with('.') && !FOREIGN.contains(&name)
}

/// Whether a file of this name is a record, and not a page made from records.
pub(crate) fn is_record_name(name: &str) -> bool {
    name.ends_with(".md") && !name.starts_with('.') && !GENERATED.contains(&name)
}

/// A root that is open: everything is reached beneath it, and without links,
/// since programs in sandboxes may write there while we look.
pub(crate) struct Ground<'a> {
    root: &'a Root,
    dir: OwnedFd,
}

/// A file as it was read.
pub(crate) struct Content {
    /// As much of it as is searched.
    pub bytes: Vec<u8>,
    pub stamp: Stamp,
}

impl Ground<'_> {
    /// None where there is no such directory, or none that may be looked at.
    pub fn open(root: &Root) -> Result<Option<Ground<'_>>> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        match rustix::fs::open(&root.path, flags, Mode::empty()) {
            Ok(dir) => {
                let ground = Ground { root, dir };
                // A kernel that cannot do this must not look like an empty root.
                match ground.at("", OFlags::DIRECTORY) {
                    Ok(_) => Ok(Some(ground)),
                    Err(error) => Err(IndexError::io("look beneath", &root.path, error)),
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
            Err(error) => Err(IndexError::io("open", &root.path, error)),
        }
    }

    pub fn root(&self) -> &Root {
        self.root
    }

    fn at(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.is_empty() { "." } else { path };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.dir, path, flags, Mode::empty(), how)
    }

    /// Reads as much of a file as is searched. It is never waited for.
    pub fn read(&self, path: &str) -> std::io::Result<Content> {
        let file = self.at(path, OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(std::io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        let most = (HEAD_BYTES_MAX + BODY_BYTES_MAX) as u64;
        std::fs::File::from(file).take(most).read_to_end(&mut bytes)?;
        Ok(Content { bytes, stamp: Stamp::of(&stat) })
    }
}
