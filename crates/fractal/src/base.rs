//! What reality held where a sandbox changed something.
//!
//! A live base is the host itself: once somebody edits a file there, what the
//! sandbox started from is gone. So at the end of each run the engine notes,
//! for every path that differs for the first time, what the host has there,
//! and keeps small files whole. Promoting compares by these notes: an outside
//! edit shows, a file that was only touched does not, and two edits of one
//! text can be joined.
//!
//! Notes are lines of JSON in `bases/<sandbox>/notes`, only ever appended; a
//! run's last line names the run, so that notes cut short by a crash are not
//! taken for complete. Without notes the host's `ctime` decides alone, which
//! errs towards conflicts.

use crate::apply::Bytes;
use crate::view::path_of;
use crate::{Engine, stale};
use fractal_jail::layer::{Changes, Entry, View};
use fractal_model::{Change, EntryKind, Id, Result, SandboxPath};
use fractal_store::SandboxRow;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Paths that one run may add.
const PATHS_MAX: usize = 200_000;
/// Files up to this size are kept whole.
const KEPT_BYTES_MAX: u64 = 1 << 20;
/// All that one run may keep.
const KEPT_SUM_MAX: u64 = 64 << 20;
/// As many files: of the others only the digest is noted.
const KEPT_FILES_MAX: u64 = 2_000;

/// What stood at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    kind: EntryKind,
    mode: u32,
    size: u64,
    ctime_ns: i64,
    inode: (u64, u64),
    /// Of a file's content, or of a link's target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    /// Whether the sandbox started from this, or may have seen another one.
    sure: bool,
    /// Whether it stood there after a promotion, an undo or an update.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    landed: bool,
}

/// Which notes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// All: the base was the host.
    All,
    /// Only what was left behind by a promotion or an update: the base was a
    /// layer, whatever the host had there.
    Landed,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Run {
        run: Id,
    },
    Was {
        path: String,
        was: Option<State>,
        /// Nothing that was noted before counts any more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        anew: bool,
        /// The promotion that left it there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Id>,
    },
    /// A promotion was taken back (or brought again): what it left counts no
    /// more (or again).
    Undone {
        undone: Id,
        again: bool,
    },
}

/// A state, and the promotion that left it there.
struct Noted {
    was: Option<State>,
    by: Option<Id>,
}

/// All that is known about the base of one sandbox.
#[derive(Debug, Default)]
pub struct Notes {
    dir: PathBuf,
    /// Every state that counts as the base, oldest first; `None` is nothing.
    states: BTreeMap<SandboxPath, Vec<Option<State>>>,
    /// Paths that a promotion left as the first of these.
    promoted: HashSet<SandboxPath>,
    /// The last run whose notes are complete.
    last_run: Option<Id>,
}

impl Notes {
    /// Reads what there is; a line that was cut short ends it.
    pub fn read(engine: &Engine, sandbox: Id) -> Notes {
        let dir = engine.store.base_dir(sandbox);
        let text = fs::read_to_string(file(&dir)).unwrap_or_default();
        let mut notes = Notes { dir, ..Notes::default() };
        let mut all: BTreeMap<SandboxPath, Vec<Noted>> = BTreeMap::new();
        let mut undone: HashSet<Id> = HashSet::new();
        for line in text.lines() {
            match serde_json::from_str(line) {
                Ok(Line::Run { run }) => notes.last_run = Some(run),
                Ok(Line::Was { path, was, anew, by }) => {
                    let Ok(path) = decode(&path) else { break };
                    let states = all.entry(path).or_default();
                    if anew {
                        states.clear();
                    }
                    states.push(Noted { was, by });
                }
                Ok(Line::Undone { undone: id, again: true }) => drop(undone.remove(&id)),
                Ok(Line::Undone { undone: id, again: false }) => drop(undone.insert(id)),
                Err(_) => {
                    notes.last_run = None;
                    break;
                }
            }
        }
        for (path, mut states) in all {
            states.retain(|noted| noted.by.is_none_or(|by| !undone.contains(&by)));
            // What a promotion left is the base from then on, and nothing else.
            if let Some(last) = states.iter().rposition(|noted| noted.by.is_some()) {
                states.drain(..last);
                notes.promoted.insert(path.clone());
            }
            notes.states.insert(path, states.into_iter().map(|noted| noted.was).collect());
        }
        notes
    }

