//! `import`: a sandbox from an exported archive, on today's reality.
//!
//! The archive may come from anywhere, so it is read as hostile: paths are
//! parsed, links never followed, sizes bounded, devices refused. What it says
//! its changes were made on is noted, so that a promotion sees edits made here
//! since; reality as it stands was never its base.

use super::export::{FORMAT, MANIFEST, Manifest, NOTED, TREE};
use super::history::{self, Layers};
use crate::apply::Bytes;
use crate::{Caller, Engine, base, insert_layer, names, record, stale};
use fractal_jail::layer::{Attributes, View, Writer};
use fractal_model::{
    Change, ChangeKind, Code, Error, Id, Policy, Result, SandboxInfo, SandboxPath, Tier,
};
use fractal_store::{Reads, SandboxRow, new_id, now_ms};
use serde_json::json;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

const MANIFEST_BYTES_MAX: u64 = 256 << 20;
const ENTRIES_MAX: u64 = 2_000_000;
const BYTES_MAX: u64 = 64 << 30;
/// What stands before an entry's content: names, links, attributes.
const HEADER_BYTES_MAX: u64 = 4 << 20;
/// Memory that a hostile frame may ask for, as a power of two; export uses 21.
const WINDOW_LOG_MAX: u32 = 25;

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
    let source = Source { name: &path.display().to_string(), bounds: Bounds::default() };
    unpack(engine, caller, file, &source, name)
}

/// What is read, and how much of it.
pub struct Source<'a> {
    /// What it is called in errors.
    pub name: &'a str,
    pub bounds: Bounds,
}

/// How much an archive may hold.
pub struct Bounds {
    pub manifest_bytes: u64,
    pub content_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { manifest_bytes: MANIFEST_BYTES_MAX, content_bytes: BYTES_MAX }
    }
}

/// Makes a sandbox of an archive.
pub fn unpack(
    engine: &Engine,
    caller: &Caller,
    file: File,
    source: &Source<'_>,
    name: Option<&str>,
) -> Result<SandboxInfo> {
    let bad = |error: std::io::Error| {
        Error::invalid(format!("{} is no archive of fractal's: {error}", source.name))
    };
    let ration = Ration::default();
    let mut decoder = zstd::Decoder::new(file).map_err(bad)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(bad)?;
    let mut archive = tar::Archive::new(Rationed { inner: decoder, ration: ration.clone() });
    let mut entries = archive.entries().map_err(bad)?;
    ration.set(HEADER_BYTES_MAX);
    let first = entries.next().transpose().map_err(bad)?;
    ration.set(source.bounds.manifest_bytes);
    let manifest = read_manifest(first, source)?;
    let row = named_row(engine, caller, name, Some(&manifest.name), &manifest.policy)?;
    engine.store.new_layer_dir(row.top)?;
    let mut layers = Layers::default();
    let archive = Rationing { entries, ration, next: None };
    let filled = fill(engine, &row, &manifest, &mut layers, archive, source).and_then(|()| {
        let changed = history::union(&manifest.changes, &manifest.history);
        base::note_imported(engine, &row, &changed, &manifest.base)?;
        layers.mark(engine, &row);
        let mut body = record(caller, "import", Some(&row));
        let (changes, snapshots) = (manifest.changes.len(), manifest.history.len());
        body.detail = json!({ "changes": changes, "snapshots": snapshots });
        layers.sync(engine)?;
        engine.store.dirty_layer(row.top, "import")?;
        engine.store.sync_layer(row.top)?;
        engine.store.transact(|tx| {
            insert_layer(tx, row.top, None)?;
            tx.insert_sandbox(&row)?;
            layers.write(tx, &row, &manifest.history)?;
            tx.append(body)
        })?;
        Ok(())
    });
    if let Err(error) = filled {
        layers.discard(engine);
        let _ = engine.store.discard_layer(row.top);
        let _ = engine.store.discard_base(row.id);
        return Err(error);
    }
    super::list::info(engine, caller, &row)
}

fn read_manifest<R: Read>(
    entry: Option<tar::Entry<'_, R>>,
    source: &Source<'_>,
) -> Result<Manifest> {
    let bad =
        |why: &str| Error::invalid(format!("{} is no archive of fractal's: {why}", source.name));
    let entry = entry.ok_or_else(|| bad("it is empty"))?;
    if entry.path().map_or(true, |name| name.as_os_str() != MANIFEST) {
        return Err(bad("it does not begin with a manifest"));
    }
    let mut text = Vec::new();
    entry
        .take(source.bounds.manifest_bytes)
        .read_to_end(&mut text)
        .map_err(|error| bad(&error.to_string()))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| bad(&error.to_string()))?;
    if manifest.format > FORMAT {
        return Err(Error::new(
            Code::Unsupported,
            format!("{} was made by a newer fractal", source.name),
        )
        .hint("upgrade fractal"));
    }
    history::check(&manifest.history).map_err(|error| bad(&error.message))?;
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
        Some(wanted) => crate::names::read(wanted)?,
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

/// Writes the layers: those of the snapshots, then the top.
fn fill<R: Read>(
    engine: &Engine,
    row: &SandboxRow,
    manifest: &Manifest,
    layers: &mut Layers,
    archive: Rationing<'_, R>,
    source: &Source<'_>,
) -> Result<()> {
    let is_root = engine.tier()? >= Tier::Masked;
    let mut filling = Filling { engine, is_root, archive, source, entries: 0, bytes: 0 };
    for (number, past) in manifest.history.iter().enumerate() {
        let (layer, below) = layers.push(engine, row)?;
        filling.layer(layer, &below, &past.changes, &history::folder(number))?;
    }
    let below = engine.host_view(row, Vec::new())?;
    filling.layer(row.top, &below, &manifest.changes, TREE)?;
    match filling.archive.next() {
        None => Ok(()),
        Some(_) => Err(filling.bad("an entry lies outside of its folder, or in the wrong order")),
    }
}

