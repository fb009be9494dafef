//! `cp`: files into a sandbox, and out of it.

use crate::view::path_of;
use crate::{Caller, Engine, base, record, stages};
use fractal_jail::layer::{Bounds, CopyOptions, Layer, Step, View, Writer, copy_out};
use fractal_model::{ArchiveReply, Code, EntryKind, Error, Result, SandboxPath, Tier};
use fractal_store::{Reads, SandboxRow, now_ms};
use serde_json::json;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// One side of a copy.
enum Side {
    Host(PathBuf),
    Sandbox(Box<SandboxRow>, SandboxPath),
}

pub fn copy(engine: &Engine, caller: &Caller, from: &str, to: &str) -> Result<ArchiveReply> {
    // One of both sides is always the host's.
    engine.refuse_host_path(caller, "copy")?;
    match (side(engine, caller, from)?, side(engine, caller, to)?) {
        (Side::Sandbox(row, path), Side::Host(host)) => out(engine, caller, &row, &path, &host),
        (Side::Host(host), Side::Sandbox(row, path)) => {
            stages::refuse_write(&row, "copy into")?;
            into(engine, caller, &row, &host, &path)
        }
        _ => Err(Error::invalid("exactly one side of a copy names a sandbox")
            .hint("fractal cp FILE SANDBOX:/path, or fractal cp SANDBOX:/path FILE")),
    }
}

/// `name:/path` is inside a sandbox; everything else is a host path.
fn side(engine: &Engine, caller: &Caller, text: &str) -> Result<Side> {
    let host = || Ok(Side::Host(caller.directory.join(text)));
    let Some((name, path)) = text.split_once(':') else { return host() };
    if name.contains('/') || name.is_empty() {
        return host();
    }
    let row = engine.find(caller, Some(name))?;
    let inside = row.directory.join(path);
    Ok(Side::Sandbox(Box::new(row), path_of(&inside)?))
}

fn out(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    from: &SandboxPath,
    to: &Path,
) -> Result<ArchiveReply> {
    let view = engine.views(row, row.base)?.top();
    if view.lookup(from)?.is_none() {
        return Err(Error::not_found(format!("`{}` has no {from}", row.name)));
    }
    // Like cp: into an existing directory, or under a new name.
    let last = from.components().last().unwrap_or(b"root").to_vec();
    let last: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(last.as_slice());
    let (dir, name) = if to.is_dir() {
        (to.to_path_buf(), last.to_owned())
    } else {
        let name = to
            .file_name()
            .ok_or_else(|| Error::invalid(format!("{} names no file", to.display())))?;
        (to.parent().unwrap_or(Path::new(".")).to_path_buf(), name.to_owned())
    };
    let opened = std::fs::File::open(&dir)
        .map_err(|error| Error::not_found(format!("cannot open {}: {error}", dir.display())))?;
    let options = CopyOptions { keep_owner: false, ..CopyOptions::default() };
    let copied = copy_out(&view, from, opened.as_fd(), &name, &options)?;
    note(engine, caller, row, "out")?;
    let entries = copied.files + copied.directories + copied.symlinks;
    if copied.truncated || copied.unreadable > 0 {
        return Err(Error::new(Code::Limit, format!("only {entries} entries were copied"))
            .hint("the rest is unreadable, too deep or too large"));
    }
    Ok(ArchiveReply {
        sandbox: row.name.clone(),
        entries,
        bytes: copied.bytes,
        left_out: copied.skipped,
        ..ArchiveReply::default()
    })
}

