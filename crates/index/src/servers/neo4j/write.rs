//! What a graph server is told.

use super::{Neo4j, id_of, ids_of, limited};
use crate::Result;
use crate::servers::{Batch, Changed, Mark};
use fractal_model::GraphEdge;
use neo4rs::{BoltType, Error, Query, Txn, query};
use std::collections::{BTreeSet, HashMap};

/// Rows of one statement, so that each is answered well within the time for it.
const ROWS: usize = 2000;

/// Each kind of node with what makes looking it up quick; a server without
/// constraints may have indexes, and without those it is right but slow.
const INDEXES: [[&str; 2]; 3] = [
    [
        "CREATE CONSTRAINT fractal_record IF NOT EXISTS FOR (n:Record) \
         REQUIRE (n.place, n.id) IS UNIQUE",
        "CREATE INDEX fractal_record IF NOT EXISTS FOR (n:Record) ON (n.place, n.id)",
    ],
    [
        "CREATE CONSTRAINT fractal_thing IF NOT EXISTS FOR (n:Thing) \
         REQUIRE (n.place, n.id) IS UNIQUE",
        "CREATE INDEX fractal_thing IF NOT EXISTS FOR (n:Thing) ON (n.place, n.id)",
    ],
    [
        "CREATE CONSTRAINT fractal_mark IF NOT EXISTS FOR (n:FractalMark) \
         REQUIRE (n.place) IS UNIQUE",
        "CREATE INDEX fractal_mark IF NOT EXISTS FOR (n:FractalMark) ON (n.place)",
    ],
];

const THINGS_OF: &str = "UNWIND $ids AS id \
    MATCH (r:Record {place: $place, id: id})-[:REL]->(t:Thing) RETURN DISTINCT t.id AS id";
const REMOVE: &str = "UNWIND $ids AS id MATCH (r:Record {place: $place, id: id}) DETACH DELETE r";
const PUT: &str = "UNWIND $rows AS row MERGE (r:Record {place: $place, id: row.id}) \
    SET r.key = row.key, r.kind = row.kind, r.title = row.title, r.status = row.status, \
    r.outcome = row.outcome, r.root = row.root, r.path = row.path, r.at_ms = row.at_ms";
const UNLINK: &str = "UNWIND $ids AS id \
    MATCH (r:Record {place: $place, id: id})-[e:REL]-() WITH DISTINCT e DELETE e";
const PUT_THING: &str = "UNWIND $rows AS row MERGE (t:Thing {place: $place, id: row.id}) \
    SET t.key = row.key, t.kind = row.kind, t.title = row.title";
const LINK: &str = "UNWIND $rows AS row MATCH (a:Record {place: $place, id: row.from}) \
    MATCH (b:Record {place: $place, id: row.to}) CREATE (a)-[:REL {kind: row.kind}]->(b)";
const LINK_THING: &str = "UNWIND $rows AS row MATCH (a:Record {place: $place, id: row.from}) \
    MATCH (b:Thing {place: $place, id: row.to}) CREATE (a)-[:REL {kind: row.kind}]->(b)";
/// Things are there for their relations only.
const FORGET_THINGS: &str = "UNWIND $ids AS id \
    MATCH (t:Thing {place: $place, id: id}) WHERE NOT (t)--() DELETE t";
const PUT_MARK: &str = "MERGE (m:FractalMark {place: $place}) SET m.epoch = $epoch, m.rev = $rev";

/// A mark without records is none, so it goes first.
const CLEAR: [&str; 3] = [
    "MATCH (n:FractalMark {place: $place}) WITH n LIMIT 1000 DETACH DELETE n RETURN count(*) AS n",
    "MATCH (n:Record {place: $place}) WITH n LIMIT 1000 DETACH DELETE n RETURN count(*) AS n",
    "MATCH (n:Thing {place: $place}) WITH n LIMIT 1000 DETACH DELETE n RETURN count(*) AS n",
];

/// A row of a statement.
type Row = HashMap<&'static str, BoltType>;

