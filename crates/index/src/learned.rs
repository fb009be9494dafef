//! Lists of records: what was learned, and what failed in the same way.

use crate::Result;
use crate::index::Index;
use fractal_model::{FailureGroup, LearnedReply, Learning};
use rusqlite::{OptionalExtension, Row, ToSql};

/// As many as a digest has of each.
const LISTED_MAX: i64 = 200;

const COLUMNS: &str = "key, kind, title, outcome, at_ms, root, path";
/// Newest first; what has no time comes last, and the path decides.
const NEWEST: &str = "ORDER BY at_ms IS NULL, at_ms DESC, root, path";

/// A failure is written down once and led to by everything that failed so; one
/// that nothing leads to happened once.
const GROUPS: &str = "
    SELECT signature, SUM(times), MAX(last) FROM (
        SELECT f.signature AS signature, MAX(1, COUNT(e.num)) AS times,
            MAX(COALESCE(f.at_ms, 0), COALESCE(MAX(e.at_ms), 0)) AS last
        FROM files AS f
        LEFT JOIN edges ON edges.target = f.num AND edges.kind = 'failed-with'
        LEFT JOIN files AS e ON e.num = edges.source
        WHERE f.signature IS NOT NULL GROUP BY f.num)
    WHERE last >= ?1 GROUP BY signature ORDER BY 2 DESC, 3 DESC, 1 LIMIT ?2";

fn learning(row: &Row<'_>) -> rusqlite::Result<Learning> {
    Ok(Learning {
        key: row.get(0)?,
        kind: row.get(1)?,
        title: row.get(2)?,
        outcome: row.get(3)?,
        at_ms: row.get(4)?,
        root: row.get(5)?,
        path: row.get(6)?,
        file: None,
    })
}

impl Index {
    fn list(&self, condition: &str, values: &[&dyn ToSql]) -> Result<Vec<Learning>> {
        let sql =
            format!("SELECT {COLUMNS} FROM files WHERE {condition} {NEWEST} LIMIT {LISTED_MAX}");
        self.catalog.ask(|conn| conn.prepare_cached(&sql)?.query_map(values, learning)?.collect())
    }

    /// What was learned since then.
    pub fn learned(&self, since_ms: u64) -> Result<LearnedReply> {
        let since = i64::try_from(since_ms).unwrap_or(i64::MAX);
        let kinds = "kind IN ('Insight', 'Decision', 'Pattern') AND COALESCE(at_ms, 0) >= ?";
        let count = |outcome: &str| {
            self.catalog.ask(|conn| {
                let sql = "SELECT COUNT(*) FROM files WHERE kind = 'Experiment' \
                           AND COALESCE(at_ms, 0) >= ? AND (outcome = 'passed') = ?";
                conn.query_row(sql, (since, outcome == "passed"), |row| row.get(0))
            })
        };
        Ok(LearnedReply {
            learned: self.list(kinds, &[&since])?,
            failures: self.groups(since)?,
            passed: count("passed")?,
            failed: count("failed")?,
        })
    }

    /// Failures since then by what they have in common, the most frequent first.
    fn groups(&self, since: i64) -> Result<Vec<FailureGroup>> {
        let signatures: Vec<(String, u64, Option<u64>)> = self.catalog.ask(|conn| {
            conn.prepare_cached(GROUPS)?
                .query_map((since, LISTED_MAX), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect()
        })?;
        signatures
            .into_iter()
            .map(|(signature, times, last_ms)| self.group(signature, times, last_ms))
            .collect()
    }

    fn group(&self, signature: String, times: u64, last_ms: Option<u64>) -> Result<FailureGroup> {
        let failures = self.list("signature = ?", &[&signature])?;
        let fixed_by = self.fixed_by(&signature)?;
        Ok(FailureGroup { signature, times, last_ms, failures, fixed_by })
    }

    /// Records that are said to have fixed something with this signature.
    pub fn fixed_by(&self, signature: &str) -> Result<Vec<Learning>> {
        let condition = "num IN (
            SELECT target FROM edges JOIN files AS f ON f.num = edges.source
                WHERE edges.kind = 'fixed-by' AND f.signature = ?1
            UNION SELECT source FROM edges JOIN files AS f ON f.num = edges.target
                WHERE edges.kind = 'fixes' AND f.signature = ?1)";
        self.list(condition, &[&signature])
    }

    /// What failed with this signature, if anything did.
    pub fn failed_so(&self, signature: &str) -> Result<Option<FailureGroup>> {
        let found: Option<(u64, Option<u64>)> = self.catalog.ask(|conn| {
            let sql = format!("SELECT * FROM ({GROUPS}) WHERE signature = ?3");
            conn.prepare_cached(&sql)?
                .query_row((0, -1, signature), |row| Ok((row.get(1)?, row.get(2)?)))
                .optional()
        })?;
        found.map(|(times, last)| self.group(signature.to_owned(), times, last)).transpose()
    }

    /// The records below a directory of a root, newest first.
    pub fn below(&self, root: &str, dir: &str) -> Result<Vec<Learning>> {
        let dir = format!("{}/", dir.trim_end_matches('/'));
        self.list("root = ? AND substr(path, 1, length(?)) = ?", &[&root, &dir, &dir])
    }

    /// The records that have this file among what they changed or speak of.
    pub fn touching_file(&self, path: &str) -> Result<Vec<Learning>> {
        let thing = format!("file:{path}");
        self.list("num IN (SELECT source FROM edges WHERE thing = ?)", &[&thing])
    }
}