    /// Whether the base of a path is what a promotion left there.
    pub fn has_promoted(&self, path: &SandboxPath) -> bool {
        self.promoted.contains(path)
    }

    /// Whether a sandbox still has what a promotion brought from it.
    pub fn is_promoted(&self, path: &SandboxPath, ours: Option<&Entry>, view: &View) -> bool {
        let states = self.states.get(path).filter(|_| self.has_promoted(path));
        match (states.and_then(|states| states.first()), ours) {
            (Some(None), None) => true,
            (Some(Some(was)), Some(ours)) => was.is_value_of(ours, || digest(view, path, ours)),
            _ => false,
        }
    }

    /// The last run that was noted completely.
    pub fn last_run(&self) -> Option<Id> {
        self.last_run
    }

    /// What stood at a path: `None` when nothing was noted. Below a place
    /// where nothing stood, nothing stood either.
    pub fn of(&self, path: &SandboxPath) -> Option<&[Option<State>]> {
        if let Some(states) = self.states.get(path) {
            return Some(states);
        }
        let mut above = path.parent();
        while let Some(dir) = above {
            match self.states.get(&dir) {
                Some(states) if !states.is_empty() && states.iter().all(Option::is_none) => {
                    return Some(states);
                }
                _ => above = dir.parent(),
            }
        }
        None
    }

    /// Whether what the host has now is what was noted.
    pub fn is_base(
        &self,
        path: &SandboxPath,
        now: Option<&Entry>,
        host: &View,
        count: Count,
    ) -> Option<bool> {
        let states = self.of(path)?;
        let mut hash: Option<Option<String>> = None;
        Some(states.iter().any(|was| match (was, now) {
            (None, None) => count == Count::All || self.has_promoted(path),
            (Some(was), Some(now)) if was.counts(count) => {
                let read = || digest(host, path, now);
                was.same_inode(now)
                    || was.is_value_of(now, || hash.get_or_insert_with(read).clone())
            }
            _ => false,
        }))
    }

    /// The base's text, where it was kept. The latest one counts.
    pub fn content(&self, path: &SandboxPath, count: Count) -> Option<(Vec<u8>, u32)> {
        let states = self.states.get(path)?;
        let was = states.iter().rev().flatten().find(|was| was.counts(count))?;
        let name = was.sha256.as_deref().filter(|_| was.kind == EntryKind::File)?;
        Some((fs::read(self.dir.join(name)).ok()?, was.mode))
    }
}

impl State {
    fn counts(&self, count: Count) -> bool {
        self.sure && (self.landed || count == Count::All)
    }

    fn is_value_of(&self, now: &Entry, digest: impl FnOnce() -> Option<String>) -> bool {
        self.same_shape(now)
            && match self.sha256 {
                None => self.kind == EntryKind::Directory,
                Some(_) => digest() == self.sha256,
            }
    }

    fn same_inode(&self, now: &Entry) -> bool {
        self.inode == now.inode() && self.ctime_ns == now.ctime_ns
    }

    fn same_shape(&self, now: &Entry) -> bool {
        let size = self.kind == EntryKind::Directory || self.size == now.size;
        self.kind == now.kind && self.mode == now.mode && size
    }
}

