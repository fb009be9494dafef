//! `export`: a sandbox's changes as one file that other machines can read.
//!
//! A tar archive, compressed with zstd: first `manifest.json`, then, if so
//! asked, what came before (`history.rs`), then every changed file, directory,
//! link and fifo below `tree/`. Deletions stand in
//! the manifest only, and so do sockets and devices, which mean nothing
//! elsewhere. Nothing of the host is in it but what was changed, and digests
//! of what stood there before: by these an import knows later edits.

use super::history::{self, Past};
use crate::apply::Bytes;
use crate::base::{self, Held};
use crate::{Caller, Engine, record};
use fractal_jail::layer::{Attributes, View};
use fractal_model::{ArchiveReply, Change, Code, EntryKind, Error, Mount, Policy, Result};
use fractal_store::SandboxRow;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Version of the archive's shape. 2 tells what the changes were made on; one
/// with snapshots is a 3, so that others stay readable everywhere.
pub const FORMAT: u32 = 3;
const FORMAT_WITHOUT_HISTORY: u32 = 2;
pub const MANIFEST: &str = "manifest.json";

/// Where the present is.
pub const TREE: &str = "tree/";

/// Start of the names of records that hold attributes.
pub const NOTED: &str = "SCHILY.xattr.";

/// The first entry of an archive.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub name: String,
    pub template: String,
    pub policy: Policy,
    pub mounts: Vec<Mount>,
    pub changes: Vec<Change>,
    /// What stood where something changed, where that is known.
    #[serde(default)]
    pub base: Vec<Held>,
    /// What came before, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Past>,
}

pub fn export(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    to: &Path,
    history: bool,
) -> Result<ArchiveReply> {
    engine.refuse_host_path(caller, "export")?;
    #[cfg(feature = "virtual")]
    if let Some(form) = super::tree::Form::to(to) {
        if history {
            return Err(Error::invalid("only an archive of fractal's own holds snapshots")
                .hint("give the file another ending: `-o FILE.fractal`"));
        }
        return super::tree::export(engine, caller, selector, to, form);
    }
    let target = caller.directory.join(to);
    let failed = |error: std::io::Error| {
        Error::internal(format!("cannot write {}: {error}", target.display()))
    };
    let temporary = target.with_extension(format!("incoming-{}", std::process::id()));
    // Found before anything is made.
    let row = engine.find(caller, selector)?;
    let written = File::create(&temporary).map_err(failed).and_then(|mut file| {
        let reply = pack(engine, caller, &row, history, &mut file)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&temporary, &target).map_err(failed)?;
        Ok(reply)
    });
    match written {
        Ok(reply) => note(engine, caller, &row, reply),
        Err(error) => {
            let _ = std::fs::remove_file(&temporary);
            Err(error)
        }
    }
}

/// The same for a door, into what it writes to.
#[cfg(feature = "tools")]
pub fn export_into(
    engine: &Engine,
    caller: &Caller,
    selector: &str,
    history: bool,
    out: &mut dyn Write,
) -> Result<ArchiveReply> {
    let row = engine.find(caller, Some(selector))?;
    let reply = pack(engine, caller, &row, history, out)?;
    note(engine, caller, &row, reply)
}

fn pack(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    history: bool,
    out: &mut dyn Write,
) -> Result<ArchiveReply> {
    let cancel = &caller.cancel;
    let (views, changes) = super::diff::changes_while(engine, row, None, cancel)?;
    let past = if history { history::of(engine, row, cancel)? } else { Vec::new() };
    let (history, mut shows): (Vec<Past>, Vec<View>) = past.into_iter().unzip();
    shows.push(views.top());
    let manifest = Manifest {
        format: if history.is_empty() { FORMAT_WITHOUT_HISTORY } else { FORMAT },
        name: row.name.clone(),
        template: row.template.clone(),
        policy: row.policy.clone(),
        mounts: row.mounts.clone(),
        base: base::held(engine, row, &views, &history::union(&changes, &history))?,
        changes,
        history,
    };
    let snapshots = manifest.history.len() as u64;
    let mut reply =
        ArchiveReply { sandbox: row.name.clone(), snapshots, ..ArchiveReply::default() };
    write(out, &manifest, &shows, &mut reply)?;
    Ok(reply)
}

fn note(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    reply: ArchiveReply,
) -> Result<ArchiveReply> {
    let mut body = record(caller, "export", Some(row));
    body.detail = json!({
        "entries": reply.entries,
        "bytes": reply.bytes,
        "snapshots": reply.snapshots,
        "left_out": reply.left_out,
    });
    engine.store.transact(|tx| tx.append(body))?;
    Ok(reply)
}

fn failed(error: std::io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::FileTooLarge | ErrorKind::StorageFull => Code::Limit,
        _ => Code::Internal,
    };
    Error::new(code, format!("cannot write the archive: {error}"))
}

