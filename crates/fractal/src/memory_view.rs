//! A sandbox as a tree in memory: its layers everywhere, and of the host the
//! project alone.
//!
//! What a shell in memory works on shows nothing else of the machine: no
//! system, no home, no other project. Entries are read when they are asked
//! for, through the same hostile-proof reader as every other verb uses.

use crate::view::path_of;
use bytes::Bytes;
use fractal_fs::{Ask, Fault, Item, ItemKind, Kind, READ_BYTES_MAX, Source, Stamp, read_range};
use fractal_jail::layer::{DirEntry, LayerError, View, nanoseconds};
use fractal_model::{EntryKind, SandboxPath};
use std::io::ErrorKind::PermissionDenied;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a sandbox shows, for a view in memory.
pub struct Project {
    /// Layers and host, for the project.
    inside: View,
    /// The layers alone, for all else.
    outside: View,
    project: SandboxPath,
}

impl Project {
    /// The sandbox that `view` shows, with its project.
    pub fn new(view: View, directory: &Path) -> fractal_model::Result<Project> {
        let outside = View { host: None, ..view.clone() };
        Ok(Project { inside: view, outside, project: path_of(directory)? })
    }

    fn view(&self, at: &SandboxPath) -> &View {
        match at.is_within(&self.project) {
            true => &self.inside,
            false => &self.outside,
        }
    }

    /// The next directory on the way to the project.
    fn way(&self, at: &SandboxPath) -> Option<Vec<u8>> {
        if !self.project.is_within(at) {
            return None;
        }
        self.project.components().nth(at.components().count()).map(<[u8]>::to_vec)
    }

    /// A part of the file that was listed. The view knows its size: another
    /// one, or one that was edited since, would be read as neither.
    fn part(&self, at: &SandboxPath, range: Range<u64>, ask: &Ask) -> Result<Bytes, Fault> {
        let file = self.view(at).open_file(at).map_err(fault)?;
        let meta = file.metadata();
        let meta = meta.map_err(|error| Fault::because(Kind::Source, error.to_string()))?;
        let modified_ns = nanoseconds(meta.mtime(), meta.mtime_nsec());
        if ask.stamp.is_some_and(|before| before != stamp(meta.ino(), modified_ns)) {
            return Err(Fault::because(Kind::Source, "it was changed on the host meanwhile"));
        }
        read_range(&file, range, meta.len())
    }
}

impl Source for Project {
    fn kind(&self) -> &str {
        "sandbox"
    }

    fn describe(&self) -> String {
        self.project.to_string()
    }

    fn list(&self, at: &SandboxPath, _: &Ask) -> Result<Vec<Item>, Fault> {
        let way = self.way(at);
        let listed = match self.view(at).read_dir(at) {
            // The layers need not know the directories above the project.
            Err(LayerError::NotFound { .. }) if way.is_some() => Vec::new(),
            listed => listed.map_err(fault)?,
        };
        let mut items: Vec<Item> = listed.into_iter().filter_map(item).collect();
        if let Some(way) = way {
            let known = items.iter().any(|item| item.name == way && item.kind == ItemKind::Dir);
            if !known {
                items.retain(|item| item.name != way);
                items.push(Item::dir(way));
            }
        }
        Ok(items)
    }

    fn read(&self, at: &SandboxPath, ask: &Ask) -> Result<Bytes, Fault> {
        let bytes = self.part(at, 0..READ_BYTES_MAX + 1, ask)?;
        match bytes.len() as u64 > READ_BYTES_MAX {
            true => Err(Fault::new(Kind::TooLarge)),
            false => Ok(bytes),
        }
    }

    fn read_range(
        &self,
        at: &SandboxPath,
        range: Range<u64>,
        ask: &Ask,
    ) -> Result<Option<Bytes>, Fault> {
        let end = range.end.min(range.start.saturating_add(READ_BYTES_MAX));
        self.part(at, range.start..end, ask).map(Some)
    }
}

fn item(DirEntry { name, entry }: DirEntry) -> Option<Item> {
    let kind = match entry.kind {
        EntryKind::File => ItemKind::File(Some(entry.size)),
        EntryKind::Directory => ItemKind::Dir,
        EntryKind::Symlink => ItemKind::Link(entry.target.clone()?),
        EntryKind::Special => return None,
    };
    Some(Item {
        name,
        kind,
        mode: Some(entry.mode),
        owner: Some((entry.uid, entry.gid)),
        modified_ns: Some(entry.mtime_ns),
        stamp: Some(stamp(entry.inode().1, entry.mtime_ns)),
    })
}

/// When it was changed does not count: a layer's files get another name now and
/// then, which is no edit.
fn stamp(inode: u64, modified_ns: i64) -> Stamp {
    Stamp(u128::from(inode) << 64 | u128::from(modified_ns as u64))
}

fn fault(error: LayerError) -> Fault {
    let kind = match &error {
        LayerError::NotFound { .. } => Kind::NotFound,
        LayerError::Io { source, .. } if source.kind() == PermissionDenied => Kind::Denied,
        _ => Kind::Source,
    };
    Fault::because(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_layer_is_what_linux_would_say() {
        let check = |number: i32, expect: Kind| {
            let source = std::io::Error::from_raw_os_error(number);
            let error = LayerError::Io { verb: "open", path: "secret".into(), source };
            assert_eq!(fault(error).kind, expect, "{number}");
        };
        check(13, Kind::Denied);
        check(1, Kind::Denied);
        check(5, Kind::Source);
        let missing = LayerError::NotFound { path: SandboxPath::root() };
        assert_eq!(fault(missing).kind, Kind::NotFound);
    }
}
