//! What a graph server is asked.

use super::{Neo4j, ids_of, limited};
use crate::Result;
use crate::graph::GraphStore;
use crate::servers::Mark;
use fractal_model::GraphEdge;
use neo4rs::{Query, query};

/// Nodes that are asked for at a time.
const KEYS: usize = 1000;

/// The three ways in which the embedded index finds an edge, and no others, so
/// that an edge between two of the nodes comes as often as there. Each begins
/// at the node that is known: not every server finds the best order itself.
const TOUCHING: &str = "\
UNWIND $ids AS id MATCH (a:Record {place: $place, id: id})-[e:REL]->(b) \
RETURN a.key AS from, e.kind AS kind, b.key AS to LIMIT $limit \
UNION ALL \
UNWIND $ids AS id MATCH (b:Record {place: $place, id: id})<-[e:REL]-(a:Record) \
RETURN a.key AS from, e.kind AS kind, b.key AS to LIMIT $limit \
UNION ALL \
UNWIND $ids AS id MATCH (b:Thing {place: $place, id: id})<-[e:REL]-(a:Record) \
RETURN a.key AS from, e.kind AS kind, b.key AS to LIMIT $limit";

const ALL: &str = "MATCH (a:Record {place: $place})-[e:REL]->(b) \
RETURN a.key AS from, e.kind AS kind, b.key AS to LIMIT $limit";

const MARK: &str = "MATCH (m:FractalMark {place: $place}) RETURN m.epoch AS epoch, m.rev AS rev";
const ANY: &str = "MATCH (r:Record {place: $place}) RETURN 1 AS n LIMIT 1";
const COUNT: &str = "MATCH (r:Record {place: $place}) RETURN count(r) AS n";
const THERE: &str =
    "UNWIND $ids AS id MATCH (r:Record {place: $place, id: id}) RETURN r.key AS key";

impl Neo4j {
    fn ask<T: Send>(
        &self,
        question: Query,
        read: impl Fn(&neo4rs::Row) -> std::result::Result<T, neo4rs::DeError> + Send + Sync,
    ) -> Result<Vec<T>> {
        let question = question.param("place", self.settings.place.as_str());
        self.wait(limited(async {
            let mut rows = self.graph.execute_read(question).await?;
            let mut found = Vec::new();
            while let Some(row) = rows.next().await? {
                found.push(read(&row)?);
            }
            Ok(found)
        }))
    }

    fn edges(&self, question: Query, limit: usize) -> Result<Vec<GraphEdge>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.ask(question.param("limit", limit), |row| {
            Ok(GraphEdge { from: row.get("from")?, kind: row.get("kind")?, to: row.get("to")? })
        })
    }

    pub(super) fn read_mark(&self) -> Result<Option<Mark>> {
        let marks = self.ask(query(MARK), |row| {
            let rev: i64 = row.get("rev")?;
            Ok(Mark { epoch: row.get("epoch")?, rev: u64::try_from(rev).unwrap_or(0) })
        })?;
        let mark = marks.into_iter().next();
        // A mark alone says nothing: somebody may have removed all records.
        if mark.as_ref().is_some_and(|mark| mark.rev > 0) && self.number(ANY)? == 0 {
            return Ok(None);
        }
        Ok(mark)
    }

    pub(super) fn count_records(&self) -> Result<u64> {
        self.number(COUNT)
    }

    fn number(&self, question: &str) -> Result<u64> {
        let numbers = self.ask(query(question), |row| row.get::<i64>("n"))?;
        Ok(numbers.first().and_then(|number| u64::try_from(*number).ok()).unwrap_or(0))
    }

    pub(super) fn missing_of(&self, keys: &[String]) -> Result<Vec<String>> {
        let question = query(THERE).param("ids", ids_of(keys));
        let there = self.ask(question, |row| row.get::<String>("key"))?;
        let is_missing = |key: &&String| !there.contains(key);
        Ok(keys.iter().filter(is_missing).cloned().collect())
    }
}

impl GraphStore for Neo4j {
    fn touching(&self, keys: &[String], limit: usize) -> Result<Vec<GraphEdge>> {
        let mut found = Vec::new();
        for keys in keys.chunks(KEYS) {
            let left = limit.saturating_sub(found.len());
            if left == 0 {
                break;
            }
            found.extend(self.edges(query(TOUCHING).param("ids", ids_of(keys)), left)?);
        }
        found.truncate(limit);
        Ok(found)
    }

    fn all(&self, limit: usize) -> Result<Vec<GraphEdge>> {
        self.edges(query(ALL), limit)
    }
}
