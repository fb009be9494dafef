//! What a program finds at paths where the tree has nothing: the standard
//! library it was built with, and the few devices that programs expect.

use super::abi::{DIRECTORY, Done, Errno, FileStat, REGULAR};
use crate::adapter::cpython::{STDLIB_ZIP, STDLIB_ZIP_PATH};

/// Inodes of the tree are counted from 1 up.
const INODE: u64 = u64::MAX;

/// The archive that modules are imported from, open at a place. The guest
/// remembers where each module lies in it, so it comes before the tree.
pub(super) struct Library {
    pub(super) at: u64,
}

/// A path without the empty parts that joining leaves behind.
fn clean(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.flat_map(|part| [b"/", part].concat()).collect()
}

impl Library {
    pub(super) fn at(path: &[u8]) -> Option<Library> {
        (clean(path) == STDLIB_ZIP_PATH.as_bytes()).then_some(Library { at: 0 })
    }

    /// What is known about the archive, or about a directory on the way to
    /// it that the tree does not have.
    pub(super) fn on_the_way(path: &[u8]) -> Option<FileStat> {
        let path = clean(path);
        let rest = STDLIB_ZIP_PATH.as_bytes().strip_prefix(&path[..])?;
        rest.starts_with(b"/").then(|| FileStat::beside(DIRECTORY, INODE - path.len() as u64, 4096))
    }

    pub(super) fn size(&self) -> u64 {
        STDLIB_ZIP.len() as u64
    }

    pub(super) fn stat(&self) -> FileStat {
        FileStat::beside(REGULAR, INODE, self.size())
    }

    pub(super) fn read(&self, at: Option<u64>, most: usize) -> &'static [u8] {
        let from = usize::try_from(at.unwrap_or(self.at)).unwrap_or(usize::MAX);
        let rest = STDLIB_ZIP.get(from..).unwrap_or_default();
        &rest[..rest.len().min(most)]
    }
}

#[derive(Clone, Copy)]
pub(super) enum Device {
    Null,
    Zero,
    Full,
    Random,
}

impl Device {
    pub(super) fn at(path: &[u8]) -> Option<Device> {
        match &clean(path)[..] {
            b"/dev/null" => Some(Device::Null),
            b"/dev/zero" => Some(Device::Zero),
            b"/dev/full" => Some(Device::Full),
            b"/dev/random" | b"/dev/urandom" => Some(Device::Random),
            _ => None,
        }
    }

    pub(super) fn read(self, most: usize) -> Done<Vec<u8>> {
        let mut bytes = vec![0; if let Device::Null = self { 0 } else { most }];
        if let Device::Random = self {
            getrandom::fill(&mut bytes).map_err(|_| Errno::IO)?;
        }
        Ok(bytes)
    }

    pub(super) fn write(self) -> Done {
        match self {
            Device::Full => Err(Errno::NOSPC),
            _ => Ok(()),
        }
    }
}
