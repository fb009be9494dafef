//! `export` and `import` of whole trees, in forms that other tools read: the
//! project as a sandbox shows it, as a directory, tar, zip or JSON.
//!
//! What comes in may be hostile; `fractal-fs` reads it as such, completely, in
//! memory, before anything is written.

use super::import::named_row;
use super::run::place::new_policy;
use crate::landing::land;
use crate::memory_view::Project;
use crate::template::Template;
use crate::view::path_of;
use crate::{Caller, Engine, base, insert_layer, record};
use fractal_fs::{Archive, ArchiveBounds, FsError, Kind, Limits, Vfs};
use fractal_jail::layer::{Bounds, Marks, Writer};
use fractal_model::{ArchiveReply, Code, Error, Result, Run, SandboxInfo, SandboxPath};
use fractal_store::new_id;
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

/// What a tree on its way may hold.
const BYTES_MAX: u64 = 2 << 30;

/// How a tree is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Directory,
    Tar,
    Zip,
    Json,
}

impl Form {
    /// By the ending of a path that is to be written; `None` is our own archive
    /// of changes.
    pub fn to(path: &Path) -> Option<Form> {
        let name = path.as_os_str().as_encoded_bytes();
        if name.ends_with(b"/") {
            return Some(Form::Directory);
        }
        match path.extension()?.to_str()? {
            "tar" => Some(Form::Tar),
            "zip" => Some(Form::Zip),
            "json" => Some(Form::Json),
            _ => None,
        }
    }

    /// By what is to be read.
    pub fn from(path: &Path) -> Option<Form> {
        if path.is_dir() {
            return Some(Form::Directory);
        }
        let name = path.file_name()?.to_str()?;
        match name.ends_with(".tar.gz") || name.ends_with(".tgz") {
            true => Some(Form::Tar),
            false => Form::to(path),
        }
    }
}

fn limits() -> Limits {
    Limits { bytes_max: BYTES_MAX, ..Limits::default() }
}

/// Writes the project as the sandbox shows it.
pub fn export(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    to: &Path,
    form: Form,
) -> Result<ArchiveReply> {
    let row = engine.find(caller, selector)?;
    let target = caller.directory.join(to);
    let view = engine.views(&row, row.base)?.top();
    let vfs = Vfs::over(Arc::new(Project::new(view, &row.directory)?), limits());
    let at = path_of(&row.directory)?;
    match form {
        Form::Directory => vfs.export_dir(&at, &target)?,
        form => into_file(&target, |file| match form {
            Form::Zip => vfs.export_zip(&at, file).map_err(Error::from),
            Form::Json => {
                let text = vfs.export_json(&at)?;
                file.write_all(text.as_bytes()).map_err(|error| cannot_write(&target, &error))
            }
            _ => vfs.export_tar(&at, file).map_err(Error::from),
        })?,
    }
    let (entries, bytes) = count(&vfs, &at)?;
    let mut body = record(caller, "export", Some(&row));
    body.detail = json!({ "tree": format!("{form:?}").to_lowercase(), "entries": entries });
    engine.store.transact(|tx| tx.append(body))?;
    Ok(ArchiveReply { sandbox: row.name, entries, bytes, ..ArchiveReply::default() })
}