/// Everything; `shows` are the views of the snapshots, and last of the present.
fn write(
    out: &mut dyn Write,
    manifest: &Manifest,
    shows: &[View],
    reply: &mut ArchiveReply,
) -> Result<()> {
    const LEVEL: i32 = 3;
    let zstd = zstd::Encoder::new(out, LEVEL).map_err(failed)?;
    let mut tar = tar::Builder::new(zstd);
    let text =
        serde_json::to_vec_pretty(manifest).map_err(|error| Error::internal(error.to_string()))?;
    let mut header = header(tar::EntryType::Regular, 0o644, text.len() as u64, (0, 0));
    tar.append_data(&mut header, MANIFEST, text.as_slice()).map_err(failed)?;
    let past = manifest.history.iter().enumerate();
    let past = past.map(|(number, past)| (history::folder(number), &past.changes));
    let all = past.chain([(TREE.to_owned(), &manifest.changes)]);
    for ((folder, changes), view) in all.zip(shows) {
        append(&mut tar, &folder, changes, view, reply)?;
    }
    let out = tar.into_inner().and_then(zstd::Encoder::finish).map_err(failed)?;
    out.flush().map_err(failed)
}

/// What some changes left, as entries in a folder.
fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    folder: &str,
    changes: &[Change],
    view: &View,
    reply: &mut ArchiveReply,
) -> Result<()> {
    for change in changes {
        let Some(entry) = view.lookup(&change.path)? else { continue };
        let mut name = folder.as_bytes().to_vec();
        name.extend_from_slice(change.path.relative());
        let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(name.as_slice());
        let owner = (entry.uid, entry.gid);
        let noted = view.attributes(&change.path)?;
        if matches!(entry.kind, EntryKind::File | EntryKind::Directory) && !noted.is_empty() {
            append_noted(tar, &noted).map_err(failed)?;
        }
        match entry.kind {
            EntryKind::File => {
                let file = view.open_file(&change.path)?;
                // A file that grows meanwhile must not overrun its header.
                let size = entry.size;
                let mut header = self::header(tar::EntryType::Regular, entry.mode, size, owner);
                let exact = Exact { file, left: size, view };
                tar.append_data(&mut header, Path::new(name), exact).map_err(failed)?;
                reply.bytes += size;
            }
            EntryKind::Directory => {
                let mut header = self::header(tar::EntryType::Directory, entry.mode, 0, owner);
                tar.append_data(&mut header, Path::new(name), std::io::empty()).map_err(failed)?;
            }
            EntryKind::Symlink => {
                let target = entry.target.unwrap_or_default();
                let target: &std::ffi::OsStr =
                    std::os::unix::ffi::OsStrExt::from_bytes(target.as_slice());
                let mut header = self::header(tar::EntryType::Symlink, 0o777, 0, owner);
                tar.append_link(&mut header, Path::new(name), Path::new(target)).map_err(failed)?;
            }
            EntryKind::Special if entry.is_fifo() => {
                let mut header = self::header(tar::EntryType::Fifo, entry.mode, 0, owner);
                tar.append_data(&mut header, Path::new(name), std::io::empty()).map_err(failed)?;
            }
            EntryKind::Special => {
                reply.left_out += 1;
                continue;
            }
        }
        reply.entries += 1;
    }
    Ok(())
}

/// What programs noted about the next entry, as other archivers write it.
fn append_noted<W: Write>(tar: &mut tar::Builder<W>, noted: &Attributes) -> std::io::Result<()> {
    let mut list = Vec::new();
    for (name, value) in noted.iter() {
        // A record's name is text and ends at the first sign of equality.
        let name = String::from(Bytes(name.to_vec())).replace('=', "%3d");
        list.push((format!("{NOTED}{name}"), value));
    }
    tar.append_pax_extensions(list.iter().map(|(name, value)| (name.as_str(), *value)))
}

fn header(kind: tar::EntryType, mode: u32, size: u64, (uid, gid): (u32, u32)) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(u64::from(uid));
    header.set_gid(u64::from(gid));
    header.set_mtime(0);
    header
}

/// Gives exactly as many bytes as were promised: cut, or filled with zeros.
struct Exact<'v> {
    file: File,
    left: u64,
    view: &'v View,
}

impl std::io::Read for Exact<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // A size is a claim, and reading holes takes time as well.
        self.view.check_wanted().map_err(std::io::Error::other)?;
        let room = (buffer.len() as u64).min(self.left) as usize;
        let mut count = std::io::Read::read(&mut self.file, &mut buffer[..room])?;
        if count == 0 && room > 0 {
            buffer[..room].fill(0);
            count = room;
        }
        self.left -= count as u64;
        Ok(count)
    }
}
