//! What is known about an entry besides its content: mode, owner, time and
//! extended attributes.

use crate::entry::{Entry, Meta, Xattrs};
use crate::error::{Fault, FsError, Kind};
use crate::name::Name;
use crate::rules::Need;
use crate::tree::Done;
use crate::view::{Vfs, now_ns};
use crate::walk::{Last, Reached, split};
use std::sync::Arc;

/// The most bytes one extended attribute may have, as in Linux.
const XATTR_BYTES_MAX: usize = 64 * 1024;

/// How many extended attributes an entry may have.
const XATTRS_MAX: usize = 256;

/// What [`Vfs::set_meta`] sets; the rest stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewMeta {
    /// Twelve permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// When the content was written.
    pub modified_ns: Option<i64>,
}

impl Reached<'_> {
    fn xattrs(&self) -> &Xattrs {
        match self {
            Reached::Dir(dir) => &dir.xattrs,
            Reached::File(file) => &file.xattrs,
            Reached::Link(_) => &None,
        }
    }
}

impl Vfs {
    /// One extended attribute.
    pub fn xattr(&self, path: impl AsRef<[u8]>, name: &[u8]) -> Result<Vec<u8>, FsError> {
        let path = path.as_ref();
        self.reading(path, |state, answers| {
            let reached = state.find(path, Last::Keep, answers)?.reached()?;
            let value = reached.xattrs().as_ref().and_then(|all| all.get(name));
            Ok(value.ok_or(Kind::NoAttribute)?.to_vec())
        })
    }

    /// The names of all extended attributes.
    pub fn xattrs(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>, FsError> {
        let path = path.as_ref();
        self.reading(path, |state, answers| {
            let reached = state.find(path, Last::Keep, answers)?.reached()?;
            let all = reached.xattrs().iter().flat_map(|all| all.keys());
            Ok(all.map(|name| name.to_vec()).collect())
        })
    }

    /// Sets mode, owner or time.
    pub fn set_meta(&self, path: impl AsRef<[u8]>, new: NewMeta) -> Result<(), FsError> {
        self.about(path.as_ref(), |meta, _| {
            meta.mode = new.mode.map_or(meta.mode, |mode| mode & 0o7777);
            meta.uid = new.uid.unwrap_or(meta.uid);
            meta.gid = new.gid.unwrap_or(meta.gid);
            meta.modified_ns = new.modified_ns.unwrap_or(meta.modified_ns);
            Ok(())
        })
    }

    /// Sets an extended attribute.
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), FsError> {
        self.about(path.as_ref(), |_, xattrs| {
            let known = xattrs.as_ref().is_some_and(|all| all.contains_key(name));
            let many = xattrs.as_ref().map_or(0, |all| all.len());
            if name.is_empty() || name.contains(&0) {
                return Err(Kind::Invalid.into());
            }
            if name.len() > 255 || value.len() > XATTR_BYTES_MAX || (many >= XATTRS_MAX && !known) {
                return Err(Fault::because(Kind::Full, "extended attributes are limited"));
            }
            let all = Arc::make_mut(xattrs.get_or_insert_default());
            all.insert(name.into(), value.into());
            Ok(())
        })
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: &[u8]) -> Result<(), FsError> {
        self.about(path.as_ref(), |_, xattrs| {
            if !xattrs.as_ref().is_some_and(|all| all.contains_key(name)) {
                return Err(Kind::NoAttribute.into());
            }
            if let Some(all) = xattrs {
                Arc::make_mut(all).remove(name);
            }
            if xattrs.as_ref().is_some_and(|all| all.is_empty()) {
                *xattrs = None;
            }
            Ok(())
        })
    }

    /// Edits what is known about an entry; of a symlink only its meta.
    fn about(
        &self,
        path: &[u8],
        mut edit: impl FnMut(&mut Meta, &mut Xattrs) -> Result<(), Fault>,
    ) -> Result<(), FsError> {
        let now = now_ns();
        self.writing(path, |state, answers| {
            let found = state.find(path, Last::Keep, answers)?;
            let reached = found.reached()?;
            if found.live {
                return Err(Kind::ReadOnly.into());
            }
            found.access.check(Need::Write)?;
            match reached {
                Reached::Dir(dir) => {
                    let (mut meta, mut xattrs) = (dir.meta, dir.xattrs.clone());
                    edit(&mut meta, &mut xattrs)?;
                    meta.changed_ns = now;
                    let place = found.into_place();
                    state.top.edit_dir(&place, answers, &mut |dir| {
                        dir.meta = meta;
                        dir.xattrs = xattrs.clone();
                    })
                }
                Reached::File(file) => {
                    let (mut meta, mut xattrs) = (file.meta, file.xattrs.clone());
                    edit(&mut meta, &mut xattrs)?;
                    meta.changed_ns = now;
                    let place = found.into_place();
                    state.top.edit_file(&place, answers, &mut |file| {
                        file.meta = meta;
                        file.xattrs = xattrs.clone();
                        Ok(())
                    })
                }
                Reached::Link(link) => {
                    let (mut link, mut none) = (link.clone(), None);
                    edit(&mut link.meta, &mut none)?;
                    if none.is_some() {
                        return Err(Kind::Unsupported.into());
                    }
                    let entry = Entry::Link(Arc::new(link));
                    let place = found.into_place();
                    let (dir, name) = split(&place);
                    state.top.edit(dir, answers, &mut |_, map| {
                        map.insert(Name::trusted(name), entry.clone());
                        Ok(Done { delta: Default::default(), levels: 0 })
                    })
                }
            }
        })
    }
}
