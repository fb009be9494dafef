//! What is in the files of a generation, as far as the manifest says.
//!
//! Files only grow while they are named by a manifest: `rows` of bytes, which
//! are in memory, `full` vectors, which are read where they are wanted, and
//! `entries`. What lies behind the lengths in the manifest was never promised.

use super::entry::{self, Entry, settle};
use super::manifest::Manifest;
use super::{VectorsError, row};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};

/// Rows that are read and summed at a time.
const PIECE_BYTES: usize = 256 << 10;

/// More is read by two threads.
const LARGE_BYTES: usize = 4 << 20;

/// More than a reader needs to catch up with a writer that replaces files.
const TRIES_MAX: u32 = 20;

/// Longer vectors are nobody's.
pub(super) const DIMENSIONS_MAX: usize = 65_536;

/// All that is known at one moment.
pub(super) struct State {
    pub(super) dir: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) rows: Vec<u8>,
    /// Keys that are there, in the order of their rows.
    pub(super) live: Vec<Entry>,
    pub(super) full: Option<File>,
}

/// The three files of a generation.
pub(super) const PARTS: [&str; 3] = ["rows", "full", "entries"];

pub(super) fn path_of(dir: &Path, generation: u64, part: &str) -> PathBuf {
    dir.join(format!("{generation}.{part}"))
}

impl State {
    /// Nothing, where nothing was written.
    pub(super) fn load(dir: &Path) -> Result<State, VectorsError> {
        for _ in 0..TRIES_MAX {
            let empty = Manifest::default();
            let mut state = State {
                dir: dir.to_owned(),
                manifest: empty,
                rows: Vec::new(),
                live: Vec::new(),
                full: None,
            };
            let Some(manifest) = Manifest::read(dir)? else { return Ok(state) };
            check(dir, &manifest)?;
            state.manifest.generation = manifest.generation;
            if state.grow(manifest)? {
                return Ok(state);
            }
        }
        Err(VectorsError::damaged(dir, "files that its manifest names are not there"))
    }

    /// Takes in what others wrote since.
    pub(super) fn refresh(&mut self) -> Result<(), VectorsError> {
        let manifest = Manifest::read(&self.dir)?.unwrap_or_default();
        if manifest == self.manifest {
            return Ok(());
        }
        let ours = &self.manifest;
        let is_longer = manifest.generation == ours.generation
            && manifest.model == ours.model
            && manifest.dimensions == ours.dimensions
            && manifest.rows >= ours.rows
            && manifest.entries >= ours.entries;
        // A store that was deleted and made anew may look like a longer one; its
        // sums do not, and it is then read from the beginning.
        let has_grown = is_longer && matches!(self.grow(manifest), Ok(true));
        if !has_grown {
            *self = State::load(&self.dir)?;
        }
        Ok(())
    }

