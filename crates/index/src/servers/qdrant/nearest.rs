//! Questions to a vector server.

use super::Qdrant;
use super::points::in_place;
use super::write::text;
use crate::Result;
use qdrant_client::qdrant::{QueryPointsBuilder, ScoredPoint, SearchParamsBuilder};
use std::collections::HashSet;

/// How many more points are asked for when there were too few records in them.
const MORE: usize = 4;

impl Qdrant {
    /// The records nearest to a vector, the nearest first and equals by key,
    /// each with the cosine of the angle to the best of its pieces; only those
    /// that the filter lets through.
    pub fn nearest(
        &self,
        vector: &[f32],
        limit: usize,
        passes: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<(String, f32)>> {
        self.check(vector)?;
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut points = limit.saturating_mul(2);
        loop {
            let found = self.points(vector, points)?;
            let is_all = found.len() < points;
            let mut records = best(found, passes);
            // Among equals the key decides, so all of them must be there.
            let is_clear = |records: &[(String, f32)]| records[limit].1 < records[limit - 1].1;
            if is_all || records.len() > limit && is_clear(&records) {
                records.truncate(limit);
                return Ok(records);
            }
            points = points.saturating_mul(MORE);
        }
    }

    fn points(&self, vector: &[f32], limit: usize) -> Result<Vec<ScoredPoint>> {
        let question = QueryPointsBuilder::new(&self.collection)
            .query(vector.to_vec())
            .filter(in_place(&self.settings.place))
            .params(SearchParamsBuilder::default().exact(true))
            .limit(limit as u64)
            .with_payload(true);
        Ok(self.wait(self.client.query(question))?.result)
    }
}

/// The best piece of each record.
fn best(points: Vec<ScoredPoint>, passes: &dyn Fn(&str) -> bool) -> Vec<(String, f32)> {
    let mut seen = HashSet::new();
    let mut records = Vec::new();
    // Points come the nearest first.
    for point in points {
        let Some(key) = text(&point.payload, "key") else { continue };
        if seen.insert(key.to_owned()) && passes(key) {
            records.push((key.to_owned(), point.score));
        }
    }
    records.sort_by(|(a, near), (b, than)| than.total_cmp(near).then_with(|| a.cmp(b)));
    records
}

impl crate::vectors::VectorStore for Qdrant {
    fn nearest(
        &self,
        vector: &[f32],
        limit: usize,
        passes: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<(String, f32)>> {
        Qdrant::nearest(self, vector, limit, passes)
    }
}
