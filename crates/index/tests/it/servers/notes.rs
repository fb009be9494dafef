//! Records on disk, and an index of them.

use fractal_index::{Index, Root, RootKind};
use std::fs;
use std::path::PathBuf;

pub struct Notes {
    dir: tempfile::TempDir,
}

impl Notes {
    pub fn new() -> Notes {
        let notes = Notes { dir: tempfile::tempdir().expect("a temporary directory") };
        fs::create_dir(notes.dir.path().join("notes")).expect("it is made");
        notes
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("notes").join(format!("{name}.md"))
    }

    /// A record with what its head says beside its title.
    pub fn write(&self, name: &str, title: &str, head: &str, body: &str) {
        let title = serde_json::to_string(title).expect("it is text");
        let text = format!("---\ntype: Insight\ntitle: {title}\n{head}---\n{body}\n");
        fs::write(self.at(name), text).expect("it is written");
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.at(name)).expect("it is there");
    }

    /// Renames a file: without an id of its own, the record gets another key.
    pub fn rename(&self, from: &str, to: &str) {
        fs::rename(self.at(from), self.at(to)).expect("it is there");
    }

    pub fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    pub fn index(&self) -> Index {
        let path = self.dir.path().join("notes");
        let roots = vec![Root { name: "notes".into(), path, kind: RootKind::Notes }];
        let index = Index::open(&self.cache(), roots).expect("it opens");
        // Files that are younger than a tick of the kernel's clock are read twice.
        std::thread::sleep(std::time::Duration::from_millis(25));
        index.sync(&mut |_, _| ()).expect("it is in step");
        index
    }

    /// All keys with their numbers.
    pub fn keys(&self) -> Vec<(String, u64)> {
        let conn = self.database();
        let mut rows = conn.prepare("SELECT key, num FROM files ORDER BY key").expect("a table");
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        rows.collect::<Result<_, _>>().expect("keys and numbers")
    }

    pub fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.cache().join("index.db")).expect("it opens")
    }
}

/// What a note without an id goes by.
pub fn key(name: &str) -> String {
    format!("notes:{name}.md")
}
