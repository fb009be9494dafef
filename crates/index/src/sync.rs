//! Bringing the database in step with the files.
//!
//! A look at every file's state comes first, without a lock: usually nothing
//! changed and that is all. Otherwise the files are looked at again as the only
//! writer, and what changed is read. However many processes do this at once, the
//! last one leaves what stands in the files.

use crate::catalog::Catalog;
use crate::edges::{self, Target};
use crate::record::{self, Reading};
use crate::walk::{Ground, Root, Seen, Stamp, Walked, walk};
use crate::{IndexError, Result};
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a sync did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// Records that are new or changed.
    pub changed: u64,
    /// Records that are gone.
    pub gone: u64,
    /// Set when there was more than an index holds.
    pub cut: bool,
}

/// Told how many of how many changed files are read.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Takes over what changed below these roots.
pub(crate) fn sync(catalog: &Catalog, roots: &[Root], progress: Progress<'_>) -> Result<Synced> {
    let walked = walk_all(roots)?;
    let cut = walked.iter().any(|walked| walked.cut);
    if is_same(catalog, roots, &walked)? {
        return Ok(Synced { cut, ..Synced::default() });
    }
    drop(walked);
    catalog.transact(|conn| {
        // Again, now that nobody else writes what they saw.
        let now_ns = now_ns();
        let walked = walk_all(roots)?;
        let mut work = Work { conn, now_ns, touched: Touched::default(), settled: true };
        let done = work.take_over(roots, &walked, progress);
        done.map_err(|failure| failure.into_index(catalog))
    })
}

fn walk_all(roots: &[Root]) -> Result<Vec<Walked>> {
    roots.iter().map(walk).collect()
}

fn is_same(catalog: &Catalog, roots: &[Root], walked: &[Walked]) -> Result<bool> {
    let known: Vec<(String, String, String)> = catalog.ask(|conn| {
        let mut rows = conn.prepare_cached("SELECT name, path, digest FROM roots ORDER BY name")?;
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect()
    })?;
    let mut now: Vec<(String, String, String)> = roots
        .iter()
        .zip(walked)
        .map(|(root, walked)| {
            (root.name.clone(), root.path.to_string_lossy().into_owned(), walked.digest.clone())
        })
        .collect();
    now.sort();
    Ok(known == now)
}

fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// Errors of the database and of files meet inside of a transaction.
pub(crate) enum Failure {
    Sql(rusqlite::Error),
    Index(IndexError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::Sql(error)
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Failure {
        Failure::Index(error)
    }
}

impl Failure {
    fn into_index(self, catalog: &Catalog) -> IndexError {
        match self {
            Failure::Sql(error) => catalog.failed(error),
            Failure::Index(error) => error,
        }
    }
}

type Done<T> = std::result::Result<T, Failure>;

/// What has to be looked up again: links to these may lead elsewhere now.
#[derive(Default)]
struct Touched {
    nums: Vec<i64>,
    ids: BTreeSet<String>,
    paths: Vec<(String, String)>,
}

struct Work<'a> {
    conn: &'a Connection,
    now_ns: i64,
    touched: Touched,
    /// Unset when a file was so young that it has to be looked at again.
    settled: bool,
}

struct Known {
    num: i64,
    stamp: String,
}

