//! Collecting layers that nobody stands on.
//!
//! Kept are the tops, bases and snapshots of all sandboxes and everything
//! below them. Rows go in one transaction, so a layer that a concurrent fork
//! stands on is either seen here or its insertion fails there. Directories
//! without a row may be a layer in the making; only old ones go, and inside
//! the transaction, since `insert_layer` looks for the directory in its own.

use crate::layers::SALVAGED;
use crate::open::DB;
use crate::{Reads, Result, Store, StoreError, read, tree};
use fractal_model::Id;
use rusqlite::Connection;
use std::ffi::{CString, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a directory may wait for its row.
const WITHOUT_ROW_MAX: Duration = Duration::from_secs(600);

/// All layers that must stay.
const KEPT: &str = "WITH RECURSIVE kept(layer) AS (
    SELECT top FROM sandbox
    UNION SELECT base FROM sandbox WHERE base IS NOT NULL
    UNION SELECT layer FROM snapshot
    UNION SELECT layer FROM capture
    UNION SELECT below FROM layer JOIN kept ON id = layer WHERE below IS NOT NULL)";

/// What `gc` removed, or would remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Layers nobody stood on.
    pub layers: u64,
    /// Disk space freed.
    pub bytes: u64,
}

impl Store {
    /// Removes layers nobody stands on, leftovers of crashes, and the trash;
    /// with `dry_run` only says what it would remove.
    pub fn gc(&self, dry_run: bool) -> Result<GcReport> {
        if dry_run { self.gc_preview() } else { self.gc_now() }
    }

    fn gc_preview(&self) -> Result<GcReport> {
        let garbage = self.ask(|conn| garbage(conn, self.home()))?;
        let mut doomed: Vec<PathBuf> = garbage.iter().map(|id| self.layer_dir(*id)).collect();
        doomed.extend(self.ask(|conn| leftovers(conn, &self.layers_dir()))?);
        let layers = doomed.len() as u64;
        doomed.extend(self.ask(|conn| old_undos(conn, &self.undos_dir()))?);
        doomed.extend(self.ask(|conn| old_bases(conn, &self.bases_dir()))?);
        doomed.extend(names_in(&self.trash_dir())?.iter().map(|name| self.trash_dir().join(name)));
        let bytes = tree::measure_freed(&doomed);
        Ok(GcReport { layers, bytes })
    }

    fn gc_now(&self) -> Result<GcReport> {
        let (garbage, leftovers) = self.transact(|tx| {
            let garbage = garbage(tx.conn, self.home())?;
            for id in &garbage {
                tx.run("DELETE FROM layer WHERE id = ?1", [id.as_str()])?;
            }
            let leftovers = leftovers(tx.conn, &self.layers_dir())?;
            let undos = old_undos(tx.conn, &self.undos_dir())?;
            let bases = old_bases(tx.conn, &self.bases_dir())?;
            for path in leftovers.iter().chain(&undos).chain(&bases) {
                self.move_to_trash(path)?;
            }
            Ok((garbage, leftovers))
        })?;
        // After the commit: a crash here leaves directories without rows,
        // which the next gc finds; the other order would leave rows without
        // directories.
        for id in &garbage {
            self.move_to_trash(&self.layer_dir(*id))?;
        }
        self.remove_unpublished();
        let layers = (garbage.len() + leftovers.len()) as u64;
        Ok(GcReport { layers, bytes: self.empty_trash()? })
    }

    /// Deletes what can be deleted and returns the space it took.
    fn empty_trash(&self) -> Result<u64> {
        let trash = self.trash_dir();
        let mut bytes = 0;
        for name in names_in(&trash)? {
            let size = tree::measure_freed([&trash.join(&name)]);
            let Ok(entry) = CString::new(name.as_bytes()) else { continue };
            if tree::remove(&trash, entry).is_ok() {
                bytes += size;
            }
        }
        Ok(bytes)
    }

    /// Databases whose maker died before it could put them into place.
    fn remove_unpublished(&self) {
        let prefix = format!("{DB}.new-");
        for name in names_in(self.home()).unwrap_or_default() {
            let path = self.home().join(&name);
            if name.as_bytes().starts_with(prefix.as_bytes()) && is_old(&path) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn garbage(conn: &Connection, home: &Path) -> Result<Vec<Id>> {
    let mut ids = unreachable(conn)?;
    ids.retain(|id| !crate::layers::directory(home, *id).join(SALVAGED).exists());
    Ok(ids)
}

/// Layers with a row that no sandbox stands on.
pub(crate) fn unreachable(conn: &Connection) -> Result<Vec<Id>> {
    let sql = format!("{KEPT} SELECT id FROM layer WHERE id NOT IN (SELECT layer FROM kept)");
    read::many(conn, &sql, [], |row| crate::rows::id(row, 0))
}

/// Old directories below `layers` without a row.
fn leftovers(conn: &Connection, layers: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = unlisted(conn, layers)?;
    paths.retain(|path| is_old(path) && !path.join(SALVAGED).exists());
    Ok(paths)
}

/// Old directories below `undo` without a row: their maker died before its
/// first write, or went back completely.
fn old_undos(conn: &Connection, undos: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = unlisted_undos(conn, undos)?;
    paths.retain(|path| is_old(path));
    Ok(paths)
}

/// Old directories below `bases` whose sandbox is gone.
fn old_bases(conn: &Connection, bases: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = not_found_by(conn, bases, "SELECT 1 FROM sandbox WHERE id = ?1")?;
    paths.retain(|path| is_old(path));
    Ok(paths)
}

/// All directories below `layers` without a row.
pub(crate) fn unlisted(conn: &Connection, layers: &Path) -> Result<Vec<PathBuf>> {
    not_found_by(conn, layers, "SELECT 1 FROM layer WHERE id = ?1")
}

/// All directories below `volumes` without a row.
pub(crate) fn unlisted_volumes(conn: &Connection, volumes: &Path) -> Result<Vec<PathBuf>> {
    let sql = "SELECT 1 FROM volume WHERE iif(tenant = '', name, tenant || '@' || name) = ?1";
    not_found_by(conn, volumes, sql)
}

/// All directories below `undo` without a row.
pub(crate) fn unlisted_undos(conn: &Connection, undos: &Path) -> Result<Vec<PathBuf>> {
    not_found_by(conn, undos, "SELECT 1 FROM apply WHERE id = ?1")
}

fn not_found_by(conn: &Connection, directory: &Path, sql: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for name in names_in(directory)? {
        let listed = match name.to_str() {
            Some(name) => read::one(conn, sql, [name], |_| Ok(()))?.is_some(),
            None => false,
        };
        if !listed {
            paths.push(directory.join(name));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether neither the path nor its tree changed for a while. A clock that
/// went backwards makes things young, never old.
pub(crate) fn is_old(path: &Path) -> bool {
    let old = |path: &Path| {
        let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        modified.map(|time| time.elapsed().is_ok_and(|age| age > WITHOUT_ROW_MAX))
    };
    old(path).unwrap_or(false) && old(&path.join("tree")).unwrap_or(true)
}

fn names_in(path: &Path) -> Result<Vec<OsString>> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| StoreError::io("read", path, error))?,
    };
    Ok(entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name())).collect())
}
