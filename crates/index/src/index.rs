//! One index: some roots of records, and what is made from them.

use crate::catalog::Catalog;
use crate::graph::{self, GraphStore};
use crate::sync::{self, Progress, Synced};
use crate::vectors::VectorStore;
use crate::walk::Root;
use crate::{IndexError, Result};
use fractal_model::{GraphEdge, GraphReply, Id};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Records of some roots, ready to be asked. What it keeps in its directory
/// may be deleted at any time.
pub struct Index {
    dir: PathBuf,
    roots: Vec<Root>,
    pub(crate) catalog: Catalog,
    /// Who answers for relations in place of the catalog.
    relations: Option<Arc<dyn GraphStore + Send + Sync>>,
    /// Who answers for nearness in place of the vectors here.
    pub(crate) nearness: Option<Arc<dyn VectorStore>>,
}

impl Index {
    /// Opens the index in a directory, or makes an empty one there.
    pub fn open(dir: &Path, mut roots: Vec<Root>) -> Result<Index> {
        roots.sort_by(|a, b| a.name.cmp(&b.name));
        roots.dedup_by(|a, b| a.name == b.name);
        Ok(Index {
            dir: dir.to_owned(),
            roots,
            catalog: Catalog::open(dir)?,
            relations: None,
            nearness: None,
        })
    }

    /// The roots whose records it holds.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// Takes over what changed in the files.
    pub fn sync(&self, progress: Progress<'_>) -> Result<Synced> {
        sync::sync(&self.catalog, &self.roots, progress)
    }