    /// Reads what a manifest of the same generation has more; false if its
    /// files were replaced meanwhile.
    fn grow(&mut self, manifest: Manifest) -> Result<bool, VectorsError> {
        let mut files = Vec::new();
        for part in PARTS {
            let path = path_of(&self.dir, manifest.generation, part);
            match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                file => files.push(file.map_err(|error| VectorsError::io("open", &path, error))?),
            }
        }
        let [rows, full, entries] = files.as_slice() else { return Ok(false) };
        self.check_lengths(&manifest, [rows, full, entries])?;
        self.read_rows(rows, &manifest)?;
        let more = self.read_entries(entries, &manifest)?;
        self.live.extend(more);
        self.live = settle(&self.live);
        (self.manifest, self.full) = (manifest, files.into_iter().nth(1));
        Ok(true)
    }

    fn check_lengths(&self, manifest: &Manifest, files: [&File; 3]) -> Result<(), VectorsError> {
        let &Manifest { rows, entries, dimensions, .. } = manifest;
        let lengths =
            [rows * row::stride(dimensions), rows * dimensions * 4, entries * entry::BYTES];
        for ((file, part), length) in files.into_iter().zip(PARTS).zip(lengths) {
            let found = file.metadata().map_err(|error| self.unread(error))?.len();
            if found < length as u64 {
                let why = format!("its file of {part} has {found} of {length} bytes");
                return Err(VectorsError::damaged(&self.dir, &why));
            }
        }
        Ok(())
    }

    fn read_rows(&mut self, file: &File, manifest: &Manifest) -> Result<(), VectorsError> {
        let stride = row::stride(manifest.dimensions);
        let (old, new) = (self.manifest.rows, manifest.rows - self.manifest.rows);
        match old {
            // Fresh memory is zero already; two threads take it from the system.
            0 => self.rows = vec![0; manifest.rows * stride],
            _ => self.rows.resize(manifest.rows * stride, 0),
        }
        let fresh = &mut self.rows[old * stride..];
        let half = if fresh.len() > LARGE_BYTES { new.div_ceil(2) } else { new };
        let sums: io::Result<Vec<u64>> = thread::scope(|scope| {
            let parts = fresh.chunks_mut((half * stride).max(1)).zip(0..);
            let parts = parts.map(|(part, at)| {
                scope.spawn(move || read_part(file, part, stride, old + at * half))
            });
            let parts: Vec<_> = parts.collect();
            let join = |part: ScopedJoinHandle<_>| {
                part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            parts.into_iter().map(join).collect()
        });
        let sums = sums.map_err(|error| self.unread(error))?;
        let sum = sums.into_iter().fold(self.manifest.rows_sum, u64::wrapping_add);
        match sum == manifest.rows_sum {
            true => Ok(()),
            false => Err(self.changed("rows")),
        }
    }

    fn read_entries(&self, file: &File, manifest: &Manifest) -> Result<Vec<Entry>, VectorsError> {
        let old = self.manifest.entries;
        let mut bytes = vec![0; (manifest.entries - old) * entry::BYTES];
        file.read_exact_at(&mut bytes, (old * entry::BYTES) as u64)
            .map_err(|error| self.unread(error))?;
        let sum = entry::sum(&bytes, entry::BYTES, old);
        let entries = Entry::read(&bytes);
        let ends = |entry: &Entry| u64::from(entry.first) + u64::from(entry.count);
        let is_whole = self.manifest.entries_sum.wrapping_add(sum) == manifest.entries_sum
            && entries.iter().all(|entry| ends(entry) <= manifest.rows as u64);
        if is_whole { Ok(entries) } else { Err(self.changed("entries")) }
    }

    fn unread(&self, error: io::Error) -> VectorsError {
        VectorsError::io("read", &self.dir, error)
    }

    fn changed(&self, part: &str) -> VectorsError {
        let why = format!("its {part} are not those that were written");
        VectorsError::damaged(&self.dir, &why)
    }

    /// The rows of a key, as bytes.
    pub(super) fn rows_of(&self, entry: Entry) -> impl Iterator<Item = &[u8]> {
        let stride = row::stride(self.manifest.dimensions);
        let start = entry.first as usize * stride;
        self.rows[start..start + entry.count as usize * stride].chunks_exact(stride)
    }

    /// Rows that belong to a key.
    pub(super) fn live_rows(&self) -> usize {
        self.live.iter().map(|entry| entry.count as usize).sum()
    }
}

/// Reads rows and sums each piece of them while it is in the cache.
fn read_part(file: &File, part: &mut [u8], stride: usize, first: usize) -> io::Result<u64> {
    let rows = (PIECE_BYTES / stride).max(1);
    let mut sum = 0u64;
    for (piece, number) in part.chunks_mut(rows * stride).zip(0..) {
        let first = first + number * rows;
        file.read_exact_at(piece, (first * stride) as u64)?;
        sum = sum.wrapping_add(entry::sum(piece, stride, first));
    }
    Ok(sum)
}

/// A manifest with a digest was written by this program; what it says is still
/// checked before memory is asked for.
fn check(dir: &Path, manifest: &Manifest) -> Result<(), VectorsError> {
    let &Manifest { rows, entries, dimensions, .. } = manifest;
    match dimensions > DIMENSIONS_MAX || rows > u32::MAX as usize || entries > 1 << 40 {
        true => Err(VectorsError::damaged(dir, "its manifest cannot be true")),
        false => Ok(()),
    }
}