/// An archive on its way into layers, and how much of it came already.
struct Filling<'a, 'b, R: Read> {
    engine: &'b Engine,
    is_root: bool,
    archive: Rationing<'a, R>,
    source: &'b Source<'b>,
    entries: u64,
    bytes: u64,
}

impl<R: Read> Filling<'_, '_, R> {
    fn bad(&self, why: &str) -> Error {
        Error::invalid(format!("{}: {why}", self.source.name))
    }

    /// Writes one layer from what was deleted and what stands in a folder.
    fn layer(&mut self, id: Id, below: &View, changes: &[Change], folder: &str) -> Result<()> {
        let writer = Writer::open(&self.engine.store.layer_tree(id), below, self.is_root)?;
        delete(&writer, changes)?;
        let mut directories = BTreeMap::new();
        while let Some(entry) = self.archive.next_in(folder.as_bytes()) {
            let mut entry = entry.map_err(|error| self.bad(&error.to_string()))?;
            self.entries += 1;
            self.bytes = self.bytes.saturating_add(entry.size());
            if self.entries > ENTRIES_MAX || self.bytes > self.source.bounds.content_bytes {
                let what = format!("{} is larger than can be imported", self.source.name);
                return Err(Error::new(Code::Limit, what));
            }
            put(&writer, &mut entry, folder.len(), &mut directories)
                .map_err(|error| self.bad(&error.message))?;
        }
        // Deepest first: a mode may forbid to go further down.
        for (path, directory) in directories.iter().rev() {
            writer.dress(path, directory.mode, directory.owner, &directory.noted)?;
        }
        Ok(())
    }
}

fn delete(writer: &Writer<'_>, changes: &[Change]) -> Result<()> {
    let deleted: BTreeSet<&SandboxPath> = (changes.iter())
        .filter(|change| change.kind == ChangeKind::Deleted)
        .map(|change| &change.path)
        .collect();
    for path in &deleted {
        // Entries below a deleted directory are gone with it.
        if path.parent().is_none_or(|parent| !deleted.contains(&parent)) {
            writer.delete(path)?;
        }
    }
    Ok(())
}

/// How many bytes may be read before somebody says how many more.
type Ration = Rc<Cell<u64>>;

/// A reader that stops when its ration is used up. The archive's reader takes
/// long names into memory whole, and a few bytes unpack to gigabytes of them.
struct Rationed<R> {
    inner: R,
    ration: Ration,
}

impl<R: Read> Read for Rationed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.ration.get();
        if left == 0 && !buffer.is_empty() {
            return Err(std::io::Error::other("an entry is longer than it says, or its name is"));
        }
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.inner.read(&mut buffer[..room])?;
        self.ration.set(left - count as u64);
        Ok(count)
    }
}

/// Entries, each with a ration for what stands before it and for its content.
struct Rationing<'a, R: Read> {
    entries: tar::Entries<'a, R>,
    ration: Ration,
    /// One that was read and belongs elsewhere.
    next: Option<std::io::Result<tar::Entry<'a, R>>>,
}

impl<'a, R: Read> Rationing<'a, R> {
    /// The next one if it lies in this folder.
    fn next_in(&mut self, folder: &[u8]) -> Option<std::io::Result<tar::Entry<'a, R>>> {
        let entry = self.next()?;
        match &entry {
            Ok(inside) if !inside.path_bytes().starts_with(folder) => {
                self.next = Some(entry);
                None
            }
            _ => Some(entry),
        }
    }

    fn next(&mut self) -> Option<std::io::Result<tar::Entry<'a, R>>> {
        if let Some(entry) = self.next.take() {
            return Some(entry);
        }
        // What is left of the entry before is read over.
        self.ration.set(self.ration.get().saturating_add(HEADER_BYTES_MAX));
        let entry = self.entries.next()?;
        if let Ok(entry) = &entry {
            self.ration.set(entry.size().saturating_add(HEADER_BYTES_MAX));
        }
        Some(entry)
    }
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
    folder_bytes: usize,
    directories: &mut BTreeMap<SandboxPath, Directory>,
) -> Result<()> {
    let path = SandboxPath::parse(&entry.path_bytes()[folder_bytes..])?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How many entries are read before something is refused.
    fn read(names: &[usize]) -> (usize, bool) {
        let mut tar = tar::Builder::new(Vec::new());
        for length in names {
            let mut header = tar::Header::new_gnu();
            header.set_size(3);
            tar.append_data(&mut header, "x".repeat(*length), &b"abc"[..]).expect("in memory");
        }
        let bytes = tar.into_inner().expect("in memory");
        let ration = Ration::default();
        let mut archive =
            tar::Archive::new(Rationed { inner: bytes.as_slice(), ration: ration.clone() });
        let entries = archive.entries().expect("it reads");
        let mut rationing = Rationing { entries, ration, next: None };
        let mut count = 0;
        while let Some(entry) = rationing.next() {
            if entry.is_err() {
                return (count, true);
            }
            count += 1;
        }
        (count, false)
    }

    #[test]
    fn a_name_that_fills_the_memory_is_refused_before_it_is_read() {
        assert_eq!(read(&[5, 4000, 5]), (3, false));
        assert_eq!(read(&[5, 64 << 20, 5]), (1, true));
    }
}
