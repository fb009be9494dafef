//! Records and what they stand in relation to, as a graph.
//!
//! A store of edges answers one question, which edges touch these nodes;
//! everything else is a walk over its answers. So each store gives the same
//! answers, and only the walk knows what they mean.

use crate::Result;
use crate::catalog::Catalog;
use fractal_model::{GraphEdge as Edge, GraphNode as Node, GraphReply};
use rusqlite::params;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// More nodes than anybody reads.
pub const NODES_MAX: usize = 10_000;
/// Further than anything is related.
pub const DEPTH_MAX: u32 = 32;

/// Where edges are kept. Two exist: the database of the index, and a server
/// that is kept in step with it.
pub trait GraphStore {
    /// The edges that begin or end at one of these nodes, in any order.
    fn touching(&self, keys: &[String], limit: usize) -> Result<Vec<Edge>>;
    /// All edges.
    fn all(&self, limit: usize) -> Result<Vec<Edge>>;
}

/// The edges in the database of the index.
pub(crate) struct Embedded<'a>(pub &'a Catalog);

const FROM_EDGES: &str = "FROM edges JOIN files AS a ON a.num = edges.source \
    LEFT JOIN files AS b ON b.num = edges.target";
const COLUMNS: &str = "a.key, edges.kind, COALESCE(b.key, edges.thing)";
const IS_WHOLE: &str = "COALESCE(b.key, edges.thing) IS NOT NULL";

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Edge> {
    Ok(Edge { from: row.get(0)?, kind: row.get(1)?, to: row.get(2)? })
}

impl GraphStore for Embedded<'_> {
    fn touching(&self, keys: &[String], limit: usize) -> Result<Vec<Edge>> {
        self.0.ask(|conn| {
            let out = format!("SELECT {COLUMNS} {FROM_EDGES} WHERE a.key = ?1 AND {IS_WHOLE}");
            let into = format!("SELECT {COLUMNS} {FROM_EDGES} WHERE b.key = ?1");
            let thing = format!(
                "SELECT {COLUMNS} {FROM_EDGES} WHERE edges.thing = ?1 AND edges.target IS NULL"
            );
            let mut found = Vec::new();
            for key in keys {
                for sql in [&out, &into, &thing] {
                    let mut rows = conn.prepare_cached(sql)?;
                    let rows = rows.query_map(params![key], read)?;
                    for edge in rows.take(limit.saturating_sub(found.len())) {
                        found.push(edge?);
                    }
                }
            }
            Ok(found)
        })
    }

    fn all(&self, limit: usize) -> Result<Vec<Edge>> {
        self.0.ask(|conn| {
            let sql = format!("SELECT {COLUMNS} {FROM_EDGES} WHERE {IS_WHOLE} LIMIT ?1");
            let mut rows = conn.prepare_cached(&sql)?;
            rows.query_map(params![limit as i64], read)?.collect()
        })
    }
}

impl GraphStore for crate::Index {
    fn touching(&self, keys: &[String], limit: usize) -> Result<Vec<Edge>> {
        Embedded(&self.catalog).touching(keys, limit)
    }

    fn all(&self, limit: usize) -> Result<Vec<Edge>> {
        Embedded(&self.catalog).all(limit)
    }
}

/// The edges within so many steps of these nodes, in order, and whether there
/// are more than anybody reads.
pub fn around(store: &dyn GraphStore, from: &[String], depth: u32) -> Result<(Vec<Edge>, bool)> {
    let mut seen: BTreeSet<String> = from.iter().cloned().collect();
    let mut edges = BTreeSet::new();
    let mut front: Vec<String> = seen.iter().cloned().collect();
    for _ in 0..depth.min(DEPTH_MAX) {
        let found = store.touching(&front, EDGES_MAX + 1)?;
        let mut cut = found.len() > EDGES_MAX;
        let mut next = BTreeSet::new();
        for edge in found {
            for key in [&edge.from, &edge.to] {
                if !seen.contains(key) && seen.len() < NODES_MAX {
                    seen.insert(key.clone());
                    next.insert(key.clone());
                }
                cut |= !seen.contains(key);
            }
            if seen.contains(&edge.from) && seen.contains(&edge.to) {
                edges.insert(edge);
            }
        }
        if cut {
            return Ok((edges.into_iter().collect(), true));
        }
        if next.is_empty() {
            break;
        }
        front = next.into_iter().collect();
    }
    Ok((edges.into_iter().collect(), false))
}

pub(crate) const EDGES_MAX: usize = 100_000;

/// A shortest way between two nodes, whichever way its edges point.
pub fn path(store: &dyn GraphStore, from: &str, to: &str) -> Result<Option<Vec<Edge>>> {
    let mut came: BTreeMap<String, Option<Edge>> = BTreeMap::from([(from.to_owned(), None)]);
    let mut front = VecDeque::from([from.to_owned()]);
    while let Some(at) = front.pop_front() {
        if at == to {
            return Ok(Some(way_back(&came, to)));
        }
        if came.len() > NODES_MAX {
            break;
        }
        let mut edges = store.touching(std::slice::from_ref(&at), EDGES_MAX)?;
        edges.sort();
        for edge in edges {
            let other = if edge.from == at { edge.to.clone() } else { edge.from.clone() };
            if !came.contains_key(&other) {
                came.insert(other.clone(), Some(edge));
                front.push_back(other);
            }
        }
    }
    Ok(None)
}

fn way_back(came: &BTreeMap<String, Option<Edge>>, to: &str) -> Vec<Edge> {
    let mut way = Vec::new();
    let mut at = to.to_owned();
    while let Some(Some(edge)) = came.get(&at) {
        at = if edge.to == at { edge.from.clone() } else { edge.to.clone() };
        way.push(edge.clone());
    }
    way.reverse();
    way
}

/// The nodes that edges touch, and these. Things are named by their keys.
pub(crate) fn with_nodes(
    catalog: &Catalog,
    more: &[String],
    mut edges: Vec<Edge>,
    cut: bool,
) -> Result<GraphReply> {
    edges.sort();
    edges.dedup();
    let keys: BTreeSet<&str> = edges
        .iter()
        .flat_map(|edge| [edge.from.as_str(), edge.to.as_str()])
        .chain(more.iter().map(String::as_str))
        .collect();
    let nodes = keys.into_iter().map(|key| node(catalog, key)).collect::<Result<_>>()?;
    Ok(GraphReply { nodes, edges, cut })
}

fn node(catalog: &Catalog, key: &str) -> Result<Node> {
    let record = catalog.ask(|conn| {
        let mut rows =
            conn.prepare_cached("SELECT kind, title, root, path FROM files WHERE key = ? LIMIT 1")?;
        let mut rows = rows.query_map([key], |row| {
            Ok(Node {
                key: key.to_owned(),
                kind: row.get::<_, String>(0)?.to_lowercase(),
                title: row.get(1)?,
                root: row.get(2)?,
                path: row.get(3)?,
                file: None,
            })
        })?;
        rows.next().transpose()
    })?;
    Ok(record.unwrap_or_else(|| {
        let (kind, title) = key.split_once(':').unwrap_or(("record", key));
        Node {
            key: key.to_owned(),
            kind: kind.to_owned(),
            title: title.to_owned(),
            root: None,
            path: None,
            file: None,
        }
    }))
}
