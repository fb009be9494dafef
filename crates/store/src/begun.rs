//! Work of many runs that is under way, and has no row of its own.
//!
//! What the journal is to say should its process die is written down before
//! the work begins, as a file, and taken away when it has told its story
//! itself. So the next command knows of it, whichever way it ended.

use crate::open::sync_directory;
use crate::{Reads, Result, Store, StoreError, Tx, Worker, now_ms};
use fractal_model::{Id, RecordBody};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(crate) const PREFIX: &str = "begun-";
pub(crate) const SUFFIX: &str = ".json";

/// A list of attempts and their checks is not longer.
const BYTES_MAX: u64 = 16 << 20;

/// Records that are searched for the story that was told after all.
const LOOK_BACK: u64 = 1_000;

#[derive(Serialize, Deserialize)]
struct Words {
    pid: i32,
    pid_start: u64,
    record: RecordBody,
}

/// Something that began and has not told its story yet.
#[derive(Debug)]
pub struct Begun {
    id: Id,
    path: PathBuf,
}

impl Begun {
    /// What the record of its end has as `begun` in its detail.
    pub fn id(&self) -> Id {
        self.id
    }
}

impl Drop for Begun {
    /// Whoever panics has told nothing.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Store {
    /// Writes down what is to be said if this process dies before the value
    /// is dropped. On disk when it returns.
    pub fn begin(&self, id: Id, mut record: RecordBody) -> Result<Begun> {
        record.detail[DETAIL] = serde_json::json!(id);
        let Worker { pid, start } = Worker::own();
        let text = crate::tx::json(&Words { pid, pid_start: start, record })?;
        let path = self.home().join(format!("{PREFIX}{id}{SUFFIX}"));
        let part = crate::open::beside(&path, ".new");
        let failed = |error| StoreError::io("write", &path, error);
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
        let made = made.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&part, &path)
        });
        made.inspect_err(|_| drop(fs::remove_file(&part))).map_err(failed)?;
        let begun = Begun { id, path };
        sync_directory(self.home())?;
        Ok(begun)
    }

    /// What would be said of everything that is under way, were it to die now.
    pub fn under_way(&self) -> Vec<RecordBody> {
        let names = fs::read_dir(self.home()).into_iter().flatten().flatten();
        let ours = names.map(|entry| entry.path()).filter(|path| is_one(path));
        ours.filter_map(|path| read(&path)).map(|words| words.record).collect()
    }
}

/// Where the id stands in a record.
const DETAIL: &str = "begun";

pub(crate) fn is_one(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
}

/// Whether nobody works on it any more.
pub(crate) fn is_over(path: &Path) -> bool {
    let worker = |words: Words| Worker { pid: words.pid, start: words.pid_start };
    read(path).is_none_or(|words| !worker(words).is_alive())
}

/// The words of one that is over, unless the journal has its story. Removed
/// first and inside the transaction: told once, whoever comes across it.
pub(crate) fn take(tx: &Tx<'_>, path: &Path) -> Result<Option<RecordBody>> {
    let words = read(path);
    let (Some(words), Ok(())) = (words, fs::remove_file(path)) else { return Ok(None) };
    let id = &words.record.detail[DETAIL];
    let told = tx.journal(None, LOOK_BACK)?.iter().any(|record| record.body.detail[DETAIL] == *id);
    Ok((!told).then(|| RecordBody { time_ms: now_ms(), ..words.record }))
}

fn read(path: &Path) -> Option<Words> {
    let small = fs::metadata(path).is_ok_and(|metadata| metadata.len() <= BYTES_MAX);
    if small { serde_json::from_slice(&fs::read(path).ok()?).ok() } else { None }
}
