//! Files and archives by their content, for doors whose callers name no path
//! of the host: what is sent lies in a file without a name until it is taken.
//!
//! Who may see what differs may read; who may copy may write. The rules are
//! those of the tools: nothing outside of the project but what was made
//! inside, links followed inside, hidden paths absent.

use super::claim::NewFile;
use super::{Edit, Files, writing};
use crate::apply::Bytes;
use crate::verbs::{export, import};
use crate::{Caller, Engine, record};
use fractal_jail::layer::DirEntry;
use fractal_model::{
    ArchiveReply, Code, EntryKind, Error, FileEntry, FileList, FileReply, Id, Result, SandboxInfo,
    Verb,
};
use fractal_store::{new_id, now_ms};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// A manifest is read into memory; this many bytes tell of 100,000 changes.
const MANIFEST_BYTES_MAX: u64 = 32 << 20;

/// A file of a sandbox, open for reading.
#[derive(Debug)]
pub struct OpenFile {
    /// Its content.
    pub file: File,
    /// How much that is now.
    pub size_bytes: u64,
}

impl Engine {
    /// Opens a file of a sandbox.
    pub fn open_file(&self, caller: &Caller, sandbox: &str, path: &Path) -> Result<OpenFile> {
        self.ready()?;
        self.authorize(caller, Verb::Diff)?;
        self.noted(caller, Verb::Diff, open(self, caller, sandbox, path))
    }

    /// Lists a directory of a sandbox, from behind `after` on.
    pub fn list_files(
        &self,
        caller: &Caller,
        sandbox: &str,
        path: &Path,
        after: Option<&str>,
        limit: usize,
    ) -> Result<FileList> {
        self.ready()?;
        self.authorize(caller, Verb::Diff)?;
        self.noted(caller, Verb::Diff, list(self, caller, sandbox, path, after, limit))
    }

    /// Refuses whoever may not use a verb on a sandbox, or does not see it,
    /// before anything is taken from them.
    pub fn require_reach(&self, caller: &Caller, verb: Verb, sandbox: &str) -> Result<()> {
        self.ready()?;
        self.authorize(caller, verb)?;
        let found = self.find(caller, Some(sandbox)).map(|_| ());
        self.noted(caller, verb, found)
    }

    /// The id of a sandbox for whoever may use this verb on it; `None` where
    /// they see no such sandbox.
    pub fn reached(&self, caller: &Caller, verb: Verb, sandbox: &str) -> Result<Option<Id>> {
        self.ready()?;
        self.authorize(caller, verb)?;
        match self.find(caller, Some(sandbox)) {
            Ok(row) => Ok(Some(row.id)),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => self.noted(caller, verb, Err(error)),
        }
    }

    /// Refuses whoever may not import, before content is taken.
    pub fn require_importer(&self, caller: &Caller) -> Result<()> {
        self.ready()?;
        self.authorize(caller, Verb::Import)?;
        self.noted(caller, Verb::Import, self.require_new_within(caller, "clone"))
    }

    /// Puts a file into a sandbox, or in the place of one.
    pub fn put_file(
        &self,
        caller: &Caller,
        sandbox: &str,
        path: &Path,
        content: File,
        executable: bool,
    ) -> Result<FileReply> {
        self.ready()?;
        self.authorize(caller, Verb::Copy)?;
        self.noted(caller, Verb::Copy, put(self, caller, sandbox, path, content, executable))
    }

    /// Deletes a file of a sandbox; a directory only if that is meant.
    pub fn delete_file(
        &self,
        caller: &Caller,
        sandbox: &str,
        path: &Path,
        recursive: bool,
    ) -> Result<FileReply> {
        self.ready()?;
        self.authorize(caller, Verb::Copy)?;
        self.noted(caller, Verb::Copy, delete(self, caller, sandbox, path, recursive))
    }

    /// `export` into whatever takes bytes, with the snapshots if so asked.
    pub fn export_into(
        &self,
        caller: &Caller,
        sandbox: &str,
        history: bool,
        out: &mut dyn Write,
    ) -> Result<ArchiveReply> {
        self.ready()?;
        self.authorize(caller, Verb::Export)?;
        self.noted(caller, Verb::Export, export::export_into(self, caller, sandbox, history, out))
    }

    /// `import` of an archive that was sent, with at most so much in it.
    pub fn import_file(
        &self,
        caller: &Caller,
        mut archive: File,
        name: Option<&str>,
        content_bytes: u64,
    ) -> Result<SandboxInfo> {
        self.ready()?;
        self.authorize(caller, Verb::Import)?;
        let bounds = import::Bounds { manifest_bytes: MANIFEST_BYTES_MAX, content_bytes };
        let source = import::Source { name: "the body", bounds };
        let done = rewind(&mut archive)
            .and_then(|()| import::unpack(self, caller, archive, &source, name));
        self.noted(caller, Verb::Import, done)
    }

