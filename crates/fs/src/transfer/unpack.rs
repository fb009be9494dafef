//! Tar and zip archives into a view.

use super::Coming;
use crate::about::NewMeta;
use crate::error::{FsError, Kind};
use crate::source::Archive;
use crate::source::archive::{Member, MemberKind, Place};
use crate::view::Vfs;
use fractal_model::SandboxPath;

impl Vfs {
    /// Unpacks an archive at a path where nothing is yet. Returns how many
    /// entries there were.
    pub fn import_archive(&self, at: &SandboxPath, archive: &Archive) -> Result<u64, FsError> {
        let mut coming = Coming::new(self.limits());
        for member in archive.members() {
            take(&mut coming, archive, member)?;
        }
        coming.arrive(self, at)
    }
}

fn take(coming: &mut Coming, archive: &Archive, member: &Member) -> Result<(), FsError> {
    let path = &member.path;
    let meta = NewMeta {
        mode: Some(member.mode),
        uid: member.owner.map(|(uid, _)| uid),
        gid: member.owner.map(|(_, gid)| gid),
        modified_ns: Some(member.modified_ns),
    };
    match &member.kind {
        MemberKind::Dir => coming.dir(path, meta)?,
        MemberKind::Link(target) => coming.link(path, target, meta)?,
        MemberKind::Same(first) => return coming.same(path, first),
        MemberKind::File(place) => file(coming, archive, path, place, meta)?,
    }
    for (name, value) in &member.xattrs {
        match coming.xattr(path, name, value) {
            // The tree has none on links.
            Err(error) if error.kind == Kind::Unsupported => {}
            done => done?,
        }
    }
    Ok(())
}

fn file(
    coming: &mut Coming,
    archive: &Archive,
    path: &SandboxPath,
    place: &Place,
    meta: NewMeta,
) -> Result<(), FsError> {
    let (size, extents) = (place.size(), place.extents());
    if place.held() < size {
        return coming.sparse(path, size, extents, meta, |range| archive.part(place, range));
    }
    let content = archive.part(place, 0..size);
    let content = content.map_err(|fault| fault.at(&crate::error::shown(path)))?;
    coming.file(path, content, meta)
}