/// A file that is there completely or not at all.
fn into_file(target: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let temporary = target.with_extension(format!("incoming-{}", std::process::id()));
    let failed = |error| cannot_write(target, &error);
    let written = File::create(&temporary).map_err(failed).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush().map_err(failed)?;
        std::fs::rename(&temporary, target).map_err(failed)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn cannot_write(target: &Path, error: &std::io::Error) -> Error {
    Error::internal(format!("cannot write {}: {error}", target.display()))
        .hint("name a file in a directory that you can write")
}

fn count(vfs: &Vfs, at: &SandboxPath) -> Result<(u64, u64)> {
    let (mut entries, mut bytes) = (0, 0);
    let mut dirs = vec![crate::landing::shown(at)];
    while let Some(dir) = dirs.pop() {
        for (name, stat) in vfs.list_stat(&dir)? {
            entries += 1;
            bytes += stat.size;
            if stat.kind == fractal_model::EntryKind::Directory {
                dirs.push([&dir[..], b"/", name.bytes()].concat());
            }
        }
    }
    Ok((entries, bytes))
}

/// Makes a sandbox of this directory that holds a tree on top of what is there.
pub fn import(
    engine: &Engine,
    caller: &Caller,
    from: &Path,
    name: Option<&str>,
    form: Form,
) -> Result<SandboxInfo> {
    let path = caller.directory.join(from);
    let template = Template::find(caller, "clone")?;
    let policy = new_policy(caller, &Run::default(), &template)?;
    let row = named_row(engine, caller, name, None, &policy)?;
    let at = path_of(&row.directory)?;
    let vfs = Vfs::new(limits());
    read(&vfs, &at, &path, form)?;
    engine.store.new_layer_dir(row.top)?;
    let filled = fill(engine, caller, &row, &vfs, &at);
    if let Err(error) = filled {
        let _ = engine.store.discard_layer(row.top);
        let _ = engine.store.discard_base(row.id);
        return Err(error);
    }
    super::list::info(engine, caller, &row)
}

fn read(vfs: &Vfs, at: &SandboxPath, path: &Path, form: Form) -> Result<()> {
    let unreadable = |error: std::io::Error| {
        Error::not_found(format!("cannot read {}: {error}", path.display()))
            .hint("name a directory, or a file that ends in .tar, .tar.gz, .zip or .json")
    };
    let broken = |error: FsError| {
        Error::invalid(format!("{}: {error}", path.display()))
            .hint("nothing was taken over: mend it, and import it again")
    };
    match form {
        Form::Directory => vfs.import_dir(at, path).map_err(broken)?,
        Form::Json => {
            let text = std::fs::read(path).map_err(unreadable)?;
            vfs.import_json(at, &text).map_err(broken)?
        }
        Form::Tar | Form::Zip => {
            File::open(path).map_err(unreadable)?;
            let archive = Archive::open(path, ArchiveBounds::default()).map_err(|fault| {
                let why = fault.reason.as_deref().unwrap_or("it cannot be read");
                Error::invalid(format!("{}: {why}", path.display())).hint(hint(fault.kind))
            })?;
            vfs.import_archive(at, &archive).map_err(broken)?
        }
    };
    Ok(())
}

/// What to do about an archive that is not taken.
fn hint(kind: Kind) -> &'static str {
    match kind {
        Kind::Invalid | Kind::NameTooLong => {
            "nothing was taken over: it must be a tar or zip whose names stay below one directory, \
             as `tar -C DIR -cf FILE .` makes them"
        }
        Kind::TooLarge => "nothing was taken over: unpack it, and import the parts you need",
        Kind::Denied => "nothing was taken over: make the file readable for you",
        _ => "it was cut or is no archive: `file` tells what it is",
    }
}

fn fill(
    engine: &Engine,
    caller: &Caller,
    row: &fractal_store::SandboxRow,
    vfs: &Vfs,
    at: &SandboxPath,
) -> Result<()> {
    let below = engine.host_view(row, Vec::new())?;
    let trusted = engine.marks() == Marks::Trusted;
    let writer = Writer::open(&engine.store.layer_tree(row.top), &below, trusted)?;
    let mut changes = vfs.changes()?;
    // The way to the project is there already.
    changes.retain(|change| change.path.is_within(at) && change.path != *at);
    land(vfs, &writer, &below, &changes, |change| {
        let there = below.lookup(&change.path)?;
        Ok(there.is_some_and(|entry| entry.kind != change.entry))
    })?;
    let mut body = record(caller, "import", Some(row));
    body.detail = json!({ "changes": changes.len() });
    engine.store.dirty_layer(row.top, "import")?;
    engine.store.sync_layer(row.top)?;
    engine.store.transact(|tx| {
        insert_layer(tx, row.top, None)?;
        tx.insert_sandbox(row)?;
        tx.append(body)
    })?;
    let changes = engine.views(row, row.base)?.changes(&Bounds::default())?;
    if changes.truncated {
        return Err(Error::new(Code::Limit, "it holds more than a sandbox can list"));
    }
    // Without notes a promotion is more careful, no more.
    let _ = base::note(engine, row, new_id(), &changes);
    Ok(())
}