    /// A file without a name in the state directory: it is gone with whoever
    /// holds it, however that ends.
    pub fn nameless_file(&self) -> Result<File> {
        let failed = |errno: rustix::io::Errno| {
            Error::internal(format!("cannot write in {}: {errno}", self.home().display()))
        };
        let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        if let Ok(made) = rustix::fs::open(self.home(), flags | OFlags::TMPFILE, mode) {
            return Ok(made.into());
        }
        // Some filesystems make none without a name: it has one for a moment.
        let path = self.home().join(format!("incoming-{}", new_id()));
        let flags = flags | OFlags::CREATE | OFlags::EXCL;
        let made = rustix::fs::open(&path, flags, mode).map_err(failed)?;
        rustix::fs::unlink(&path).map_err(failed)?;
        Ok(made.into())
    }
}

fn open(engine: &Engine, caller: &Caller, sandbox: &str, path: &Path) -> Result<OpenFile> {
    let row = engine.find(caller, Some(sandbox))?;
    let files = Files::open(engine, caller, Verb::Diff, &row)?;
    let (path, entry) = files.existing(path)?;
    match entry.kind {
        EntryKind::File => {}
        EntryKind::Directory => {
            return Err(Error::invalid(format!("{path} is a directory"))
                .hint(format!("`GET /v1/sandboxes/{}/files?path={path}` lists it", row.name)));
        }
        _ => return Err(Error::invalid(format!("{path} is no regular file"))),
    }
    let file = files.view.open_file(&path)?;
    let size_bytes = file.metadata().map_or(entry.size, |meta| meta.len());
    let mut body = record(caller, "copy", Some(&row));
    body.detail = json!({ "way": "out" });
    engine.store.transact_relaxed(|tx| {
        tx.touch_sandbox(row.id, now_ms())?;
        tx.append(body)
    })?;
    Ok(OpenFile { file, size_bytes })
}

fn list(
    engine: &Engine,
    caller: &Caller,
    sandbox: &str,
    path: &Path,
    after: Option<&str>,
    limit: usize,
) -> Result<FileList> {
    let row = engine.find(caller, Some(sandbox))?;
    let files = Files::open(engine, caller, Verb::Diff, &row)?;
    let (path, entry) = files.existing(path)?;
    if entry.kind != EntryKind::Directory {
        return Err(Error::invalid(format!("{path} is no directory"))
            .hint(format!("`GET /v1/sandboxes/{}/files/{path}` fetches it", row.name)));
    }
    let unreadable = |_| Error::invalid("`after` is `next` of the page before");
    let after = after.map(|text| Bytes::try_from(text.to_owned())).transpose();
    let after = after.map_err(unreadable)?.map(|bytes| bytes.0);
    let mut shown = Vec::new();
    for found in files.view.read_dir(&path)? {
        let at = path.join(&found.name)?;
        let is_next = after.as_ref().is_none_or(|after| found.name > *after);
        if is_next && !files.is_hidden(&at) && files.is_ours(&at, &found.entry) {
            shown.push(found);
        }
    }
    let more = shown.len() > limit;
    shown.truncate(limit);
    let next = shown.last().filter(|_| more).map(|found| Bytes(found.name.clone()).into());
    Ok(FileList {
        path: path.to_string(),
        entries: shown.into_iter().map(entry_of).collect(),
        next,
    })
}

fn entry_of(found: DirEntry) -> FileEntry {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    FileEntry {
        name: text(found.name),
        kind: found.entry.kind,
        size_bytes: found.entry.size,
        mode: found.entry.mode,
        modified_ms: u64::try_from(found.entry.mtime_ns / 1_000_000).unwrap_or(0),
        target: found.entry.target.map(text),
    }
}

fn put(
    engine: &Engine,
    caller: &Caller,
    sandbox: &str,
    path: &Path,
    mut content: File,
    executable: bool,
) -> Result<FileReply> {
    let row = engine.find(caller, Some(sandbox))?;
    let size_bytes = content.metadata().map_or(0, |meta| meta.len());
    rewind(&mut content)?;
    writing(engine, caller, &row, |files| {
        let (path, there) = files.find(path)?;
        if there.as_ref().is_some_and(|entry| entry.kind != EntryKind::File) {
            return Err(Error::invalid(format!("{path} is there and no regular file"))
                .hint("delete it first, or choose another name"));
        }
        let (shown, created) = (path.to_string(), there.is_none());
        let content = Box::new(content.take(size_bytes));
        let edit = Edit::Put(NewFile { path, content, size_bytes, executable });
        Ok((edit, FileReply { path: shown, size_bytes, created, deleted: false }))
    })
}

fn delete(
    engine: &Engine,
    caller: &Caller,
    sandbox: &str,
    path: &Path,
    recursive: bool,
) -> Result<FileReply> {
    let row = engine.find(caller, Some(sandbox))?;
    writing(engine, caller, &row, |files| {
        let (path, entry) = files.must_be(files.find_itself(path)?)?;
        if entry.kind == EntryKind::Directory && !recursive {
            return Err(Error::invalid(format!("{path} is a directory"))
                .hint("`?recursive=true` deletes it with all that is in it"));
        }
        let shown = path.to_string();
        let reply = FileReply { path: shown, size_bytes: 0, created: false, deleted: true };
        Ok((Edit::Delete(path), reply))
    })
}

fn rewind(file: &mut File) -> Result<()> {
    file.seek(SeekFrom::Start(0))
        .map(|_| ())
        .map_err(|error| Error::internal(format!("cannot read what was sent: {error}")))
}
