//! What programs note about their own files and directories: extended
//! attributes of the namespace `user`.
//!
//! Nothing else is ever taken from a layer: `security` gives rights, `trusted`
//! is root's, and what the kernel's overlay noted (`*.overlay.*`) would change
//! what a layer means. A hostile program chooses names and values, so both are
//! bounded: an entry with more than that has attributes that cannot be read,
//! which is an error and never a part of them.

use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Attributes of one entry.
const COUNT_MAX: usize = 128;

/// Bytes of all their names and values.
const BYTES_MAX: usize = 64 << 10;

/// The kernel's bound for a list of names.
const LIST_BYTES_MAX: usize = 64 << 10;

type Outcome<T> = std::result::Result<T, Errno>;

/// The attributes of one entry, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(BTreeMap<Vec<u8>, Vec<u8>>);

impl Attributes {
    /// Takes those that count; an error if they are more than we take.
    pub fn new(list: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Outcome<Attributes> {
        let mut found = Attributes::default();
        let mut room = BYTES_MAX;
        for (name, value) in list.into_iter().filter(|(name, _)| is_noted(name)) {
            room = room.checked_sub(name.len() + value.len()).ok_or(Errno::TOOBIG)?;
            if found.0.len() >= COUNT_MAX || name.contains(&0) {
                return Err(Errno::TOOBIG);
            }
            found.0.insert(name, value);
        }
        Ok(found)
    }

    /// Those of an open file.
    pub fn of(file: impl AsFd) -> Outcome<Attributes> {
        let query = rustix::fs::flistxattr_query(&file);
        let list = |names: &mut [u8]| rustix::fs::flistxattr(&file, names);
        read(query, list, |name, value| rustix::fs::fgetxattr(&file, name, value))
    }

    /// Those of a name in an open directory, `.` being the directory itself.
    /// A link there has none, and is not followed.
    pub fn of_name(dir: impl AsFd, name: &CStr) -> Outcome<Attributes> {
        let start = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
        at(&CString::new([&start, name.to_bytes()].concat()).expect("a name holds no NUL"))
    }

    /// Those of a path of ours, whose last part is not followed.
    pub fn of_path(path: &Path) -> Outcome<Attributes> {
        at(&CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?)
    }

    /// Gives them to an open file or directory that has none of them. What the
    /// filesystem cannot hold is left behind, as `cp` does.
    pub fn give(&self, file: impl AsFd) -> Outcome<()> {
        for (name, value) in self.iter() {
            match rustix::fs::fsetxattr(&file, name, value, XattrFlags::empty()) {
                Err(Errno::NOTSUP) => return Ok(()),
                answer => answer?,
            }
        }
        Ok(())
    }

    /// Names and values, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// The value of one.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// Whether there are none, as with most entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether an attribute is one that a program noted for itself.
fn is_noted(name: &[u8]) -> bool {
    name.starts_with(b"user.") && !name.starts_with(b"user.overlay.")
}

fn at(path: &CStr) -> Outcome<Attributes> {
    let query = rustix::fs::llistxattr_query(path);
    let list = |names: &mut [u8]| rustix::fs::llistxattr(path, names);
    read(query, list, |name, value| rustix::fs::lgetxattr(path, name, value))
}

fn read(
    query: Outcome<usize>,
    list: impl Fn(&mut [u8]) -> Outcome<usize>,
    get: impl Fn(&CStr, &mut [u8]) -> Outcome<usize>,
) -> Outcome<Attributes> {
    // Most have none: asking for the length first costs no buffer.
    match query {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Attributes::default()),
        answer => answer?,
    };
    let mut names = vec![0u8; LIST_BYTES_MAX];
    let length = list(&mut names)?;
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| is_noted(name)) {
        if found.len() == COUNT_MAX {
            return Err(Errno::TOOBIG);
        }
        let mut value = vec![0u8; BYTES_MAX];
        match get(&CString::new(name).expect("split at every NUL"), &mut value) {
            Ok(length) => value.truncate(length),
            // Removed meanwhile.
            Err(Errno::NODATA) => continue,
            Err(Errno::RANGE) => return Err(Errno::TOOBIG),
            Err(errno) => return Err(errno),
        }
        value.shrink_to_fit();
        found.push((name.to_vec(), value));
    }
    Attributes::new(found)
}