/// Writes down what the host has where a run changed something for the first
/// time. The host's file clock at the fork tells whether it had it then.
pub fn note(engine: &Engine, row: &SandboxRow, run: Id, changes: &Changes) -> Result<()> {
    let known = Notes::read(engine, row.id);
    let project = path_of(&row.directory)?;
    let mut pen = Pen::new(engine, row)?;
    let untouched = Untouched::since_last_note(engine, row, &known)?;
    let fresh =
        |change: &&Change| change.path.is_within(&project) && known.of(&change.path).is_none();
    let host = pen.host.clone();
    let mut reader = host.reader();
    let mut nothing_at: Option<SandboxPath> = None;
    let mut complete = !changes.truncated && changes.unreadable == 0;
    for (count, change) in changes.list.iter().filter(fresh).enumerate() {
        if nothing_at.as_ref().is_some_and(|above| change.path.is_within(above))
            || untouched.holds(change)?
        {
            continue;
        }
        if count >= PATHS_MAX {
            complete = false;
            break;
        }
        let entry = reader.lookup(&change.path)?;
        pen.note(&change.path, entry.as_ref(), row.fork_ctime_ns);
        if entry.is_none() {
            nothing_at = Some(change.path.clone());
        }
    }
    if complete {
        pen.line(&Line::Run { run });
    }
    pen.finish()
}

/// What a sandbox has not written since its last note. A path that did not
/// differ then and does now was changed outside, not by the sandbox.
struct Untouched {
    top: View,
    /// When the last note was written, by the clock of files.
    noted_ns: Option<i64>,
}

impl Untouched {
    fn since_last_note(engine: &Engine, row: &SandboxRow, known: &Notes) -> Result<Untouched> {
        let noted = known.last_run.and_then(|_| fs::metadata(file(&known.dir)).ok());
        let noted_ns = noted.map(|meta| meta.ctime() * 1_000_000_000 + meta.ctime_nsec());
        Ok(Untouched { top: engine.views(row, row.base)?.top(), noted_ns })
    }

    fn holds(&self, change: &Change) -> Result<bool> {
        let Some(noted_ns) = self.noted_ns else { return Ok(false) };
        let entry = self.top.lookup(&change.path)?;
        Ok(entry.is_some_and(|entry| entry.ctime_ns < noted_ns))
    }
}

/// After a promotion the host holds what the sandbox holds: that is its base
/// from now on, until it is taken back. Not so where two edits were joined:
/// there the sandbox lacks one of them, and stands on what it stood on.
pub fn note_promoted<'a>(
    engine: &Engine,
    row: &SandboxRow,
    promotion: Option<Id>,
    paths: impl Iterator<Item = &'a SandboxPath>,
) -> Result<()> {
    let mut pen = Pen { by: promotion, landed: true, ..Pen::new(engine, row)? };
    pen.note_all(paths, i64::MAX)?;
    pen.finish()
}

/// A promotion was taken back, or brought again.
pub fn note_undone(engine: &Engine, row: &SandboxRow, promotion: Id, again: bool) -> Result<()> {
    let mut pen = Pen::new(engine, row)?;
    pen.line(&Line::Undone { undone: promotion, again });
    pen.finish()
}

/// The sandbox was moved onto what the host has now: nothing else is its base.
pub fn note_moved<'a>(
    engine: &Engine,
    row: &SandboxRow,
    paths: impl Iterator<Item = &'a SandboxPath>,
) -> Result<()> {
    let mut pen = Pen { anew: true, landed: true, ..Pen::new(engine, row)? };
    pen.note_all(paths, i64::MAX)?;
    pen.finish()
}

/// After a promotion into a stage: what the stage shows now is a base of who
/// brought it, and what that one started from is a base of the stage. So a
/// change is compared with what it was made on, however far it has come.
pub fn note_staged<'a>(
    engine: &Engine,
    from: &SandboxRow,
    stage: &SandboxRow,
    shows: &View,
    paths: impl Iterator<Item = &'a SandboxPath> + Clone,
) -> Result<()> {
    let known = Notes::read(engine, from.id);
    let mut pen = Pen::new(engine, stage)?;
    for path in paths.clone() {
        match known.of(path) {
            Some(states) => pen.copy(path, states, &known.dir),
            None => pen.note_all([path].into_iter(), from.fork_ctime_ns)?,
        }
    }
    pen.finish()?;
    let mut pen = Pen { host: shows.clone(), landed: true, ..Pen::new(engine, from)? };
    pen.note_all(paths, i64::MAX)?;
    pen.finish()
}

