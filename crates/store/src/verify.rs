//! Looking for damage: slow, complete, and changing nothing.

use crate::{Reads, Result, Store, StoreError, gc, journal, read};
use fractal_model::Id;
use rusqlite::Connection;
use std::fmt;
use std::path::PathBuf;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The database does not read back as written.
    Database {
        /// What was seen.
        detail: String,
    },
    /// The journal was edited, cut or reordered.
    Chain {
        /// The first record that does not fit.
        seq: u64,
        /// What does not fit.
        detail: String,
    },
    /// A layer's directory is gone.
    LayerDirectory {
        /// The layer.
        layer: Id,
    },
    /// A sandbox, snapshot or layer stands on a layer that is not listed.
    LayerRow {
        /// Who: `sandbox x`, `snapshot s of …`, `layer …`.
        who: String,
        /// The missing layer.
        layer: String,
    },
    /// A volume's directory is gone.
    VolumeDirectory {
        /// The volume.
        volume: String,
    },
    /// A write into reality was begun and neither finished nor taken back.
    Unfinished {
        /// Its id.
        apply: Id,
        /// Where it works.
        root: PathBuf,
    },
    /// What an undo would need is gone.
    UndoDirectory {
        /// The promotion.
        apply: Id,
    },
    /// A directory of a layer, volume or undo that no row knows; it is left in
    /// place.
    Unlisted {
        /// The directory.
        path: PathBuf,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Database { detail } => write!(f, "the database is damaged: {detail}"),
            Problem::Chain { seq, detail } => {
                write!(f, "the journal is broken at record {seq}: {detail}")
            }
            Problem::LayerDirectory { layer } => {
                write!(f, "the directory of layer {layer} is missing")
            }
            Problem::LayerRow { who, layer } => {
                write!(f, "{who} stands on layer {layer}, which is not listed")
            }
            Problem::VolumeDirectory { volume } => {
                write!(f, "the directory of volume {volume} is missing")
            }
            Problem::Unfinished { apply, root } => write!(
                f,
                "promotion {apply} into {} could neither be finished nor taken back",
                root.display()
            ),
            Problem::UndoDirectory { apply } => {
                write!(f, "what an undo of {apply} needs is missing")
            }
            Problem::Unlisted { path } => {
                write!(f, "{} belongs to nothing that is listed", path.display())
            }
        }
    }
}

impl Problem {
    /// Whether the database has to be rebuilt to get rid of it.
    pub(crate) fn is_in_database(&self) -> bool {
        matches!(self, Problem::Database { .. } | Problem::Chain { .. })
    }
}

impl Store {
    /// Checks database, journal and directories. Fails only when the
    /// directory cannot be read at all; damage is an answer.
    pub fn verify(&self) -> Result<Vec<Problem>> {
        let mut problems = self.ask(inspect)?;
        // A damaged database was reported; what it says of layers is moot.
        if !problems.iter().any(|problem| matches!(problem, Problem::Database { .. })) {
            problems.extend(self.check_directories()?);
        }
        Ok(problems)
    }

    fn check_directories(&self) -> Result<Vec<Problem>> {
        let layers = self.ask(|conn| {
            read::many(conn, "SELECT id FROM layer ORDER BY id", [], |row| crate::rows::id(row, 0))
        })?;
        let gone = layers.into_iter().filter(|id| !self.layer_tree(*id).is_dir());
        let mut problems: Vec<Problem> =
            gone.map(|layer| Problem::LayerDirectory { layer }).collect();
        problems.extend(self.ask(missing_rows)?);
        let volumes = self.volumes()?.into_iter();
        let gone = volumes.filter(|row| !self.volume_data(&row.tenant, &row.name).is_dir());
        problems.extend(gone.map(|row| Problem::VolumeDirectory { volume: row.name.to_string() }));
        problems.extend(self.check_applies()?);
        let mut unlisted = self.ask(|conn| gc::unlisted(conn, &self.layers_dir()))?;
        unlisted.extend(self.ask(|conn| gc::unlisted_volumes(conn, &self.volumes_dir()))?);
        unlisted.extend(self.ask(|conn| gc::unlisted_undos(conn, &self.undos_dir()))?);
        let old = unlisted.into_iter().filter(|path| gc::is_old(path));
        problems.extend(old.map(|path| Problem::Unlisted { path }));
        Ok(problems)
    }
}

impl Store {
    /// One that somebody works on right now is no problem.
    fn check_applies(&self) -> Result<Vec<Problem>> {
        let mut problems = Vec::new();
        for row in self.applies()? {
            if !row.is_over() && !row.worker.is_alive() {
                problems.push(Problem::Unfinished { apply: row.id, root: row.root });
            } else if row.is_over() && row.kept && !self.undo_dir(row.id).is_dir() {
                problems.push(Problem::UndoDirectory { apply: row.id });
            }
        }
        Ok(problems)
    }
}

/// Everything that can be wrong within the database file.
pub(crate) fn inspect(conn: &Connection) -> Result<Vec<Problem>> {
    let checked = check_pages(conn).and_then(|mut problems| {
        problems.extend(journal::check_chain(conn)?);
        check_rows(conn)?;
        Ok(problems)
    });
    match checked {
        Err(StoreError::Corrupt { detail, .. }) => Ok(vec![Problem::Database { detail }]),
        other => other,
    }
}

/// SQLite's own check, which reports in words, at most a hundred lines.
fn check_pages(conn: &Connection) -> Result<Vec<Problem>> {
    let lines: Vec<String> =
        read::many(conn, "PRAGMA integrity_check", [], |row| row.get::<_, String>(0))?;
    let bad = lines.into_iter().filter(|line| line != "ok");
    Ok(bad.map(|detail| Problem::Database { detail }).collect())
}

/// Reads every row, so that a damaged value inside a sound page shows.
fn check_rows(conn: &Connection) -> Result<()> {
    struct Plain<'c>(&'c Connection);
    impl Reads for Plain<'_> {
        fn ask<T>(&self, job: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
            job(self.0)
        }
    }
    let plain = Plain(conn);
    for sandbox in plain.sandboxes()? {
        plain.snapshots(sandbox.id)?;
    }
    let layers = format!("SELECT {} FROM layer", crate::LayerRow::COLUMNS);
    read::many(conn, &layers, [], crate::LayerRow::read)?;
    plain.runs()?;
    plain.volumes()?;
    plain.applies()?;
    plain.keys()?;
    Ok(())
}

fn missing_rows(conn: &Connection) -> Result<Vec<Problem>> {
    let sql = "SELECT who, layer FROM (
            SELECT 'sandbox ' || name AS who, top AS layer FROM sandbox
            UNION ALL SELECT 'sandbox ' || name, base FROM sandbox WHERE base IS NOT NULL
            UNION ALL SELECT 'snapshot ' || name || ' of ' || sandbox, layer FROM snapshot
            UNION ALL SELECT 'layer ' || id, below FROM layer WHERE below IS NOT NULL)
        WHERE layer NOT IN (SELECT id FROM layer) ORDER BY who, layer";
    read::many(conn, sql, [], |row| Ok(Problem::LayerRow { who: row.get(0)?, layer: row.get(1)? }))
}
