//! What a vector server is told, and how much it has.

use super::points::{first_pieces, in_place, mark_id, of, piece_id};
use super::{Qdrant, code, why};
use crate::servers::Mark;
use crate::{IndexError, Result};
use qdrant_client::Payload;
use qdrant_client::qdrant::{
    Condition, CountPointsBuilder, CreateCollectionBuilder, CreateFieldIndexCollectionBuilder,
    DeletePointsBuilder, Distance, FieldType, Filter, GetPointsBuilder, PointStruct, PointsIdsList,
    RetrievedPoint, ScrollPointsBuilder, UpsertPointsBuilder, Value, VectorParamsBuilder,
};
use tonic::Code;

/// Points that are sent at a time: servers take messages of some megabytes.
const POINTS: usize = 256;
/// Keys in one filter.
const KEYS: usize = 500;

impl Qdrant {
    pub(super) fn make_collection(&self) -> Result<()> {
        let vectors = VectorParamsBuilder::new(self.settings.dimensions as u64, Distance::Cosine);
        let make = CreateCollectionBuilder::new(&self.collection).vectors_config(vectors);
        if !self.wait(self.client.collection_exists(&self.collection))? {
            match self.try_wait(self.client.create_collection(make))? {
                // Somebody was quicker.
                Err(error) if code(&error) == Some(Code::AlreadyExists) => {}
                other => drop(other.map_err(|error| self.failed(why(&error)))?),
            }
        }
        for field in ["place", "key"] {
            let index =
                CreateFieldIndexCollectionBuilder::new(&self.collection, field, FieldType::Keyword)
                    .wait(true);
            self.wait(self.client.create_field_index(index))?;
        }
        Ok(())
    }

    /// Replaces the vectors of some records and removes others, then notes the
    /// mark. What is new comes before what is old goes, so that nobody finds a
    /// record missing meanwhile.
    pub(super) fn write(
        &self,
        records: Vec<(&str, Vec<Vec<f32>>)>,
        gone: &[String],
        mark: &Mark,
    ) -> Result<()> {
        for vector in records.iter().flat_map(|(_, vectors)| vectors) {
            self.check(vector)?;
        }
        let keys: Vec<String> = records.iter().map(|(key, _)| (*key).to_owned()).collect();
        let mut points = Vec::new();
        for (key, vectors) in records {
            for (chunk, vector) in vectors.into_iter().enumerate() {
                points.push(self.piece(key, chunk, vector, mark));
            }
        }
        while !points.is_empty() {
            let rest = points.split_off(points.len().min(POINTS));
            self.put(std::mem::replace(&mut points, rest))?;
        }
        let place = &self.settings.place;
        for keys in keys.chunks(KEYS) {
            let mut old = of(in_place(place), keys);
            old.must_not.push(Condition::matches("rev", saturate(mark.rev)));
            self.remove(old)?;
        }
        for keys in gone.chunks(KEYS) {
            self.remove(of(in_place(place), keys))?;
        }
        self.put(vec![self.mark_point(mark)])
    }

    /// A vector of another model is refused before anything is sent.
    pub(super) fn check(&self, vector: &[f32]) -> Result<()> {
        let (expected, found) = (self.settings.dimensions, vector.len());
        if expected != found {
            let collection = &self.collection;
            return Err(IndexError::Invalid(format!(
                "a vector has {found} numbers, those of {collection} have {expected}"
            )));
        }
        let length: f32 = vector.iter().map(|number| number * number).sum();
        match length.is_finite() && length > 0.0 {
            true => Ok(()),
            false => Err(IndexError::Invalid("a vector points nowhere".to_owned())),
        }
    }

