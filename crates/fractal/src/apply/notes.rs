//! What programs noted about files and directories, on its way into reality
//! and back: extended attributes of the namespace `user`.
//!
//! A file that gets others is replaced, with all that it has. A directory
//! cannot be, so its attributes are set one by one in place, before and after
//! being part of the plan. Going back touches only those that are still as we
//! set them.

use super::disk::Disk;
use super::plan::{Bytes, Planned};
use fractal_jail::layer::Attributes;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::CStr;
use std::io;

/// The attributes of a directory before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// What it has and must still have when it is changed.
    #[serde(with = "pairs")]
    pub old: Attributes,
    /// What it shall have.
    #[serde(with = "pairs")]
    pub new: Attributes,
}

impl Noted {
    /// Something new that has these from the start.
    pub fn fresh(new: Attributes) -> Noted {
        Noted { old: Attributes::default(), new }
    }

    /// The way back.
    pub fn inverse(&self) -> Noted {
        Noted { old: self.new.clone(), new: self.old.clone() }
    }

    /// Whether a directory has what it had, or came part of the way by us:
    /// each attribute is what it was or what it shall be.
    pub(super) fn is_ours(&self, dir: impl AsFd, name: &CStr) -> io::Result<bool> {
        let now = match Attributes::of_name(dir, name) {
            Err(Errno::TOOBIG) => return Ok(false),
            now => now?,
        };
        let known = |name: &[u8]| {
            let value = now.get(name);
            value == self.old.get(name) || value == self.new.get(name)
        };
        let mut names = [&now, &self.old, &self.new].into_iter().flat_map(Attributes::iter);
        Ok(names.all(|(name, _)| known(name)))
    }

    /// Sets what differs from what a directory has now.
    pub(super) fn set(&self, disk: &Disk, dir: &OwnedFd) -> io::Result<()> {
        let now = Attributes::of_name(dir, c".")?;
        become_(disk, dir, &now, &self.new, |_| true)
    }

    /// Puts back those that are as we set them.
    pub(super) fn take_back(&self, disk: &Disk, dir: &OwnedFd) -> io::Result<()> {
        let now = Attributes::of_name(dir, c".")?;
        become_(disk, dir, &now, &self.old, |name| now.get(name) == self.new.get(name))
    }
}

/// Lets a directory go from what it has to what it shall have, one by one.
fn become_(
    disk: &Disk,
    dir: impl AsFd,
    now: &Attributes,
    wanted: &Attributes,
    ours: impl Fn(&[u8]) -> bool,
) -> io::Result<()> {
    for (name, _) in now.iter().filter(|(name, _)| wanted.get(name).is_none() && ours(name)) {
        disk.remove_attribute(&dir, name)?;
    }
    for (name, value) in wanted.iter().filter(|(name, value)| now.get(name) != Some(value)) {
        if ours(name) {
            disk.set_attribute(&dir, name, value)?;
        }
    }
    Ok(())
}

/// A digest of attributes; empty when there are none.
pub fn digest(attributes: &Attributes) -> String {
    if attributes.is_empty() {
        return String::new();
    }
    let mut hasher = Sha256::new();
    for part in attributes.iter().flat_map(|(name, value)| [name, value]) {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether what stands at a name has the attributes that a promotion left
/// there; one that left none to compare does not care.
pub(super) fn are_as_made(made: Option<&str>, dir: impl AsFd, name: &CStr) -> io::Result<bool> {
    match made {
        None => Ok(true),
        Some(made) => match Attributes::of_name(dir, name) {
            // More than anybody brought.
            Err(Errno::TOOBIG) => Ok(false),
            now => Ok(digest(&now?) == made),
        },
    }
}

/// Whether a directory that changed in place has what it had before.
pub(super) fn are_as_before(step: &Planned, dir: impl AsFd, name: &CStr) -> io::Result<bool> {
    let noted = step.new.as_ref().and_then(|new| new.noted.as_ref());
    noted.map_or(Ok(true), |noted| Ok(Attributes::of_name(dir, name)? == noted.old))
}

/// Attributes in JSON: a list of names and values.
mod pairs {
    use super::{Attributes, Bytes};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub fn serialize<S: Serializer>(value: &Attributes, to: S) -> Result<S::Ok, S::Error> {
        let pair = |(name, value): (&[u8], &[u8])| (Bytes(name.to_vec()), Bytes(value.to_vec()));
        value.iter().map(pair).collect::<Vec<_>>().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Attributes, D::Error> {
        let pairs = Vec::<(Bytes, Bytes)>::deserialize(from)?;
        Attributes::new(pairs.into_iter().map(|(name, value)| (name.0, value.0)))
            .map_err(D::Error::custom)
    }
}
