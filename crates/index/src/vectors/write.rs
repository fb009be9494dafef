//! Changes, one writer at a time.
//!
//! What is new is appended behind what counts and brought to the disk, then a
//! new manifest lets it count. A writer that is killed leaves bytes behind the
//! end, which the next one cuts off.

use super::entry::{self, Entry, settle};
use super::manifest::Manifest;
use super::state::{PARTS, State, path_of};
use super::{VectorsError, row};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long somebody else may write.
const WAIT: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(5);

/// Who holds this writes.
pub(super) struct Alone(#[expect(dead_code, reason = "closing it ends the lock")] File);

pub(super) fn lock(dir: &Path) -> Result<Alone, VectorsError> {
    fs::create_dir_all(dir).map_err(|error| VectorsError::io("create", dir, error))?;
    let path = dir.join("lock");
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let file = file.map_err(|error| VectorsError::io("open", &path, error))?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Alone(file)),
            Err(TryLockError::Error(error)) => return Err(VectorsError::io("lock", &path, error)),
            Err(TryLockError::WouldBlock) if start.elapsed() > WAIT => {
                return Err(VectorsError::Busy { seconds: WAIT.as_secs() });
            }
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
        }
    }
}

/// An empty generation, whatever was there before.
pub(super) fn create(
    dir: &Path,
    model: &str,
    dimensions: usize,
    _alone: &Alone,
) -> Result<State, VectorsError> {
    let generation = last_generation(dir)? + 1;
    for part in PARTS {
        let path = path_of(dir, generation, part);
        File::create(&path).map_err(|error| VectorsError::io("create", &path, error))?;
    }
    let model = model.to_owned();
    let manifest = Manifest { model, dimensions, generation, ..Manifest::default() };
    manifest.write(dir)?;
    clean(dir, generation)?;
    State::load(dir)
}

/// Vectors of length one under their keys; no vectors take a key away.
pub(super) type Batch = Vec<(u64, Vec<Vec<f32>>)>;

pub(super) fn append(state: &mut State, batch: &Batch, _alone: &Alone) -> Result<(), VectorsError> {
    let old = &state.manifest;
    let (mut rows, mut full, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    let mut next = old.rows;
    for (key, vectors) in batch {
        let first = u32::try_from(next).map_err(|_| VectorsError::Full)?;
        entries.push(Entry { key: *key, first, count: vectors.len() as u32 });
        for vector in vectors {
            row::push(vector, &mut rows);
            full.extend(vector.iter().flat_map(|value| value.to_le_bytes()));
        }
        next += vectors.len();
    }
    u32::try_from(next).map_err(|_| VectorsError::Full)?;
    let listed = list(&entries);
    let stride = row::stride(old.dimensions);
    let ends = [old.rows * stride, old.rows * old.dimensions * 4, old.entries * entry::BYTES];
    for ((part, bytes), end) in PARTS.into_iter().zip([&rows, &full, &listed]).zip(ends) {
        let path = path_of(&state.dir, old.generation, part);
        write_at(&path, bytes, end as u64)
            .map_err(|error| VectorsError::io("write", &path, error))?;
    }
    let manifest = Manifest {
        rows: next,
        entries: old.entries + entries.len(),
        rows_sum: old.rows_sum.wrapping_add(entry::sum(&rows, stride, old.rows)),
        entries_sum: old.entries_sum.wrapping_add(entry::sum(&listed, entry::BYTES, old.entries)),
        ..old.clone()
    };
    manifest.write(&state.dir)?;
    state.rows.extend(rows);
    state.live.extend(entries);
    state.live = settle(&state.live);
    state.manifest = manifest;
    Ok(())
}

fn write_at(path: &Path, bytes: &[u8], end: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(end)?;
    file.write_all_at(bytes, end)?;
    file.sync_data()
}

fn list(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * entry::BYTES);
    entries.iter().for_each(|entry| entry.push(&mut bytes));
    bytes
}

/// Writes what is left into files of its own once a third of all is dead.
pub(super) fn compact(state: &mut State, alone: &Alone) -> Result<(), VectorsError> {
    let dead = state.manifest.rows - state.live_rows();
    if dead * 3 <= state.manifest.rows || dead == 0 {
        return Ok(());
    }
    let generation = last_generation(&state.dir)? + 1;
    let (mut rows, mut entries, mut first) = (Vec::new(), Vec::new(), 0);
    for entry in &state.live {
        state.rows_of(*entry).for_each(|row| rows.extend_from_slice(row));
        entries.push(Entry { first, ..*entry });
        first += entry.count;
    }
    let listed = list(&entries);
    write_new(&state.dir, generation, "rows", |into| into.write_all(&rows))?;
    write_new(&state.dir, generation, "full", |into| copy_full(state, into))?;
    write_new(&state.dir, generation, "entries", |into| into.write_all(&listed))?;
    let manifest = Manifest {
        generation,
        rows: first as usize,
        entries: entries.len(),
        rows_sum: entry::sum(&rows, row::stride(state.manifest.dimensions), 0),
        entries_sum: entry::sum(&listed, entry::BYTES, 0),
        ..state.manifest.clone()
    };
    manifest.write(&state.dir)?;
    clean(&state.dir, generation)?;
    reload(state, alone)
}

fn reload(state: &mut State, _alone: &Alone) -> Result<(), VectorsError> {
    *state = State::load(&state.dir)?;
    Ok(())
}

fn copy_full(state: &State, into: &mut dyn Write) -> io::Result<()> {
    let width = state.manifest.dimensions * 4;
    let full = state.full.as_ref().ok_or(io::ErrorKind::NotFound)?;
    let mut numbers = Vec::new();
    for entry in &state.live {
        numbers.resize(entry.count as usize * width, 0);
        full.read_exact_at(&mut numbers, u64::from(entry.first) * width as u64)?;
        into.write_all(&numbers)?;
    }
    Ok(())
}

fn write_new(
    dir: &Path,
    generation: u64,
    part: &str,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), VectorsError> {
    let path = path_of(dir, generation, part);
    let written = File::create(&path).and_then(|file| {
        let mut into = BufWriter::with_capacity(256 << 10, file);
        fill(&mut into)?;
        into.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
    });
    written.map_err(|error| VectorsError::io("write", &path, error))
}

/// The number of a file of ours.
fn generation_of(name: &str) -> Option<u64> {
    let (number, part) = name.split_once('.')?;
    PARTS.contains(&part).then(|| number.parse().ok())?
}

fn generations(dir: &Path) -> Result<Vec<(u64, String)>, VectorsError> {
    let entries = fs::read_dir(dir).map_err(|error| VectorsError::io("list", dir, error))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter_map(|name| Some((generation_of(&name)?, name))).collect())
}

fn last_generation(dir: &Path) -> Result<u64, VectorsError> {
    Ok(generations(dir)?.into_iter().map(|(generation, _)| generation).max().unwrap_or(0))
}

/// Removes what no manifest names any more. Who has it open reads on.
fn clean(dir: &Path, current: u64) -> Result<(), VectorsError> {
    for (generation, name) in generations(dir)? {
        let path = dir.join(name);
        if generation != current {
            fs::remove_file(&path).map_err(|error| VectorsError::io("remove", &path, error))?;
        }
    }
    Ok(())
}
