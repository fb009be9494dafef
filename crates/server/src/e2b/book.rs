//! What clients were promised about each sandbox, and what the engine has no
//! word for: a file each below `e2b/` in the state directory, written beside
//! and renamed. Sandboxes themselves are the engine's.

use crate::failure::Failure;
use fractal::Error;
use fractal::model::{Id, Key};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// What happens when a sandbox's time is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnEnd {
    #[default]
    Kill,
    Pause,
}

/// Whether anything runs in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    #[default]
    Running,
    Paused,
    /// A snapshot: never runs, and others start from it.
    Snapshot,
}

/// One sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub id: Id,
    /// What it was made from, in the client's words.
    pub template: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Variables of every process in it.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    pub started_ms: u64,
    pub ends_ms: u64,
    #[serde(default)]
    pub on_end: OnEnd,
    #[serde(default)]
    pub auto_resume: bool,
    #[serde(default)]
    pub phase: Phase,
    /// Of a snapshot: what it was taken from, and how it is called.
    #[serde(default)]
    pub of: Option<Id>,
    #[serde(default)]
    pub names: Vec<String>,
    #[serde(default)]
    pub allow_internet: Option<bool>,
    /// The name of the request that made it.
    #[serde(default)]
    pub once: Option<String>,
    /// The key that made it, without its secret; none for the owner. What the
    /// token opens ends with it.
    #[serde(default)]
    pub key: Option<Key>,
}

impl Entry {
    /// Its id as clients write it.
    pub fn public_id(&self) -> String {
        public(self.id)
    }

    pub fn is_due(&self, now_ms: u64) -> bool {
        self.phase == Phase::Running && self.ends_ms <= now_ms
    }
}

/// An id as clients write it: it stands in names of hosts.
pub fn public(id: Id) -> String {
    id.as_str().to_ascii_lowercase()
}

/// The id behind one that clients write.
pub fn private(text: &str) -> Option<Id> {
    Id::parse(&text.to_ascii_uppercase()).ok()
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// All of them. The files are the truth; they are read once.
pub struct Book {
    dir: PathBuf,
    entries: OnceLock<Mutex<BTreeMap<Id, Entry>>>,
}

impl Book {
    pub fn new(home: &Path) -> Book {
        Book { dir: home.join("e2b"), entries: OnceLock::new() }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Id, Entry>> {
        let entries = self.entries.get_or_init(|| Mutex::new(read_all(&self.dir)));
        entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, id: Id) -> Option<Entry> {
        self.entries().get(&id).cloned()
    }

    /// The one that a request of this name has made.
    pub fn made_by(&self, name: &str) -> Option<Entry> {
        self.entries().values().find(|entry| entry.once.as_deref() == Some(name)).cloned()
    }

    pub fn all(&self) -> Vec<Entry> {
        self.entries().values().cloned().collect()
    }

    /// Writes one down, new or changed.
    pub fn put(&self, entry: Entry) -> Result<(), Failure> {
        let mut entries = self.entries();
        self.write(&entry)?;
        entries.insert(entry.id, entry);
        Ok(())
    }

    /// Changes one, if it is there; what `change` refuses is not written.
    pub fn change<T>(
        &self,
        id: Id,
        change: impl FnOnce(&mut Entry) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let mut entries = self.entries();
        let Some(mut entry) = entries.get(&id).cloned() else { return Ok(None) };
        let done = change(&mut entry)?;
        self.write(&entry)?;
        entries.insert(id, entry);
        Ok(Some(done))
    }

    pub fn forget(&self, id: Id) {
        let mut entries = self.entries();
        entries.remove(&id);
        // One that stays is forgotten when its sandbox is looked for.
        let _ = fs::remove_file(self.file(id));
        let _ = fs::remove_file(self.file(id).with_extension("draft"));
    }

    fn file(&self, id: Id) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }

    fn write(&self, entry: &Entry) -> Result<(), Failure> {
        let cannot = |error: io::Error| {
            Error::internal(format!("the sandbox's entry cannot be kept: {error}"))
        };
        let text = serde_json::to_vec(entry).map_err(|error| cannot(error.into()))?;
        let file = self.file(entry.id);
        let draft = file.with_extension("draft");
        let write = || {
            fs::create_dir_all(&self.dir)?;
            let mut open = fs::File::create(&draft)?;
            open.write_all(&text)?;
            open.sync_all()?;
            fs::rename(&draft, &file)?;
            fs::File::open(&self.dir)?.sync_all()
        };
        write().map_err(|error| cannot(error).into())
    }
}

fn read_all(dir: &Path) -> BTreeMap<Id, Entry> {
    let Ok(files) = fs::read_dir(dir) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for file in files.flatten().map(|file| file.path()) {
        if file.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read(&file).map_err(|error| error.to_string());
        let entry = text.and_then(|text| {
            serde_json::from_slice::<Entry>(&text).map_err(|error| error.to_string())
        });
        match entry {
            Ok(entry) => drop(found.insert(entry.id, entry)),
            Err(why) => tracing::warn!("{} does not read: {why}", file.display()),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_there_after_a_restart_and_broken_ones_break_nothing() {
        let home = tempfile::tempdir().expect("a directory");
        let id = Id::parse("01M7JG3D8E1MV1YPPAV0WGSZFX").expect("an id");
        assert_eq!(private(&public(id)), Some(id));
        let entry = Entry {
            id,
            template: "base".to_owned(),
            metadata: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            envs: BTreeMap::new(),
            started_ms: 1,
            ends_ms: 2,
            on_end: OnEnd::Pause,
            auto_resume: true,
            phase: Phase::Paused,
            of: None,
            names: Vec::new(),
            allow_internet: None,
            once: None,
            key: None,
        };
        Book::new(home.path()).put(entry).expect("it is written");
        fs::write(home.path().join("e2b/broken.json"), "{").expect("it is written");
        let again = Book::new(home.path());
        let found = again.get(id).expect("it is there");
        assert_eq!((found.on_end, found.phase), (OnEnd::Pause, Phase::Paused));
        assert!(!found.is_due(u64::MAX), "what is paused does not end");
        again.forget(id);
        assert!(Book::new(home.path()).all().is_empty());
    }
}