/// Notes files that were copied in, by their value: an input is not work, as
/// long as nobody works on it.
pub fn note_injected(
    engine: &Engine,
    row: &SandboxRow,
    top: &View,
    at: &[SandboxPath],
) -> Result<()> {
    let dir = engine.store.base_dir(row.id);
    let path = dir.join("injected");
    let mut lines = String::new();
    for at in at {
        let Some(digest) = top.lookup(at)?.and_then(|entry| digest(top, at, &entry)) else {
            continue;
        };
        lines.push_str(&format!("{digest} {}\n", encode(at)));
    }
    let open = || fs::OpenOptions::new().append(true).create(true).open(&path);
    fs::create_dir_all(&dir)
        .and_then(|()| open()?.write_all(lines.as_bytes()))
        .map_err(|error| failed(&path, &error))
}

/// Paths that still hold what was copied in there.
pub fn injected(engine: &Engine, row: &SandboxRow) -> Result<HashSet<SandboxPath>> {
    let list = fs::read_to_string(engine.store.base_dir(row.id).join("injected"));
    let mut found = HashSet::new();
    let Ok(list) = list else { return Ok(found) };
    let top = engine.views(row, row.base)?.top();
    for line in list.lines() {
        let Some((was, path)) = line.split_once(' ') else { continue };
        let path = decode(path)?;
        let now = top.lookup(&path)?.and_then(|entry| digest(&top, &path, &entry));
        if now.as_deref() == Some(was) {
            found.insert(path);
        }
    }
    Ok(found)
}

/// Appends to the notes of one sandbox, in one write.
struct Pen {
    dir: PathBuf,
    host: View,
    text: String,
    room_bytes: u64,
    room_files: u64,
    anew: bool,
    landed: bool,
    by: Option<Id>,
}

impl Pen {
    fn new(engine: &Engine, row: &SandboxRow) -> Result<Pen> {
        let dir = engine.store.base_dir(row.id);
        fs::create_dir_all(&dir).map_err(|error| failed(&dir, &error))?;
        let host = engine.host_view(row, Vec::new())?;
        Ok(Pen {
            dir,
            host,
            text: String::new(),
            room_bytes: KEPT_SUM_MAX,
            room_files: KEPT_FILES_MAX,
            anew: false,
            landed: false,
            by: None,
        })
    }

