//! A sandbox's files, read and written from outside without a program.
//!
//! Paths are resolved inside: `..` and links lead no further up than the
//! sandbox's own root, and what is found counts only if it lies in the
//! sandbox's directory or in one of its layers. Nothing else of the host is
//! reachable, whatever links say. Hidden paths do not exist here.

mod bodies;
mod claim;
mod resolve;

pub use bodies::OpenFile;
pub use claim::{Edit, writing};

use crate::view::path_of;
use crate::{Caller, Engine};
use fractal_jail::layer::{Entry, Source, View};
use fractal_model::{Code, EntryKind, Error, MountSource, Result, SandboxPath, Verb, format_bytes};
use fractal_store::SandboxRow;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

/// Bytes of a file that is read whole.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// What a sandbox shows to one caller.
pub struct Files<'a> {
    pub view: View,
    pub row: &'a SandboxRow,
    project: SandboxPath,
    hidden: Vec<SandboxPath>,
    fixed: Vec<SandboxPath>,
}

impl<'a> Files<'a> {
    /// Looks at a sandbox, for a caller who must have the right to.
    pub fn open(
        engine: &Engine,
        caller: &Caller,
        verb: Verb,
        row: &'a SandboxRow,
    ) -> Result<Files<'a>> {
        engine.authorize(caller, verb)?;
        let parsed = |paths: &BTreeSet<String>| -> Result<Vec<SandboxPath>> {
            paths.iter().map(SandboxPath::parse).collect()
        };
        let policy = caller.policy.meet(&row.policy);
        let hidden = parsed(&policy.hidden)?;
        let mut view = engine.views(row, row.base)?.top();
        view.host_hidden.extend(hidden.iter().cloned());
        let (project, fixed) = (path_of(&row.directory)?, parsed(&policy.read_only)?);
        Ok(Files { view, row, project, hidden, fixed })
    }

    /// Where a typed path leads, and what stands there.
    pub fn find(&self, typed: impl AsRef<Path>) -> Result<(SandboxPath, Option<Entry>)> {
        let whole = self.row.directory.join(typed);
        let path = resolve::resolve(&self.view, whole.as_os_str().as_encoded_bytes())?;
        self.shown(path)
    }

    /// The same without following a link that is the path's last name.
    pub fn find_itself(&self, typed: &Path) -> Result<(SandboxPath, Option<Entry>)> {
        let whole = self.row.directory.join(typed);
        let (Some(above), Some(name)) = (whole.parent(), whole.file_name()) else {
            return self.find(typed);
        };
        let above = resolve::resolve(&self.view, above.as_os_str().as_encoded_bytes())?;
        self.shown(above.join(name.as_encoded_bytes())?)
    }

    fn shown(&self, path: SandboxPath) -> Result<(SandboxPath, Option<Entry>)> {
        if let Some(mount) = self.mount_over(&path) {
            let why = format!("{path} lies in what is mounted at {mount}");
            return Err(Error::new(Code::Unsupported, why).hint("use `run`: programs see mounts"));
        }
        let entry = self.view.lookup(&path)?.filter(|_| !self.is_hidden(&path));
        match entry {
            Some(entry) if !self.is_ours(&path, &entry) => Err(self.outside(&path)),
            entry => Ok((path, entry)),
        }
    }

    /// The same for what must be there.
    pub fn existing(&self, typed: impl AsRef<Path>) -> Result<(SandboxPath, Entry)> {
        self.must_be(self.find(typed)?)
    }

    /// Something that was found, or an error that says it was not.
    pub fn must_be(&self, found: (SandboxPath, Option<Entry>)) -> Result<(SandboxPath, Entry)> {
        match found {
            (path, Some(entry)) => Ok((path, entry)),
            (path, None) => Err(Error::not_found(format!("`{}` has no {path}", self.row.name))
                .hint("`find` with a `glob` lists what there is")),
        }
    }

    /// A whole file, of a bounded size.
    pub fn content(&self, path: &SandboxPath, entry: &Entry) -> Result<Vec<u8>> {
        if entry.kind != EntryKind::File {
            return Err(Error::invalid(format!("{path} is no regular file")));
        }
        let mut content = Vec::new();
        let file = self.view.open_file(path)?;
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut content)
            .map_err(|error| Error::denied(format!("cannot read {path}: {error}")))?;
        match content.len() as u64 > FILE_BYTES_MAX {
            false => Ok(content),
            true => {
                let (size, most) = (format_bytes(entry.size), format_bytes(FILE_BYTES_MAX));
                Err(Error::new(Code::Limit, format!("{path} has {size}, {most} are allowed"))
                    .hint("use `run` with head, tail or sed"))
            }
        }
    }

    /// The same as text.
    pub fn text(&self, path: &SandboxPath, entry: &Entry) -> Result<String> {
        String::from_utf8(self.content(path, entry)?).map_err(|error| {
            let size = format_bytes(error.as_bytes().len() as u64);
            Error::invalid(format!("{path} is no text ({size})"))
                .hint("use `run` with a program for such files, as in `file` or `xxd`")
        })
    }

    /// Refuses what may not be written.
    pub fn refuse_write(&self, path: &SandboxPath) -> Result<()> {
        crate::stages::refuse_write(self.row, "write into")?;
        if self.is_hidden(path) || self.fixed.iter().any(|fixed| path.is_within(fixed)) {
            return Err(Error::denied(format!("{path} cannot be written: policy forbids it")));
        }
        // A new file outside of the project may stand in a directory that a
        // program inside has made, and nowhere else.
        let mut above = path.parent();
        while let Some(directory) = above.filter(|_| !path.is_within(&self.project)) {
            match self.view.lookup(&directory)? {
                Some(entry) if self.is_ours(&directory, &entry) => return Ok(()),
                Some(_) => return Err(self.outside(path)),
                None => above = directory.parent(),
            }
        }
        Ok(())
    }

    /// Refuses what may not go: what may not be written, what holds something
    /// that may not, and the project itself.
    pub fn refuse_delete(&self, path: &SandboxPath) -> Result<()> {
        self.refuse_write(path)?;
        if self.project.is_within(path) {
            return Err(Error::denied(format!("{path} holds the project and cannot be deleted"))
                .hint("delete what is in it"));
        }
        let mut kept = self.hidden.iter().chain(&self.fixed);
        match kept.find(|kept| kept.is_within(path)) {
            None => Ok(()),
            Some(kept) => Err(Error::denied(format!("{path} holds {kept}, which must stay"))),
        }
    }

    /// Whether something is part of what may be seen at all.
    pub fn is_ours(&self, path: &SandboxPath, entry: &Entry) -> bool {
        path.is_within(&self.project) || matches!(entry.source, Source::Layer(_))
    }

    pub fn is_hidden(&self, path: &SandboxPath) -> bool {
        self.hidden.iter().any(|hidden| path.is_within(hidden))
    }

    fn mount_over(&self, path: &SandboxPath) -> Option<&str> {
        let covers = |at: &str| SandboxPath::parse(at).is_ok_and(|at| path.is_within(&at));
        let mounts = self.row.mounts.iter().filter(|mount| mount.source != MountSource::Scratch);
        mounts.map(|mount| mount.at.as_str()).find(|at| covers(at))
    }

    fn outside(&self, path: &SandboxPath) -> Error {
        let why = format!("{path} lies outside of {}, and nothing inside made it", self.project);
        Error::denied(why).hint("use `run`: programs see the whole sandbox")
    }
}
