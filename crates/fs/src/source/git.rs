//! A commit of a git repository, without a checkout.
//!
//! The repository is opened with nothing but its own configuration, is only
//! read, and nothing talks to a network. A submodule is an empty directory.

use super::{Ask, Item, ItemKind, Source, Stamp};
use crate::content::READ_BYTES_MAX;
use crate::error::{Fault, Kind};
use bytes::Bytes;
use fractal_model::SandboxPath;
use gix::objs::tree::EntryKind;
use gix::{ObjectId, Repository, ThreadSafeRepository};
use std::path::Path;

/// The tree of a revision as a source.
pub struct Git {
    repository: ThreadSafeRepository,
    tree: ObjectId,
    /// When the commit was made; a bare tree has no time.
    committed_ns: Option<i64>,
    shown: String,
}

impl Git {
    /// Opens a repository and finds a revision, in any way that git can name
    /// one: a branch, a tag, `HEAD~3`, a commit's or a tree's number.
    pub fn open(repository: impl AsRef<Path>, revision: &str) -> Result<Git, Fault> {
        let path = repository.as_ref();
        let opened = gix::open_opts(path, gix::open::Options::isolated());
        let opened = opened.map_err(|error| {
            Fault::because(Kind::NotFound, format!("{}: {}", path.display(), told(&error)))
        })?;
        let unknown = |error: &dyn std::fmt::Display| {
            let reason = format!("{} has no revision {revision}: {error}", path.display());
            Fault::because(Kind::NotFound, reason)
        };
        let found = opened.rev_parse_single(revision).map_err(|error| unknown(&error))?;
        let object = found.object().map_err(|error| unknown(&error))?;
        let commit = object.clone().peel_to_kind(gix::object::Kind::Commit).ok();
        let commit = commit.and_then(|commit| commit.try_into_commit().ok());
        let committed_ns = commit.and_then(|commit| commit.time().ok());
        let committed_ns = committed_ns.map(|time| time.seconds.saturating_mul(1_000_000_000));
        let tree = object.peel_to_tree().map_err(|error| unknown(&error))?.id;
        let shown = format!("{} {revision}", path.display());
        Ok(Git { repository: opened.into_sync(), tree, committed_ns, shown })
    }

    /// What stands at a path: its number and kind.
    fn at(
        &self,
        repository: &Repository,
        at: &SandboxPath,
    ) -> Result<(ObjectId, EntryKind), Fault> {
        let tree = repository.find_tree(self.tree).map_err(|error| broken(&error))?;
        if at == &SandboxPath::root() {
            return Ok((self.tree, EntryKind::Tree));
        }
        let found = tree.lookup_entry(at.components()).map_err(|error| broken(&error))?;
        let found = found.ok_or(Fault::new(Kind::NotFound))?;
        Ok((found.object_id(), found.mode().kind()))
    }
}

impl Source for Git {
    fn kind(&self) -> &str {
        "git"
    }

    fn describe(&self) -> String {
        self.shown.clone()
    }

    fn list(&self, at: &SandboxPath, _: &Ask) -> Result<Vec<Item>, Fault> {
        let repository = self.repository.to_thread_local();
        let (id, kind) = self.at(&repository, at)?;
        match kind {
            EntryKind::Tree => {}
            EntryKind::Commit => return Ok(Vec::new()),
            _ => return Err(Fault::new(Kind::NotADirectory)),
        }
        let tree = repository.find_tree(id).map_err(|error| broken(&error))?;
        let mut items = Vec::new();
        for entry in tree.iter() {
            let entry = entry.map_err(|error| broken(&error))?;
            let id = entry.object_id();
            let (kind, mode) = match entry.mode().kind() {
                EntryKind::Tree | EntryKind::Commit => (ItemKind::Dir, 0o755),
                EntryKind::Link => (ItemKind::Link(blob(&repository, id)?.to_vec()), 0o777),
                EntryKind::Blob => (ItemKind::File(Some(size(&repository, id)?)), 0o644),
                EntryKind::BlobExecutable => (ItemKind::File(Some(size(&repository, id)?)), 0o755),
            };
            items.push(Item {
                mode: Some(mode),
                modified_ns: self.committed_ns,
                stamp: stamp(&id),
                ..Item::new(entry.filename().to_vec(), kind)
            });
        }
        Ok(items)
    }

    fn read(&self, at: &SandboxPath, _: &Ask) -> Result<Bytes, Fault> {
        let repository = self.repository.to_thread_local();
        let (id, kind) = self.at(&repository, at)?;
        match kind {
            EntryKind::Blob | EntryKind::BlobExecutable => blob(&repository, id),
            _ => Err(Fault::new(Kind::IsADirectory)),
        }
    }

    fn rereads(&self) -> bool {
        true
    }
}

fn size(repository: &Repository, id: ObjectId) -> Result<u64, Fault> {
    Ok(repository.find_header(id).map_err(|error| broken(&error))?.size())
}

fn blob(repository: &Repository, id: ObjectId) -> Result<Bytes, Fault> {
    let size = size(repository, id)?;
    if size > READ_BYTES_MAX {
        return Err(Fault::because(Kind::TooLarge, format!("{size} bytes")));
    }
    let object = repository.find_object(id).map_err(|error| broken(&error))?;
    Ok(object.detach().data.into())
}

/// The number of an object never means anything else.
fn stamp(id: &ObjectId) -> Option<Stamp> {
    let bytes = id.as_bytes().get(..16)?.try_into().ok()?;
    Some(Stamp(u128::from_be_bytes(bytes)))
}

fn broken(error: &dyn std::error::Error) -> Fault {
    Fault::because(Kind::Source, format!("the repository: {}", told(error)))
}

/// An error and what caused it.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}
