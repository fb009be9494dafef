//! Appending to the notes of one sandbox, and keeping small files whole.

use super::notes::Line;
use super::{DIGEST_BYTES_MAX, KEPT_BYTES_MAX, State, attributes, content, digest, encode};
use super::{failed, file, hex};
use crate::{Engine, stale};
use fractal_jail::layer::{Entry, Reader, View};
use fractal_model::{EntryKind, Id, Result, SandboxPath};
use fractal_store::SandboxRow;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// All that one run may keep.
const KEPT_SUM_MAX: u64 = 64 << 20;
/// As many files: of the others only the digest is noted.
const KEPT_FILES_MAX: u64 = 2_000;
/// What one run may read of larger files for their digests. Whoever changed
/// them has copied them, which took longer.
const DIGEST_SUM_MAX: u64 = 512 << 20;

/// Appends to the notes of one sandbox, in one write.
pub(super) struct Pen {
    dir: PathBuf,
    pub host: View,
    text: String,
    room_bytes: u64,
    room_files: u64,
    room_digest: u64,
    pub anew: bool,
    landed: bool,
    pub by: Option<Id>,
}

impl Pen {
    pub fn new(engine: &Engine, row: &SandboxRow) -> Result<Pen> {
        let dir = engine.store.base_dir(row.id);
        fs::create_dir_all(&dir).map_err(|error| failed(&dir, &error))?;
        let host = engine.host_view(row, Vec::new())?;
        Ok(Pen {
            dir,
            host,
            text: String::new(),
            room_bytes: KEPT_SUM_MAX,
            room_files: KEPT_FILES_MAX,
            room_digest: DIGEST_SUM_MAX,
            anew: false,
            landed: false,
            by: None,
        })
    }

    /// Notes what a promotion, an undo or an update left.
    pub fn landed(engine: &Engine, row: &SandboxRow) -> Result<Pen> {
        Ok(Pen { landed: true, ..Pen::new(engine, row)? })
    }

    /// Notes what stands at each path, in the order of a walk.
    pub fn note_all<'p>(
        &mut self,
        paths: impl Iterator<Item = &'p SandboxPath>,
        marker_ns: i64,
    ) -> Result<()> {
        let host = self.host.clone();
        let mut reader = host.reader();
        for path in paths {
            let entry = reader.lookup(path)?;
            self.note(path, entry.as_ref(), &mut reader, marker_ns);
        }
        Ok(())
    }

    /// Notes what stands at a path, where a reader of the host has found it.
    pub fn note(
        &mut self,
        path: &SandboxPath,
        entry: Option<&Entry>,
        reader: &mut Reader<'_>,
        marker_ns: i64,
    ) {
        let was = entry.map(|entry| State {
            kind: entry.kind,
            mode: entry.mode,
            size: entry.size,
            ctime_ns: entry.ctime_ns,
            inode: entry.inode(),
            owner: Some((entry.uid, entry.gid)),
            sha256: self.keep(path, entry),
            // What cannot be read equals nothing.
            attributes: attributes(reader, path, entry).unwrap_or_else(|| "?".to_owned()),
            // A directory's ctime moves with its entries, which are none of
            // its own value.
            sure: entry.ctime_ns < marker_ns || entry.kind == EntryKind::Directory,
            landed: self.landed,
        });
        let (anew, by) = (self.anew, self.by);
        self.line(&Line::Was { path: encode(path), was, anew, by });
    }

    /// Notes what another sandbox has noted, with what it kept.
    pub fn copy(&mut self, path: &SandboxPath, states: &[Option<State>], from: &Path) {
        for was in states {
            if let Some(name) = was.as_ref().and_then(|was| was.sha256.as_deref()) {
                // Without the content two edits of one text are not joined.
                let _ = fs::copy(from.join(name), self.dir.join(name));
            }
            let (path, was) = (encode(path), was.clone());
            self.line(&Line::Was { path, was, anew: false, by: None });
        }
    }

    pub fn line(&mut self, line: &Line) {
        self.text.push_str(&serde_json::to_string(line).expect("notes are plain data"));
        self.text.push('\n');
    }

    /// The digest of a file or link; a small file is kept whole.
    fn keep(&mut self, path: &SandboxPath, entry: &Entry) -> Option<String> {
        if entry.kind == EntryKind::File && entry.size > KEPT_BYTES_MAX {
            let fits = entry.size <= DIGEST_BYTES_MAX.min(self.room_digest);
            self.room_digest -= if fits { entry.size } else { 0 };
            return if fits { digest(&self.host, path, entry) } else { None };
        }
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

    pub fn finish(self) -> Result<()> {
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