fn into(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    from: &Path,
    to: &SandboxPath,
) -> Result<ArchiveReply> {
    engine.require_idle(row, "copy into")?;
    let missing = |error: std::io::Error| {
        Error::not_found(format!("cannot read {}: {error}", from.display()))
    };
    let meta = std::fs::symlink_metadata(from).map_err(missing)?;
    let below = engine.store.layer(row.top)?.and_then(|top| top.below);
    let below = engine.views(row, below)?.common;
    let top = engine.views(row, row.base)?.top();
    let is_dir = top.lookup(to)?.is_some_and(|entry| entry.kind == EntryKind::Directory);
    let name = from.file_name().map(|name| name.as_encoded_bytes().to_vec());
    let target = match name {
        Some(name) if is_dir => to.join(name)?,
        _ => to.clone(),
    };
    let label = format!("cp-{}", std::process::id());
    engine.store.dirty_layer(row.top, &label)?;
    let writer =
        Writer::open(&engine.store.layer_tree(row.top), &below, engine.tier()? >= Tier::Masked)?;
    let mut reply = ArchiveReply { sandbox: row.name.clone(), ..ArchiveReply::default() };
    // The source is read like a layer: without following links inside it.
    let parent =
        from.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let host = View { host: Some(Layer::open(parent)?), ..View::default() };
    let root = match from.file_name() {
        Some(name) => SandboxPath::root().join(name.as_encoded_bytes())?,
        None => return Err(Error::invalid(format!("{} names no file", from.display()))),
    };
    // All of it is known before the first byte is written.
    let list = if meta.is_dir() { listed(&host, &root, from)? } else { Vec::new() };
    put(&writer, &host, &root, &target, &mut reply)?;
    let mut put_at = vec![target.clone()];
    for path in list {
        let relative = &path.relative()[root.relative().len()..];
        let to = SandboxPath::parse([target.relative(), relative].concat())?;
        put(&writer, &host, &path, &to, &mut reply)?;
        put_at.push(to);
    }
    base::note_injected(engine, row, &engine.views(row, row.base)?.top(), &put_at)?;
    note(engine, caller, row, "in")?;
    Ok(reply)
}

/// Everything below a directory of the host, or an error: a copy that lacks
/// something would be taken for the whole.
fn listed(host: &View, root: &SandboxPath, from: &Path) -> Result<Vec<SandboxPath>> {
    let mut list = Vec::new();
    let walked = host.walk(root, &Bounds::default(), |path, _| {
        list.push(path.clone());
        Step::Continue
    })?;
    if walked.truncated {
        let message = format!("{} holds too much, or nests too deep, to be copied", from.display());
        return Err(Error::new(Code::Limit, message).hint("copy parts of it; nothing was copied"));
    }
    if walked.unreadable > 0 {
        let message = format!("{} entries of {} cannot be read", walked.unreadable, from.display());
        return Err(Error::denied(message).hint("make them readable; nothing was copied"));
    }
    Ok(list)
}

/// Puts one entry of a view at a path of the layer.
pub fn put(
    writer: &Writer<'_>,
    view: &View,
    from: &SandboxPath,
    to: &SandboxPath,
    reply: &mut ArchiveReply,
) -> Result<()> {
    let Some(entry) = view.lookup(from)? else { return Ok(()) };
    let owner = (entry.uid, entry.gid);
    match entry.kind {
        EntryKind::File => {
            let mut file = view.open_file(from)?;
            let noted = view.attributes(from)?;
            reply.bytes += writer.file(to, entry.mode, owner, &noted, &mut file)?;
        }
        EntryKind::Directory => writer.directory(to, entry.mode, owner)?,
        EntryKind::Symlink => writer.symlink(to, entry.target.as_deref().unwrap_or_default())?,
        EntryKind::Special => {
            reply.left_out += 1;
            return Ok(());
        }
    }
    reply.entries += 1;
    Ok(())
}

fn note(engine: &Engine, caller: &Caller, row: &SandboxRow, way: &str) -> Result<()> {
    let mut body = record(caller, "copy", Some(row));
    body.detail = json!({ "way": way });
    engine.store.transact(|tx| {
        tx.touch_sandbox(row.id, now_ms())?;
        tx.append(body)
    })?;
    Ok(())
}