    /// Throws everything away and reads all files again.
    pub fn rebuild(
        dir: &Path,
        roots: Vec<Root>,
        progress: Progress<'_>,
    ) -> Result<(Index, Synced)> {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(IndexError::io("remove", dir, error));
            }
            _ => {}
        }
        let index = Index::open(dir, roots)?;
        let synced = index.sync(progress)?;
        Ok((index, synced))
    }

    /// What lies within so many steps of a node.
    pub fn around(&self, node: &str, depth: u32) -> Result<GraphReply> {
        self.catalog.still(|| {
            let key = self.key_of(node)?;
            let (edges, cut) = graph::around(self.graph(), std::slice::from_ref(&key), depth)?;
            graph::with_nodes(&self.catalog, &[key], edges, cut)
        })
    }

    /// A shortest way between two nodes; one without edges when there is none.
    pub fn way(&self, from: &str, to: &str) -> Result<GraphReply> {
        self.catalog.still(|| {
            let (from, to) = (self.key_of(from)?, self.key_of(to)?);
            let edges = graph::path(self.graph(), &from, &to)?.unwrap_or_default();
            graph::with_nodes(&self.catalog, &[from, to], edges, false)
        })
    }

    /// Everything there is.
    pub fn whole(&self) -> Result<GraphReply> {
        let edges = self.graph().all(graph::EDGES_MAX + 1)?;
        let cut = edges.len() > graph::EDGES_MAX;
        let keys = self.catalog.ask(|conn| {
            let mut rows = conn.prepare_cached("SELECT key FROM files ORDER BY key LIMIT ?")?;
            rows.query_map([graph::EDGES_MAX as i64], |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<String>>>()
        })?;
        graph::with_nodes(&self.catalog, &keys, edges, cut)
    }

    /// The failures that look like this record, and what is said to have fixed
    /// any of them.
    pub fn fixes(&self, node: &str) -> Result<GraphReply> {
        let key = self.key_of(node)?;
        let alike = self.alike(&key)?;
        let is_fix = |edge: &GraphEdge| {
            let (fixed, fix) = match edge.kind.as_str() {
                "fixed-by" => (&edge.from, &edge.to),
                "fixes" => (&edge.to, &edge.from),
                _ => return false,
            };
            alike.contains(fixed) && !alike.contains(fix)
        };
        let mut edges = self.graph().touching(&alike, graph::EDGES_MAX)?;
        edges.retain(is_fix);
        graph::with_nodes(&self.catalog, &alike, edges, false)
    }

    /// Records with the signature of this one, it included.
    fn alike(&self, key: &str) -> Result<Vec<String>> {
        let mut alike: Vec<String> = self.catalog.ask(|conn| {
            let sql = "SELECT key FROM files WHERE signature = \
                       (SELECT signature FROM files WHERE key = ?) ORDER BY key LIMIT 1000";
            conn.prepare_cached(sql)?.query_map([key], |row| row.get(0))?.collect()
        })?;
        if !alike.iter().any(|other| other == key) {
            alike.push(key.to_owned());
        }
        Ok(alike)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Has a server answer for relations, which must be in step.
    pub fn related_by(&mut self, server: Arc<dyn GraphStore + Send + Sync>) {
        self.relations = Some(server);
    }

    /// Has a server answer for nearness, which must be in step.
    pub fn near_by(&mut self, server: Arc<dyn VectorStore>) {
        self.nearness = Some(server);
    }

    pub(crate) fn graph(&self) -> &dyn GraphStore {
        match &self.relations {
            Some(server) => server.as_ref(),
            None => self,
        }
    }

    /// What a node goes by that somebody names: a record by id or by its path
    /// (with or without its root), or a thing as `file:…`. Never a guess.
    pub fn key_of(&self, text: &str) -> Result<String> {
        let text = text.trim();
        if let Ok(id) = Id::parse(&text.to_ascii_uppercase()) {
            return self.key_by_id(id);
        }
        let is_thing =
            ["file:", "package:", "sandbox:", "url:"].iter().any(|it| text.starts_with(it));
        if is_thing {
            return Ok(text.to_owned());
        }
        let (root, path) = match text.split_once(':') {
            Some((root, path)) if self.roots.iter().any(|it| it.name == root) => (Some(root), path),
            _ => (None, text),
        };
        let path = path.trim_start_matches("./");
        let keys: Vec<String> = self.catalog.ask(|conn| {
            let sql = "SELECT key FROM files WHERE path = ?1 AND (?2 IS NULL OR root = ?2) LIMIT 2";
            conn.prepare_cached(sql)?.query_map((path, root), |row| row.get(0))?.collect()
        })?;
        match keys.as_slice() {
            [key] => Ok(key.clone()),
            [] => Err(IndexError::NoRecord { name: text.to_owned() }),
            _ => Err(IndexError::Question(format!(
                "there is a record `{}` in two places: name the place, as in `notes:{path}`",
                text.escape_debug()
            ))),
        }
    }

    fn key_by_id(&self, id: Id) -> Result<String> {
        let paths: Vec<String> = self.catalog.ask(|conn| {
            let sql =
                "SELECT root || ':' || path FROM files WHERE id = ? ORDER BY root, path LIMIT 5";
            conn.prepare_cached(sql)?.query_map([id.as_str()], |row| row.get(0))?.collect()
        })?;
        match paths.len() {
            0 => Err(IndexError::NoRecord { name: id.to_string() }),
            1 => Ok(id.to_string()),
            _ => Err(IndexError::Question(format!(
                "{} records have the id {id}: name one by its path ({})",
                paths.len(),
                paths.join(", ")
            ))),
        }
    }

    /// Bytes that it takes on disk.
    pub fn size_bytes(&self) -> u64 {
        let below = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
        let all = below(&self.dir).chain(below(&self.dir.join("vectors")));
        let files = all.filter_map(|entry| entry.metadata().ok()).filter(fs::Metadata::is_file);
        files.map(|meta| meta.len()).sum()
    }

    /// How many records, relations and faulty files there are.
    pub fn counts(&self) -> Result<Counts> {
        self.catalog.ask(|conn| {
            let sql = "SELECT (SELECT COUNT(*) FROM files), (SELECT COUNT(*) FROM edges), \
                       (SELECT COUNT(DISTINCT num) FROM faults)";
            conn.query_row(sql, [], |row| {
                Ok(Counts { records: row.get(0)?, edges: row.get(1)?, faulty: row.get(2)? })
            })
        })
    }
}

/// How much there is of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records.
    pub records: u64,
    /// Relations, implied ones included.
    pub edges: u64,
    /// Files with a fault.
    pub faulty: u64,
}
