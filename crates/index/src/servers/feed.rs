//! The changes of an index, in their order, as batches.
//!
//! What changed and what is gone are two lists with numbers of one row. A
//! relation goes with the later of its two ends, so that each is sent once, and
//! never to a server that does not have both ends yet.

use super::{Batch, Changed, Feed};
use crate::Result;
use crate::catalog::Catalog;
use fractal_model::GraphEdge;
use rusqlite::{Connection, Row, params};
use std::collections::{BTreeMap, BTreeSet};

/// A record that is gone; one that came back under the same key is not.
const GONE: &str = "FROM gone WHERE rev > ?1 \
    AND NOT EXISTS (SELECT 1 FROM files WHERE files.key = gone.key)";

/// Records whose vectors are there, by the later of two changes. Two parts, so
/// that each is read along an index.
const WITH_VECTORS: &str = "\
    SELECT * FROM (SELECT files.rev AS at, num FROM files JOIN embedded USING (num) \
        WHERE files.rev > ?1 AND embedded.rev < files.rev ORDER BY files.rev LIMIT ?2) \
    UNION ALL \
    SELECT * FROM (SELECT embedded.rev AS at, num FROM embedded JOIN files USING (num) \
        WHERE embedded.rev > ?1 AND files.rev < embedded.rev ORDER BY embedded.rev LIMIT ?2) \
    ORDER BY at LIMIT ?2";

const RECORDS: &str = "SELECT rev, num FROM files WHERE rev > ?1 ORDER BY rev LIMIT ?2";

fn changed(feed: Feed) -> &'static str {
    match feed {
        Feed::Records => RECORDS,
        Feed::Vectors => WITH_VECTORS,
    }
}

enum Change {
    Put(i64),
    Gone(String),
}

/// The next so many changes after one; a batch without any is the end.
pub(super) fn next(catalog: &Catalog, feed: Feed, after: u64, limit: usize) -> Result<Batch> {
    catalog.look(|conn| {
        let mut batch = Batch { upto: after, ..Batch::default() };
        let mut nums = Vec::new();
        for (rev, change) in changes(conn, feed, after, limit)? {
            batch.upto = rev;
            match change {
                Change::Gone(key) => batch.gone.push(key),
                Change::Put(num) => {
                    nums.push(num);
                    batch.records.push(record(conn, num)?);
                }
            }
        }
        if feed == Feed::Records {
            relations(conn, &nums, &mut batch)?;
        }
        Ok(batch)
    })
}

fn changes(
    conn: &Connection,
    feed: Feed,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<(u64, Change)>> {
    let mut put = conn.prepare_cached(changed(feed))?;
    let put = put.query_map(params![after, limit as i64], |row| {
        Ok((row.get(0)?, Change::Put(row.get(1)?)))
    })?;
    let mut all = put.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut gone = conn.prepare_cached(&format!("SELECT rev, key {GONE} ORDER BY rev LIMIT ?2"))?;
    let gone = gone.query_map(params![after, limit as i64], |row| {
        Ok((row.get(0)?, Change::Gone(row.get(1)?)))
    })?;
    for change in gone {
        all.push(change?);
    }
    all.sort_by_key(|(rev, _)| *rev);
    all.truncate(limit);
    Ok(all)
}

fn record(conn: &Connection, num: i64) -> rusqlite::Result<Changed> {
    let sql = "SELECT num, key, kind, title, status, outcome, root, path, at_ms \
               FROM files WHERE num = ?";
    conn.prepare_cached(sql)?.query_row([num], |row| {
        Ok(Changed {
            num: row.get(0)?,
            key: row.get(1)?,
            kind: row.get(2)?,
            title: row.get(3)?,
            status: row.get(4)?,
            outcome: row.get(5)?,
            root: row.get(6)?,
            path: row.get(7)?,
            at_ms: row.get::<_, Option<i64>>(8)?.and_then(|at| at.try_into().ok()),
        })
    })
}

/// Relations of these records whose other end is not still to come.
fn relations(conn: &Connection, nums: &[i64], batch: &mut Batch) -> rusqlite::Result<()> {
    const EDGES: &str = "SELECT source, place, a.key, edges.kind, b.key, thing FROM edges \
        JOIN files AS a ON a.num = source LEFT JOIN files AS b ON b.num = target";
    let mut out = conn.prepare_cached(&format!(
        "{EDGES} WHERE source = ?1 AND COALESCE(b.key, thing) IS NOT NULL \
         AND COALESCE(b.rev, 0) <= ?2"
    ))?;
    let mut into = conn.prepare_cached(&format!("{EDGES} WHERE target = ?1 AND a.rev <= ?2"))?;
    let mut things = BTreeSet::new();
    // By its place in its file, since each end may bring it.
    let mut edges = BTreeMap::new();
    for num in nums {
        for rows in [&mut out, &mut into] {
            for edge in rows.query_map(params![num, batch.upto], edge)? {
                let (place, edge, is_thing) = edge?;
                if is_thing {
                    things.insert(edge.to.clone());
                }
                edges.insert(place, edge);
            }
        }
    }
    batch.edges = edges.into_values().collect();
    batch.things = things.into_iter().collect();
    Ok(())
}

fn edge(row: &Row<'_>) -> rusqlite::Result<((i64, i64), GraphEdge, bool)> {
    let (record, thing): (Option<String>, Option<String>) = (row.get(4)?, row.get(5)?);
    let is_thing = record.is_none();
    let to = record.or(thing).unwrap_or_default();
    let edge = GraphEdge { from: row.get(2)?, kind: row.get(3)?, to };
    Ok(((row.get(0)?, row.get(1)?), edge, is_thing))
}

/// How many changes come after one.
pub(super) fn count(catalog: &Catalog, feed: Feed, after: u64) -> Result<u64> {
    catalog.look(|conn| {
        let sql = format!("SELECT COUNT(*) FROM ({})", changed(feed));
        let put: u64 =
            conn.prepare_cached(&sql)?.query_row(params![after, i64::MAX], |row| row.get(0))?;
        let sql = format!("SELECT COUNT(*) {GONE}");
        let gone: u64 = conn.prepare_cached(&sql)?.query_row([after], |row| row.get(0))?;
        Ok(put + gone)
    })
}

/// The keys of all that a server should have, in order.
pub(super) fn keys(catalog: &Catalog, feed: Feed) -> Result<Vec<String>> {
    catalog.ask(|conn| {
        let sql = match feed {
            Feed::Records => "SELECT key FROM files ORDER BY key",
            Feed::Vectors => "SELECT key FROM files JOIN embedded USING (num) ORDER BY key",
        };
        conn.prepare_cached(sql)?.query_map([], |row| row.get(0))?.collect()
    })
}
