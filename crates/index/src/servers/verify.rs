//! Comparing a server with the index that it follows.

use super::{Follower, feed, follow};
use crate::Result;
use crate::catalog::Catalog;
use crate::graph::{EDGES_MAX, Embedded, GraphStore};
use fractal_model::GraphEdge;

/// As many records are looked at.
const SAMPLE: usize = 200;

/// How a server compares with the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Changes that it was not sent yet. Until they are there, it differs.
    pub lag: u64,
    /// What differs, for people to read.
    pub differs: Vec<String>,
}

pub(super) fn verify(catalog: &Catalog, server: &dyn Follower) -> Result<Verified> {
    let mut verified = Verified { lag: follow::lag(catalog, server)?, differs: Vec::new() };
    let keys = feed::keys(catalog, server.wants())?;
    let (here, there) = (keys.len() as u64, server.count()?);
    if here != there {
        verified.differs.push(format!("it has {there} records, the index has {here}"));
    }
    let step = keys.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<String> = keys.into_iter().step_by(step).collect();
    let missing = server.missing(&sample)?;
    verified.differs.extend(missing.iter().map(|key| format!("{key} is not there")));
    if let Some(graph) = server.graph() {
        for key in sample.iter().filter(|key| !missing.contains(key)) {
            let [here, there] = [relations(&Embedded(catalog), key)?, relations(graph, key)?];
            if here != there {
                let (here, there) = (here.len(), there.len());
                verified.differs.push(format!("{key} has other relations: {there}, not {here}"));
            }
        }
    }
    Ok(verified)
}

fn relations(graph: &dyn GraphStore, key: &String) -> Result<Vec<GraphEdge>> {
    let mut edges = graph.touching(std::slice::from_ref(key), EDGES_MAX)?;
    edges.sort();
    Ok(edges)
}
