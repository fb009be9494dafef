//! A frozen base: the project as it was, in sealed layers of its own.
//!
//! The first capture of a directory copies it whole. Later ones copy only what
//! changed, into a layer on top of the last one, found by an index of inode,
//! size and times that each capture leaves behind. A capture that finds
//! nothing new is the last one again.
//!
//! The directory may change while it is copied. So the index is taken before
//! the copy, and the look is repeated until nothing moved; a file that never
//! holds still is taken as it is and copied again next time.

use crate::apply::digest_of_attributes;
use crate::view::path_of;
use crate::{Engine, insert_layer};
use fractal_jail::layer::{
    self, Bounds, CopyOptions, Entry, Layer, Marks, Reader, Step, View, Writer, copy_out,
};
use fractal_model::{Code, EntryKind, Error, Id, Result, SandboxPath};
use fractal_store::{Captures, Reads, SandboxRow, new_id, now_ms};
use rustix::fs::{CWD, Mode, OFlags};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How often a directory that moves is looked at again.
const ROUNDS: usize = 4;

/// Layers of changes before the directory is copied whole again.
const DEPTH_MAX: usize = 24;

/// Name of the index in a layer's directory.
const INDEX: &str = "index";

/// What tells whether an entry changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    kind: EntryKind,
    mode: u32,
    owner: (u32, u32),
    inode: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

type Index = BTreeMap<SandboxPath, Mark>;

/// The sealed layer with the sandbox's directory as it is now.
pub fn capture(engine: &Engine, row: &SandboxRow) -> Result<Id> {
    let key = key(row);
    let shot = Shot::new(engine, row)?;
    let last = engine.store.capture(&key)?.filter(|id| index_path(engine, *id).is_file());
    let last = match last {
        Some(id) if engine.store.stack(id)?.len() < DEPTH_MAX => Some(id),
        _ => None,
    };
    let layer = match last {
        Some(last) => shot.changed_since(last)?,
        None => Some(shot.whole()?),
    };
    let layer = layer.or(last).expect("a whole capture makes a layer");
    engine.store.transact_relaxed(|tx| tx.set_capture(&key, layer, now_ms()))?;
    Ok(layer)
}

