//! `import`: a sandbox from an exported archive, on today's reality.
//!
//! The archive may come from anywhere, so it is read as hostile: paths are
//! parsed, links never followed, sizes bounded, devices refused. What it says
//! its changes were made on is noted, so that a promotion sees edits made here
//! since; reality as it stands was never its base.

use super::export::{FORMAT, MANIFEST, Manifest, NOTED};
use crate::apply::Bytes;
use crate::{Caller, Engine, base, insert_layer, names, record, stale};
use fractal_jail::layer::{Attributes, Writer};
use fractal_model::{
    ChangeKind, Code, Error, Name, Policy, Result, SandboxInfo, SandboxPath, Tier,
};
use fractal_store::{Reads, SandboxRow, new_id, now_ms};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

const MANIFEST_BYTES_MAX: u64 = 256 << 20;
const ENTRIES_MAX: u64 = 2_000_000;
const BYTES_MAX: u64 = 64 << 30;

pub fn import(
    engine: &Engine,
    caller: &Caller,
    from: &Path,
    name: Option<&str>,
) -> Result<SandboxInfo> {
    engine.refuse_host_path(caller, "import")?;
    let path = caller.directory.join(from);
    #[cfg(feature = "virtual")]
    if let Some(form) = super::tree::Form::from(&path) {
        return super::tree::import(engine, caller, from, name, form);
    }
    let file = File::open(&path).map_err(|error| {
        Error::not_found(format!("cannot open {}: {error}", path.display()))
            .hint("make one with `fractal export SANDBOX -o FILE`")
    })?;
    let bad = |error: std::io::Error| {
        Error::invalid(format!("{} is no archive of fractal's: {error}", path.display()))
    };
    let mut archive = tar::Archive::new(zstd::Decoder::new(file).map_err(bad)?);
    let mut entries = archive.entries().map_err(bad)?;
    let first = entries.next().transpose().map_err(bad)?;
    let manifest = read_manifest(first, &path)?;
    let row = named_row(engine, caller, name, Some(&manifest.name), &manifest.policy)?;
    engine.store.new_layer_dir(row.top)?;
    let filled = fill(engine, &row, &manifest, entries, &path).and_then(|()| {
        base::note_imported(engine, &row, &manifest.changes, &manifest.base)?;
        let mut body = record(caller, "import", Some(&row));
        body.detail = json!({ "changes": manifest.changes.len() });
        engine.store.dirty_layer(row.top, "import")?;
        engine.store.sync_layer(row.top)?;
        engine.store.transact(|tx| {
            insert_layer(tx, row.top, None)?;
            tx.insert_sandbox(&row)?;
            tx.append(body)
        })?;
        Ok(())
    });
    if let Err(error) = filled {
        let _ = engine.store.discard_layer(row.top);
        let _ = engine.store.discard_base(row.id);
        return Err(error);
    }
    super::list::info(engine, caller, &row)
}

fn read_manifest<R: Read>(entry: Option<tar::Entry<'_, R>>, path: &Path) -> Result<Manifest> {
    let bad =
        |why: &str| Error::invalid(format!("{} is no archive of fractal's: {why}", path.display()));
    let entry = entry.ok_or_else(|| bad("it is empty"))?;
    if entry.path().map_or(true, |name| name.as_os_str() != MANIFEST) {
        return Err(bad("it does not begin with a manifest"));
    }
    let mut text = Vec::new();
    entry
        .take(MANIFEST_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|error| bad(&error.to_string()))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| bad(&error.to_string()))?;
    if manifest.format > FORMAT {
        return Err(Error::new(
            Code::Unsupported,
            format!("{} was made by a newer fractal", path.display()),
        )
        .hint("upgrade fractal"));
    }
    Ok(manifest)
}

/// A sandbox under the name asked for; without one, under its own if that is
/// free.
pub fn named_row(
    engine: &Engine,
    caller: &Caller,
    name: Option<&str>,
    own: Option<&str>,
    policy: &Policy,
) -> Result<SandboxRow> {
    engine.require_new_within(caller, "clone")?;
    let id = new_id();
    let wanted = match name.or(own) {
        Some(wanted) => Name::parse(wanted)?.to_string(),
        None => names::for_id(id),
    };
    let taken = engine.store.sandbox_named(caller.reach.home(), &wanted)?.is_some();
    let name = match (taken, name) {
        (false, _) => wanted,
        (true, None) => names::for_id(id),
        (true, Some(_)) => {
            return Err(Error::new(Code::Exists, format!("there is already a sandbox `{wanted}`"))
                .hint(format!(
                    "choose another `--name`, or forget it with `fractal drop {wanted}`"
                )));
        }
    };
    let now = now_ms();
    Ok(SandboxRow {
        id,
        name,
        parent: None,
        base: None,
        top: new_id(),
        // An archive cannot bring rights or host paths with it.
        policy: caller.policy.meet(policy),
        template: "clone".to_owned(),
        mounts: Vec::new(),
        directory: caller.directory.clone(),
        created_ms: now,
        touched_ms: now,
        ttl_ms: Some(caller.config.ttl_ms()?),
        fork_ctime_ns: stale::file_clock_ns(engine.home()),
        epoch: 0,
        tenant: caller.reach.home().to_owned(),
    })
}