    /// Notes what stands at each path, in the order of a walk.
    fn note_all<'p>(
        &mut self,
        paths: impl Iterator<Item = &'p SandboxPath>,
        marker_ns: i64,
    ) -> Result<()> {
        let host = self.host.clone();
        let mut reader = host.reader();
        for path in paths {
            let entry = reader.lookup(path)?;
            self.note(path, entry.as_ref(), marker_ns);
        }
        Ok(())
    }

    /// Notes what stands at a path.
    fn note(&mut self, path: &SandboxPath, entry: Option<&Entry>, marker_ns: i64) {
        let was = entry.map(|entry| State {
            kind: entry.kind,
            mode: entry.mode,
            size: entry.size,
            ctime_ns: entry.ctime_ns,
            inode: entry.inode(),
            sha256: self.keep(path, entry),
            // A directory's ctime moves with its entries, which are none of
            // its own value.
            sure: entry.ctime_ns < marker_ns || entry.kind == EntryKind::Directory,
            landed: self.landed,
        });
        let (anew, by) = (self.anew, self.by);
        self.line(&Line::Was { path: encode(path), was, anew, by });
    }

    /// Notes what another sandbox has noted, with what it kept.
    fn copy(&mut self, path: &SandboxPath, states: &[Option<State>], from: &Path) {
        for was in states {
            if let Some(name) = was.as_ref().and_then(|was| was.sha256.as_deref()) {
                // Without the content two edits of one text are not joined.
                let _ = fs::copy(from.join(name), self.dir.join(name));
            }
            let (path, was) = (encode(path), was.clone());
            self.line(&Line::Was { path, was, anew: false, by: None });
        }
    }

    fn line(&mut self, line: &Line) {
        self.text.push_str(&serde_json::to_string(line).expect("notes are plain data"));
        self.text.push('\n');
    }

    /// The digest of a small file or link, the former kept whole.
    fn keep(&mut self, path: &SandboxPath, entry: &Entry) -> Option<String> {
        let content = content(&self.host, path, entry)?;
        let name = hex(&content);
        let fits = entry.size <= self.room_bytes && self.room_files > 0;
        if entry.kind == EntryKind::File && fits {
            self.room_bytes = self.room_bytes.saturating_sub(entry.size);
            self.room_files -= 1;
            let target = self.dir.join(&name);
            if !target.exists() {
                let part = self.dir.join(format!("{name}.{}", std::process::id()));
                fs::write(&part, &content).and_then(|()| fs::rename(&part, &target)).ok()?;
            }
        }
        Some(name)
    }

    fn finish(self) -> Result<()> {
        let path = file(&self.dir);
        let open = fs::OpenOptions::new().append(true).create(true).open(&path);
        // Whatever the run wrote lies before the time of the notes then.
        open.and_then(|mut notes| {
            notes.write_all(self.text.as_bytes())?;
            stale::step_clock(&notes).map(|_| ())
        })
        .map_err(|error| failed(&path, &error))
    }
}

/// The digest of a file's content or a link's target.
pub fn digest(view: &View, path: &SandboxPath, entry: &Entry) -> Option<String> {
    if entry.kind != EntryKind::File {
        return content(view, path, entry).map(|content| hex(&content));
    }
    let mut hasher = Sha256::new();
    std::io::copy(&mut view.open_file(path).ok()?, &mut hasher).ok()?;
    Some(text(&hasher.finalize()))
}

fn content(host: &View, path: &SandboxPath, entry: &Entry) -> Option<Vec<u8>> {
    match entry.kind {
        EntryKind::Symlink => entry.target.clone(),
        EntryKind::File if entry.size <= KEPT_BYTES_MAX => {
            let mut content = Vec::new();
            host.open_file(path).ok()?.take(KEPT_BYTES_MAX + 1).read_to_end(&mut content).ok()?;
            Some(content)
        }
        _ => None,
    }
}

fn hex(content: &[u8]) -> String {
    text(&Sha256::digest(content))
}

fn text(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file(dir: &Path) -> PathBuf {
    dir.join("notes")
}

fn failed(path: &Path, error: &std::io::Error) -> fractal_model::Error {
    fractal_model::Error::internal(format!("cannot write {}: {error}", path.display()))
}

/// A path as text, whatever its bytes are.
pub fn encode(path: &SandboxPath) -> String {
    Bytes(path.relative().to_vec()).into()
}

pub fn decode(text: &str) -> Result<SandboxPath> {
    let bytes = Bytes::try_from(text.to_owned()).map_err(fractal_model::Error::invalid)?;
    SandboxPath::parse(bytes.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_comes_back_from_its_text() {
        for name in [&b"plain/name"[..], b"100%", b"a\nb", b"\xff\xfe", b"%41", "ä".as_bytes()] {
            let path = SandboxPath::parse(name).expect("a path");
            let text = encode(&path);
            assert!(text.is_ascii() && !text.contains('\n'), "{text}");
            assert_eq!(decode(&text).expect("it was encoded"), path);
        }
    }
}