/// Captures are shared by sandboxes of one directory that hide the same.
fn key(row: &SandboxRow) -> String {
    let mut hasher = Sha256::new();
    hasher.update(row.directory.as_os_str().as_bytes());
    for hidden in row.policy.hidden.iter().filter(|path| {
        Path::new(path).starts_with(&row.directory) || row.directory.starts_with(path)
    }) {
        hasher.update([0]);
        hasher.update(hidden.as_bytes());
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One capture under way.
struct Shot<'a> {
    engine: &'a Engine,
    host: View,
    project: SandboxPath,
    is_root: bool,
}

impl<'a> Shot<'a> {
    fn new(engine: &'a Engine, row: &SandboxRow) -> Result<Shot<'a>> {
        Ok(Shot {
            engine,
            host: engine.host_view(row, Vec::new())?,
            project: path_of(&row.directory)?,
            is_root: engine.marks() == Marks::Trusted,
        })
    }

    /// Copies everything.
    fn whole(&self) -> Result<Id> {
        let before = self.look()?;
        let id = new_id();
        let store = &self.engine.store;
        store.new_layer_dir(id)?;
        let staging = store.layer_work(id).join("copy");
        let made = layer::make_whole(
            &self.host,
            &self.project,
            &store.layer_dir(id),
            &staging,
            &Bounds::default(),
            self.is_root,
        )
        .map_err(Error::from)
        .and_then(|_| {
            if self.is_root {
                layer::adopt_whole(&store.layer_dir(id), &self.project)?;
            }
            Ok(store.discard_work(id, "copy")?)
        });
        self.finish(made.and_then(|()| self.settle(id, None, before)), id, None)
    }

    /// Copies what changed since a capture; `None` when nothing did.
    fn changed_since(&self, last: Id) -> Result<Option<Id>> {
        let before = read_index(&index_path(self.engine, last))?;
        let now = self.look()?;
        if now == before {
            return Ok(None);
        }
        let id = new_id();
        self.engine.store.new_layer_dir(id)?;
        let copied = self.copy(id, Some(last), &before, &now);
        let settled = copied.and_then(|()| self.settle(id, Some(last), now));
        self.finish(settled, id, Some(last)).map(Some)
    }

    /// Looks again until nothing moved; writes the index.
    fn settle(&self, id: Id, below: Option<Id>, mut index: Index) -> Result<()> {
        for round in 0..ROUNDS {
            let now = self.look()?;
            if now == index {
                break;
            }
            self.copy(id, below, &index, &now)?;
            // What moved in the last round may have moved while it was copied:
            // an index without it makes the next capture copy it again.
            index = match round + 1 == ROUNDS {
                false => now,
                true => {
                    now.into_iter().filter(|(path, mark)| index.get(path) == Some(mark)).collect()
                }
            };
        }
        write_index(&index_path(self.engine, id), &index)
    }

    /// Makes the layer durable and known, or throws it away.
    fn finish(&self, made: Result<()>, id: Id, below: Option<Id>) -> Result<Id> {
        let store = &self.engine.store;
        let written = made.and_then(|()| {
            store.dirty_layer(id, "capture")?;
            store.sync_layer(id)?;
            store.transact(|tx| {
                insert_layer(tx, id, below)?;
                tx.seal_layer(id, 0)
            })?;
            Ok(id)
        });
        if written.is_err() {
            let _ = store.discard_layer(id);
        }
        written
    }

    fn look(&self) -> Result<Index> {
        let mut index = Index::new();
        let mut reader = self.host.reader();
        let walked = self.host.walk(&self.project, &Bounds::default(), |path, entry| {
            if entry.kind != EntryKind::Special {
                index.insert(path.clone(), mark(entry, path, &mut reader));
            }
            Step::Continue
        })?;
        if walked.truncated {
            return Err(Error::new(Code::Limit, "the project is too large to be captured")
                .hint("leave parts out with `--hide PATH`, or work on a live base"));
        }
        if walked.unreadable > 0 {
            return Err(Error::denied(
                "parts of the project cannot be read, so it cannot be captured",
            )
            .hint("make them readable, or work on a live base"));
        }
        Ok(index)
    }

    /// Brings a layer from one look to the next.
    fn copy(&self, id: Id, below: Option<Id>, before: &Index, now: &Index) -> Result<()> {
        let tree = self.engine.store.layer_tree(id);
        let below = self.below(below)?;
        let writer = Writer::open(&tree, &below, self.is_root)?;
        for (path, was) in before.iter().rev() {
            let stays = now.get(path).is_some_and(|mark| mark.kind == was.kind);
            if !stays {
                writer.delete(path)?;
            }
        }
        for (path, mark) in now.iter().filter(|(path, mark)| before.get(*path) != Some(*mark)) {
            let parent = path.parent().unwrap_or_default();
            if mark.kind == EntryKind::Directory {
                writer.directory(path, mark.mode | 0o700, mark.owner)?;
                continue;
            }
            // The way to it, with the attributes it has below.
            writer.directory(&parent, 0o755, (0, 0))?;
            self.copy_one(&tree, &parent, path)?;
        }
        // Last and deepest first: a mode may keep us from writing below it.
        for (path, mark) in now.iter().rev().filter(|(path, mark)| before.get(*path) != Some(*mark))
        {
            if mark.kind == EntryKind::Directory {
                writer.dress(path, mark.mode, mark.owner, &self.host.attributes(path)?)?;
            }
        }
        Ok(())
    }

    fn copy_one(&self, tree: &Path, parent: &SandboxPath, path: &SandboxPath) -> Result<()> {
        let dir = open_directory(&tree.join(OsStr::from_bytes(parent.relative())))?;
        let name = path.components().last().unwrap_or_default();
        let options =
            CopyOptions { keep_owner: self.is_root, exact: true, bounds: Bounds::default() };
        match copy_out(&self.host, path, dir.as_fd(), OsStr::from_bytes(name), &options) {
            Ok(_) | Err(layer::LayerError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What a new layer stands on.
    fn below(&self, below: Option<Id>) -> Result<View> {
        let Some(below) = below else { return Ok(View::default()) };
        let open = |id: Id| -> Result<Layer> {
            let tree = self.engine.store.layer_tree(id);
            Ok(Layer::open(&tree)?.marked_by(self.engine.marks()))
        };
        let stack = self.engine.store.stack(below)?;
        let layers = stack.iter().map(|layer| open(layer.id)).collect::<Result<_>>()?;
        Ok(View { layers, ..View::default() })
    }
}

fn mark(entry: &Entry, path: &SandboxPath, reader: &mut Reader<'_>) -> Mark {
    // What happens in a directory is told by its entries; what was noted about
    // it, which moves no time that counts, stands in for its size.
    let own = entry.kind != EntryKind::Directory;
    let mut noted =
        || reader.attributes(path).map_or(0, |noted| short(&digest_of_attributes(&noted)));
    Mark {
        kind: entry.kind,
        mode: entry.mode,
        owner: (entry.uid, entry.gid),
        inode: if own { entry.inode().1 } else { 0 },
        size: if own { entry.size } else { noted() },
        mtime_ns: if own { entry.mtime_ns } else { 0 },
        ctime_ns: if own { entry.ctime_ns } else { 0 },
    }
}

/// The beginning of a digest as a number; 0 for none.
fn short(digest: &str) -> u64 {
    digest.get(..16).and_then(|start| u64::from_str_radix(start, 16).ok()).unwrap_or(0)
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|errno| Error::internal(format!("cannot open {}: {errno}", path.display())))
}

fn index_path(engine: &Engine, layer: Id) -> PathBuf {
    engine.store.layer_dir(layer).join(INDEX)
}

fn write_index(path: &Path, index: &Index) -> Result<()> {
    let mut text = String::with_capacity(index.len() * 96);
    for (name, mark) in index {
        let kind = match mark.kind {
            EntryKind::File => 'f',
            EntryKind::Directory => 'd',
            EntryKind::Symlink => 'l',
            EntryKind::Special => continue,
        };
        let Mark { mode, owner: (uid, gid), inode, size, mtime_ns, ctime_ns, .. } = mark;
        let name = crate::base::encode(name);
        writeln!(text, "{kind} {mode:o} {uid} {gid} {inode} {size} {mtime_ns} {ctime_ns} {name}")
            .expect("a string takes everything");
    }
    std::fs::write(path, text)
        .map_err(|error| Error::internal(format!("cannot write {}: {error}", path.display())))
}

fn read_index(path: &Path) -> Result<Index> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::internal(format!("cannot read {}: {error}", path.display())))?;
    let damaged = || {
        Error::new(Code::Corrupt, format!("{} is damaged", path.display()))
            .hint("delete it; the next capture copies everything")
    };
    text.lines().map(|line| parse(line).ok_or_else(damaged)).collect()
}

fn parse(line: &str) -> Option<(SandboxPath, Mark)> {
    let mut words = line.splitn(9, ' ');
    let kind = match words.next()? {
        "f" => EntryKind::File,
        "d" => EntryKind::Directory,
        "l" => EntryKind::Symlink,
        _ => return None,
    };
    let mark = Mark {
        kind,
        mode: u32::from_str_radix(words.next()?, 8).ok()?,
        owner: (words.next()?.parse().ok()?, words.next()?.parse().ok()?),
        inode: words.next()?.parse().ok()?,
        size: words.next()?.parse().ok()?,
        mtime_ns: words.next()?.parse().ok()?,
        ctime_ns: words.next()?.parse().ok()?,
    };
    Some((crate::base::decode(words.next()?).ok()?, mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_comes_back_as_it_was_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(INDEX);
        let mark = |kind| Mark {
            kind,
            mode: 0o640,
            owner: (1, 2),
            inode: 7,
            size: 9,
            mtime_ns: -1,
            ctime_ns: 5,
        };
        let names = [&b"a b"[..], b"new\nline", b"\xff", b"100%"];
        let index: Index = names
            .iter()
            .map(|name| (SandboxPath::parse(name).expect("a path"), mark(EntryKind::File)))
            .collect();
        write_index(&path, &index).expect("it can be written");
        assert_eq!(read_index(&path).expect("it can be read"), index);
        std::fs::write(&path, "f 640 nonsense").expect("it can be written");
        assert_eq!(read_index(&path).expect_err("it is damaged").code, Code::Corrupt);
    }
}