fn fill<R: Read>(
    engine: &Engine,
    row: &SandboxRow,
    manifest: &Manifest,
    entries: tar::Entries<'_, R>,
    path: &Path,
) -> Result<()> {
    let bad = |why: String| Error::invalid(format!("{}: {why}", path.display()));
    let below = engine.host_view(row, Vec::new())?;
    let writer =
        Writer::open(&engine.store.layer_tree(row.top), &below, engine.tier()? >= Tier::Masked)?;
    let deleted: BTreeSet<&SandboxPath> = (manifest.changes.iter())
        .filter(|change| change.kind == ChangeKind::Deleted)
        .map(|change| &change.path)
        .collect();
    for path in &deleted {
        // Entries below a deleted directory are gone with it.
        if path.parent().is_none_or(|parent| !deleted.contains(&parent)) {
            writer.delete(path)?;
        }
    }
    let (mut count, mut bytes) = (0u64, 0u64);
    let mut directories = BTreeMap::new();
    for entry in entries {
        let mut entry = entry.map_err(|error| bad(error.to_string()))?;
        count += 1;
        bytes = bytes.saturating_add(entry.size());
        if count > ENTRIES_MAX || bytes > BYTES_MAX {
            return Err(Error::new(
                Code::Limit,
                format!("{} is larger than can be imported", path.display()),
            ));
        }
        put(&writer, &mut entry, &mut directories).map_err(|error| bad(error.message))?;
    }
    // Deepest first: a mode may forbid to go further down.
    for (path, directory) in directories.iter().rev() {
        writer.dress(path, directory.mode, directory.owner, &directory.noted)?;
    }
    Ok(())
}

/// A directory whose attributes are set when all is in place.
struct Directory {
    mode: u32,
    owner: (u32, u32),
    noted: Attributes,
}

/// What programs noted about an entry.
fn noted<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Attributes> {
    let bad = |error: std::io::Error| Error::invalid(error.to_string());
    let mut list = Vec::new();
    for record in entry.pax_extensions().map_err(bad)?.into_iter().flatten() {
        let record = record.map_err(bad)?;
        let name = record.key().ok().and_then(|key| key.strip_prefix(NOTED));
        if let Some(name) = name {
            let name = Bytes::try_from(name.to_owned()).map_err(Error::invalid)?;
            list.push((name.0, record.value_bytes().to_vec()));
        }
    }
    Attributes::new(list).map_err(|_| Error::invalid("an entry has too many attributes"))
}

fn put<R: Read>(
    writer: &Writer<'_>,
    entry: &mut tar::Entry<'_, R>,
    directories: &mut BTreeMap<SandboxPath, Directory>,
) -> Result<()> {
    let name = entry.path_bytes().into_owned();
    let inside = name
        .strip_prefix(b"tree/")
        .ok_or_else(|| Error::invalid("an entry lies outside of tree/"))?;
    let path = SandboxPath::parse(inside)?;
    let noted = noted(entry)?;
    let header = entry.header();
    let id =
        |value: std::io::Result<u64>| value.ok().and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
    let (mode, owner) = (header.mode().unwrap_or(0o644), (id(header.uid()), id(header.gid())));
    match header.entry_type() {
        tar::EntryType::Regular => writer.file(&path, mode, owner, &noted, entry).map(|_| ())?,
        tar::EntryType::Directory => {
            writer.directory(&path, 0o700, owner)?;
            directories.insert(path, Directory { mode, owner, noted });
        }
        tar::EntryType::Fifo => writer.fifo(&path, mode, owner)?,
        tar::EntryType::Symlink => {
            let target =
                entry.link_name_bytes().map(|target| target.into_owned()).unwrap_or_default();
            writer.symlink(&path, &target)?;
        }
        other => {
            return Err(Error::invalid(format!(
                "{path} is of a kind that is not imported: {other:?}"
            )));
        }
    }
    Ok(())
}