impl Neo4j {
    pub(super) fn make_indexes(&self) -> Result<()> {
        for ways in INDEXES {
            self.wait(async {
                for way in ways {
                    match limited(self.graph.run(query(way))).await {
                        // It says that it cannot; the next way asks for less.
                        Err(Error::Neo4j(_)) => {}
                        other => return other,
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    pub(super) fn clear_place(&self) -> Result<()> {
        for what in CLEAR {
            while self.clear_some(what)? > 0 {}
        }
        Ok(())
    }

    fn clear_some(&self, what: &str) -> Result<i64> {
        let place = self.settings.place.as_str();
        self.wait(limited(async {
            let mut rows = self.graph.execute(query(what).param("place", place)).await?;
            let row = rows.next().await?;
            let count = row.map(|row| row.get::<i64>("n")).transpose()?;
            rows.finish().await?;
            Ok(count.unwrap_or(0))
        }))
    }

    pub(super) fn write_batch(&self, batch: &Batch, mark: &Mark) -> Result<()> {
        let place = self.settings.place.as_str();
        let steps = steps(batch, mark);
        let touched: Vec<String> = batch
            .records
            .iter()
            .map(|record| id_of(&record.key).into_owned())
            .chain(ids_of(&batch.gone))
            .collect();
        self.wait(async {
            let mut txn = limited(self.graph.start_txn()).await?;
            match write(&mut txn, place, touched, steps).await {
                Ok(()) => limited(txn.commit()).await.map(drop),
                Err(error) => {
                    // The first error is the one to be told.
                    let _ = limited(txn.rollback()).await;
                    Err(error)
                }
            }
        })
    }
}

async fn write(
    txn: &mut Txn,
    place: &str,
    touched: Vec<String>,
    steps: Vec<Query>,
) -> neo4rs::Result<()> {
    let question = query(THINGS_OF).param("place", place).param("ids", touched);
    let mut rows = limited(txn.execute(question)).await?;
    let mut things: Vec<String> = Vec::new();
    while let Some(row) = limited(rows.next(txn.handle())).await? {
        things.push(row.get("id")?);
    }
    let forget = things.chunks(ROWS).map(|ids| query(FORGET_THINGS).param("ids", ids));
    for step in steps.into_iter().chain(forget) {
        limited(txn.run(step.param("place", place))).await?;
    }
    Ok(())
}

/// All that a batch means, in an order in which both ends of a relation are
/// there before it is.
fn steps(batch: &Batch, mark: &Mark) -> Vec<Query> {
    let things: BTreeSet<&str> = batch.things.iter().map(String::as_str).collect();
    let (to_things, to_records): (Vec<_>, Vec<_>) =
        batch.edges.iter().partition(|edge| things.contains(edge.to.as_str()));
    let keys: Vec<String> = batch.records.iter().map(|record| record.key.clone()).collect();
    let mut steps = with_ids(REMOVE, &batch.gone);
    steps.extend(with_ids(UNLINK, &keys));
    steps.extend(with_rows(PUT, batch.records.iter().map(record)));
    steps.extend(with_rows(PUT_THING, things.into_iter().map(thing)));
    steps.extend(with_rows(LINK, to_records.into_iter().map(edge)));
    steps.extend(with_rows(LINK_THING, to_things.into_iter().map(edge)));
    let rev = i64::try_from(mark.rev).unwrap_or(i64::MAX);
    steps.push(query(PUT_MARK).param("epoch", mark.epoch.as_str()).param("rev", rev));
    steps
}

fn with_ids(statement: &str, keys: &[String]) -> Vec<Query> {
    keys.chunks(ROWS).map(|keys| query(statement).param("ids", ids_of(keys))).collect()
}

fn with_rows(statement: &str, rows: impl Iterator<Item = Row>) -> Vec<Query> {
    let rows: Vec<Row> = rows.collect();
    rows.chunks(ROWS).map(|rows| query(statement).param("rows", rows)).collect()
}

fn record(record: &Changed) -> Row {
    let at_ms = record.at_ms.and_then(|at| i64::try_from(at).ok());
    HashMap::from([
        ("id", id_of(&record.key).as_ref().into()),
        ("key", record.key.as_str().into()),
        ("kind", record.kind.as_str().into()),
        ("title", record.title.as_str().into()),
        ("status", record.status.as_str().into()),
        ("outcome", record.outcome.as_str().into()),
        ("root", record.root.as_str().into()),
        ("path", record.path.as_str().into()),
        ("at_ms", at_ms.into()),
    ])
}

fn thing(key: &str) -> Row {
    let (kind, title) = key.split_once(':').unwrap_or(("thing", key));
    HashMap::from([
        ("id", id_of(key).as_ref().into()),
        ("key", key.into()),
        ("kind", kind.into()),
        ("title", title.into()),
    ])
}

fn edge(edge: &GraphEdge) -> Row {
    HashMap::from([
        ("from", id_of(&edge.from).as_ref().into()),
        ("kind", edge.kind.as_str().into()),
        ("to", id_of(&edge.to).as_ref().into()),
    ])
}