impl Work<'_> {
    fn take_over(
        &mut self,
        roots: &[Root],
        walked: &[Walked],
        progress: Progress<'_>,
    ) -> Done<Synced> {
        let mut synced = Synced { cut: walked.iter().any(|it| it.cut), ..Synced::default() };
        self.forget_other_roots(roots, &mut synced)?;
        let mut changed: Vec<(&Root, &Seen, Option<i64>)> = Vec::new();
        for (root, walked) in roots.iter().zip(walked) {
            let mut known = self.known(&root.name)?;
            for seen in &walked.files {
                match known.remove(&seen.path) {
                    Some(was) if was.stamp == seen.stamp.to_text() => {}
                    was => changed.push((root, seen, was.map(|was| was.num))),
                }
            }
            for (path, was) in known {
                self.forget(&root.name, &path, was.num)?;
                synced.gone += 1;
            }
        }
        let total = changed.len() as u64;
        let mut grounds: HashMap<&str, Option<Ground<'_>>> = HashMap::new();
        for (done, (root, seen, num)) in changed.into_iter().enumerate() {
            progress(done as u64, total);
            if !grounds.contains_key(root.name.as_str()) {
                grounds.insert(&root.name, Ground::open(root)?);
            }
            let ground = grounds.get(root.name.as_str()).and_then(Option::as_ref);
            if ground.map_or(Ok(false), |ground| self.read(ground, seen, num))? {
                synced.changed += 1;
            }
        }
        progress(total, total);
        self.settle_keys()?;
        let Touched { nums, ids, paths } = &self.touched;
        for num in edges::resolve(self.conn, nums, ids, paths)? {
            self.renew(num)?;
        }
        for (root, walked) in roots.iter().zip(walked) {
            // Looked at once more next time, when something was too young.
            let digest = if self.settled { walked.digest.as_str() } else { "unsettled" };
            self.conn
                .prepare_cached(
                    "INSERT OR REPLACE INTO roots (name, path, digest) VALUES (?, ?, ?)",
                )?
                .execute(params![root.name, root.path.to_string_lossy(), digest])?;
        }
        Ok(synced)
    }

    /// Records of a root that is no longer asked for, or lies elsewhere now.
    fn forget_other_roots(&mut self, roots: &[Root], synced: &mut Synced) -> Done<()> {
        let mut rows = self.conn.prepare("SELECT name, path FROM roots")?;
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let known: Vec<(String, String)> = rows.collect::<rusqlite::Result<_>>()?;
        for (name, path) in known {
            let is_same = |root: &&Root| root.name == name && root.path.to_string_lossy() == path;
            if roots.iter().any(|root| is_same(&root)) {
                continue;
            }
            for (path, was) in self.known(&name)? {
                self.forget(&name, &path, was.num)?;
                synced.gone += 1;
            }
            self.conn.execute("DELETE FROM roots WHERE name = ?", [&name])?;
        }
        Ok(())
    }

    fn known(&self, root: &str) -> Done<HashMap<String, Known>> {
        let mut rows =
            self.conn.prepare_cached("SELECT path, num, stamp FROM files WHERE root = ?")?;
        let rows = rows.query_map([root], |row| {
            Ok((row.get(0)?, Known { num: row.get(1)?, stamp: row.get(2)? }))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn next_rev(&self) -> Done<i64> {
        let next = "INSERT INTO facts (name, value) VALUES ('rev', '1') \
                    ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING CAST(value AS INTEGER)";
        Ok(self.conn.prepare_cached(next)?.query_row([], |row| row.get(0))?)
    }

    fn forget(&mut self, root: &str, path: &str, num: i64) -> Done<()> {
        let (id, key) = self.names(num)?;
        self.touched.ids.extend(id);
        self.touched.paths.push((root.to_owned(), path.to_owned()));
        self.bury(&key)?;
        for sql in [
            "DELETE FROM files WHERE num = ?",
            "DELETE FROM edges WHERE source = ?",
            "DELETE FROM faults WHERE num = ?",
            "DELETE FROM words WHERE rowid = ?",
        ] {
            self.conn.prepare_cached(sql)?.execute([num])?;
        }
        Ok(())
    }

    /// Notes that nothing goes by a key any more.
    fn bury(&self, key: &str) -> Done<()> {
        let rev = self.next_rev()?;
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO gone (key, rev) VALUES (?, ?)")?
            .execute(params![key, rev])?;
        Ok(())
    }

    /// Somebody goes by it again.
    fn unbury(&self, key: &str) -> Done<()> {
        self.conn.prepare_cached("DELETE FROM gone WHERE key = ?")?.execute([key])?;
        Ok(())
    }

    /// The id of a record, and what it goes by.
    fn names(&self, num: i64) -> Done<(Option<String>, String)> {
        let mut row = self.conn.prepare_cached("SELECT id, key FROM files WHERE num = ?")?;
        Ok(row.query_row([num], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// Reads one file; false when it is gone meanwhile, which the next look
    /// takes care of.
    fn read(&mut self, ground: &Ground<'_>, seen: &Seen, num: Option<i64>) -> Done<bool> {
        let root = ground.root();
        let file = match ground.read(&seen.path) {
            Ok(file) => file,
            Err(error) => return self.unreadable(root, seen, num, &error).map(|()| true),
        };
        let stamp = file.stamp.settled(self.now_ns);
        self.settled &= stamp == file.stamp;
        let name = seen.path.rsplit('/').next().unwrap_or(&seen.path);
        let reading = record::read(&file.bytes, name);
        let body = String::from_utf8_lossy(&file.bytes[reading.body.clone()]).into_owned();
        self.put(root, seen, num, &stamp, &reading, &body)?;
        Ok(true)
    }

    /// A file that may not be read is found by its name, with the reason.
    fn unreadable(
        &mut self,
        root: &Root,
        seen: &Seen,
        num: Option<i64>,
        error: &std::io::Error,
    ) -> Done<()> {
        if error.kind() == std::io::ErrorKind::NotFound {
            self.settled = false;
            if let Some(num) = num {
                self.forget(&root.name, &seen.path, num)?;
            }
            return Ok(());
        }
        let name = seen.path.rsplit('/').next().unwrap_or(&seen.path);
        let mut reading = record::read(b"", name);
        reading.faults.push(crate::Fault::of_file(format!("it cannot be read: {error}")));
        self.put(root, seen, num, &seen.stamp, &reading, "")
    }

    fn put(
        &mut self,
        root: &Root,
        seen: &Seen,
        num: Option<i64>,
        stamp: &Stamp,
        reading: &Reading,
        body: &str,
    ) -> Done<()> {
        let record = &reading.record;
        let id = record.id.map(|id| id.to_string());
        let key = id.clone().unwrap_or_else(|| path_key(&root.name, &seen.path));
        if let Some((id, was)) = num.map(|num| self.names(num)).transpose()? {
            self.touched.ids.extend(id);
            if was != key {
                self.bury(&was)?;
            }
        }
        self.touched.ids.extend(id.clone());
        self.unbury(&key)?;
        self.touched.paths.push((root.name.clone(), seen.path.clone()));
        let about = about(record);
        let print = print_of_record(record, body);
        let by = record.generated.as_ref().map_or("", |stamp| &stamp.by);
        let at_ms = record.generated.as_ref().and_then(|stamp| stamp.at_ms);
        let row = params![
            num,
            root.name,
            seen.path,
            stamp.to_text(),
            id,
            record.kind.name(),
            record.title,
            record.description,
            record.status,
            record.outcome,
            record.stage,
            serde_json::to_string(&record.tags).unwrap_or_default(),
            by,
            at_ms.map(saturate),
            !record.verified.is_empty(),
            record.stale_after_ms.map(saturate),
            record.sandbox,
            record.signature,
            print,
            self.next_rev()?,
            key,
        ];
        self.conn.prepare_cached(PUT)?.execute(row)?;
        let num = num.unwrap_or_else(|| self.conn.last_insert_rowid());
        self.touched.nums.push(num);
        self.conn.prepare_cached("DELETE FROM words WHERE rowid = ?")?.execute([num])?;
        self.conn
            .prepare_cached("INSERT INTO words (rowid, title, about, body) VALUES (?, ?, ?, ?)")?
            .execute(params![num, record.title, about, body])?;
        self.put_faults(num, &reading.faults)?;
        self.put_edges(num, &root.name, &seen.path, reading)
    }

    fn put_faults(&self, num: i64, faults: &[crate::Fault]) -> Done<()> {
        self.conn.prepare_cached("DELETE FROM faults WHERE num = ?")?.execute([num])?;
        let mut insert = self
            .conn
            .prepare_cached("INSERT INTO faults (num, place, line, what) VALUES (?, ?, ?, ?)")?;
        for (place, fault) in faults.iter().enumerate() {
            insert.execute(params![num, place, fault.line, fault.what])?;
        }
        Ok(())
    }

    fn put_edges(&self, num: i64, root: &str, path: &str, reading: &Reading) -> Done<()> {
        self.conn.prepare_cached("DELETE FROM edges WHERE source = ?")?.execute([num])?;
        let mut insert = self.conn.prepare_cached(
            "INSERT INTO edges (source, place, kind, to_id, to_root, to_path, thing, raw, line) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        for (place, edge) in edges::of(path, reading).into_iter().enumerate() {
            let Target { id, path, thing } = edge.target;
            let to_root = path.as_ref().map(|_| root);
            insert.execute(params![
                num,
                place,
                edge.kind,
                id.map(|id| id.to_string()),
                to_root,
                path,
                thing,
                edge.raw,
                edge.line
            ])?;
        }
        Ok(())
    }

    /// Gives everything that shares a touched id what it goes by: the id where
    /// one record has it, the paths where several do.
    fn settle_keys(&self) -> Done<()> {
        let mut find = self
            .conn
            .prepare("SELECT num, key, root, path FROM files WHERE id = ? ORDER BY root, path")?;
        for id in &self.touched.ids {
            let rows = find
                .query_map([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
            let rows: Vec<(i64, String, String, String)> = rows.collect::<rusqlite::Result<_>>()?;
            let alone = rows.len() == 1;
            for (num, was, root, path) in rows {
                let key = if alone { id.clone() } else { path_key(&root, &path) };
                if was != key {
                    self.rename(num, &was, &key)?;
                }
            }
        }
        Ok(())
    }

    /// Counts as a change of a record whose file is as it was.
    fn renew(&self, num: i64) -> Done<()> {
        let rev = self.next_rev()?;
        self.conn
            .prepare_cached("UPDATE files SET rev = ? WHERE num = ?")?
            .execute(params![rev, num])?;
        Ok(())
    }

    fn rename(&self, num: i64, was: &str, key: &str) -> Done<()> {
        self.bury(was)?;
        self.unbury(key)?;
        let rev = self.next_rev()?;
        self.conn
            .prepare_cached("UPDATE files SET key = ?, rev = ? WHERE num = ?")?
            .execute(params![key, rev, num])?;
        Ok(())
    }
}

const PUT: &str = "INSERT OR REPLACE INTO files (num, root, path, stamp, id, kind, title, \
    description, status, outcome, stage, tags, by, at_ms, verified, stale_after_ms, sandbox, \
    signature, print, rev, key) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";

/// What a record goes by that has no id of its own.
pub(crate) fn path_key(root: &str, path: &str) -> String {
    format!("{root}:{path}")
}

fn saturate(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What is said of a record beside its title and text, as words to search.
fn about(record: &record::Record) -> String {
    let mut words = vec![record.description.as_str()];
    words.extend(record.tags.iter().map(String::as_str));
    words.extend([record.kind.name(), &record.outcome, &record.status, &record.stage]);
    words.extend(record.sandbox.as_deref());
    words.extend(record.signature.as_deref());
    words.retain(|word| !word.is_empty());
    words.join("\n")
}

/// Differs when what is found of a record does.
pub(crate) fn print_of_record(record: &record::Record, body: &str) -> String {
    let mut hasher = Sha256::new();
    for part in [record.title.as_str(), &about(record), body] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