    fn piece(&self, key: &str, chunk: usize, vector: Vec<f32>, mark: &Mark) -> PointStruct {
        let place = self.settings.place.as_str();
        let mut payload = Payload::new();
        payload.insert("place", place);
        payload.insert("key", key);
        payload.insert("chunk", chunk as i64);
        payload.insert("epoch", mark.epoch.as_str());
        // With which batch it came: what the next one does not bring is old.
        payload.insert("rev", saturate(mark.rev));
        PointStruct::new(piece_id(place, key, chunk), vector, payload)
    }

    fn mark_point(&self, mark: &Mark) -> PointStruct {
        let mut payload = Payload::new();
        payload.insert("mark", self.settings.place.as_str());
        payload.insert("epoch", mark.epoch.as_str());
        payload.insert("rev", saturate(mark.rev));
        // It must have a vector, and one that has a direction.
        let mut vector = vec![0.0; self.settings.dimensions];
        vector[0] = 1.0;
        PointStruct::new(mark_id(&self.settings.place), vector, payload)
    }

    fn put(&self, points: Vec<PointStruct>) -> Result<()> {
        let points = UpsertPointsBuilder::new(&self.collection, points).wait(true);
        self.wait(self.client.upsert_points(points)).map(drop)
    }

    fn remove(&self, which: Filter) -> Result<()> {
        let which = DeletePointsBuilder::new(&self.collection).points(which).wait(true);
        self.wait(self.client.delete_points(which)).map(drop)
    }

    pub(super) fn clear_place(&self) -> Result<()> {
        if !self.wait(self.client.collection_exists(&self.collection))? {
            return Ok(());
        }
        let mark = PointsIdsList { ids: vec![mark_id(&self.settings.place)] };
        let mark = DeletePointsBuilder::new(&self.collection).points(mark).wait(true);
        self.wait(self.client.delete_points(mark))?;
        self.remove(in_place(&self.settings.place))
    }

    pub(super) fn read_mark(&self) -> Result<Option<Mark>> {
        let id = mark_id(&self.settings.place);
        let question = GetPointsBuilder::new(&self.collection, vec![id]).with_payload(true);
        let answer = match self.try_wait(self.client.get_points(question))? {
            Err(error) if code(&error) == Some(Code::NotFound) => return Ok(None),
            other => other.map_err(|error| self.failed(why(&error)))?,
        };
        let mark = answer.result.first().and_then(read_mark);
        // A mark alone says nothing: somebody may have removed all points.
        if mark.as_ref().is_some_and(|mark| mark.rev > 0) && self.count_records()? == 0 {
            return Ok(None);
        }
        Ok(mark)
    }

    pub(super) fn count_records(&self) -> Result<u64> {
        let question = CountPointsBuilder::new(&self.collection)
            .filter(first_pieces(&self.settings.place))
            .exact(true);
        let answer = self.wait(self.client.count(question))?;
        Ok(answer.result.map_or(0, |result| result.count))
    }

    pub(super) fn missing_of(&self, keys: &[String]) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for keys in keys.chunks(KEYS) {
            let question = ScrollPointsBuilder::new(&self.collection)
                .filter(of(first_pieces(&self.settings.place), keys))
                .limit(KEYS as u32)
                .with_payload(true);
            let there = self.wait(self.client.scroll(question))?.result;
            let there: Vec<&str> = there.iter().filter_map(|it| text(&it.payload, "key")).collect();
            missing.extend(keys.iter().filter(|key| !there.contains(&key.as_str())).cloned());
        }
        Ok(missing)
    }
}

fn read_mark(point: &RetrievedPoint) -> Option<Mark> {
    let rev = point.payload.get("rev").and_then(Value::as_integer)?;
    let epoch = text(&point.payload, "epoch")?.to_owned();
    Some(Mark { epoch, rev: u64::try_from(rev).unwrap_or(0) })
}

/// A text in a payload.
pub(super) fn text<'a>(
    payload: &'a std::collections::HashMap<String, Value>,
    name: &str,
) -> Option<&'a str> {
    payload.get(name).and_then(Value::as_str).map(String::as_str)
}

fn saturate(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
