//! Records by what they mean: vectors kept in step with the texts.
//!
//! Vectors belong to one model; with another, or when they are damaged, all of
//! them are made anew. A record whose vectors are not there yet is found by its
//! words meanwhile.

use crate::embed::{Embedder, chunks};
use crate::index::Index;
use crate::search::{self, Meaning, Mix, Sources};
use crate::vectors::{Flat, VectorStore, VectorsError};
use crate::{IndexError, Result};
use fractal_model::{Find, FindReply};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Records that are embedded at once.
const BATCH: usize = 32;

/// What embedding did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Embedded {
    /// Records that have vectors now.
    pub done: u64,
    /// Records that have none yet.
    pub left: u64,
}

struct Pending {
    num: i64,
    print: String,
    pieces: Vec<String>,
}

impl Index {
    fn vectors_dir(&self) -> PathBuf {
        self.dir().join("vectors")
    }

    /// The vectors of a model, those of any other being thrown away.
    fn vectors(&self, model: &dyn Embedder) -> Result<Flat> {
        let dir = self.vectors_dir();
        let fits =
            |flat: &Flat| flat.model() == model.name() && flat.dimensions() == model.dimensions();
        match Flat::open(&dir) {
            Ok(flat) if fits(&flat) => return Ok(flat),
            Ok(_) | Err(VectorsError::Damaged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.catalog.write(|conn| conn.execute("DELETE FROM embedded", []))?;
        Ok(Flat::create(&dir, model.name(), model.dimensions())?)
    }

    /// How many records have no vectors of this model.
    pub fn without_vector(&self, model: &dyn Embedder) -> Result<u64> {
        self.vectors(model)?;
        self.unembedded()
    }

    /// The same, once the vectors that are there are known to be the model's:
    /// opening them reads all of them.
    fn unembedded(&self) -> Result<u64> {
        self.catalog.ask(|conn| {
            let sql = "SELECT COUNT(*) FROM files LEFT JOIN embedded USING (num) \
                       WHERE embedded.print IS NOT files.print";
            conn.query_row(sql, [], |row| row.get(0))
        })
    }

    /// Makes vectors for records that have none, until all have or the time is
    /// up. `progress` is told how many are done, of how many.
    pub fn embed(
        &self,
        model: &dyn Embedder,
        budget: Option<Duration>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Embedded> {
        let started = Instant::now();
        let mut flat = self.vectors(model)?;
        self.forget_gone(&mut flat)?;
        let total = self.unembedded()?;
        let (mut done, mut last) = (0, 0);
        while done < total && budget.is_none_or(|budget| started.elapsed() < budget) {
            let batch = self.pending(last)?;
            let Some(end) = batch.last() else { break };
            last = end.num;
            done += self.embed_batch(model, &mut flat, &batch)?;
            progress(done, total);
        }
        Ok(Embedded { done, left: total.saturating_sub(done) })
    }

    fn embed_batch(&self, model: &dyn Embedder, flat: &mut Flat, batch: &[Pending]) -> Result<u64> {
        let texts: Vec<&str> =
            batch.iter().flat_map(|one| one.pieces.iter().map(String::as_str)).collect();
        let mut vectors = model.embed(&texts)?.into_iter();
        let rows: Vec<(u64, Vec<Vec<f32>>)> = batch
            .iter()
            .map(|one| (one.num.unsigned_abs(), vectors.by_ref().take(one.pieces.len()).collect()))
            .collect();
        flat.put(&rows)?;
        // After the vectors: whoever dies in between makes them once more.
        self.catalog.write(|conn| {
            let mut put =
                conn.prepare_cached("INSERT OR REPLACE INTO embedded (num, print) VALUES (?, ?)")?;
            batch.iter().try_for_each(|one| put.execute((one.num, &one.print)).map(drop))
        })?;
        Ok(batch.len() as u64)
    }

    /// The next ones behind a number. From the beginning each time, a look at all
    /// that have vectors already would come before every batch.
    fn pending(&self, behind: i64) -> Result<Vec<Pending>> {
        self.catalog.ask(|conn| {
            let sql = "SELECT num, files.print, words.title, description, words.body FROM files \
                       JOIN words ON words.rowid = num LEFT JOIN embedded USING (num) \
                       WHERE files.num > ? AND embedded.print IS NOT files.print \
                       ORDER BY files.num LIMIT ?";
            conn.prepare_cached(sql)?
                .query_map([behind, BATCH as i64], |row| {
                    let (title, about, body): (String, String, String) =
                        (row.get(2)?, row.get(3)?, row.get(4)?);
                    let pieces = pieces(&title, &about, &body);
                    Ok(Pending { num: row.get(0)?, print: row.get(1)?, pieces })
                })?
                .collect()
        })
    }

    fn forget_gone(&self, flat: &mut Flat) -> Result<()> {
        let gone: Vec<i64> = self.catalog.ask(|conn| {
            let sql = "SELECT num FROM embedded WHERE num NOT IN (SELECT num FROM files)";
            conn.prepare_cached(sql)?.query_map([], |row| row.get(0))?.collect()
        })?;
        if gone.is_empty() {
            return Ok(());
        }
        flat.remove(&gone.iter().map(|num| num.unsigned_abs()).collect::<Vec<_>>())?;
        self.catalog.write(|conn| {
            let mut delete = conn.prepare_cached("DELETE FROM embedded WHERE num = ?")?;
            gone.iter().try_for_each(|num| delete.execute([num]).map(drop))
        })
    }

    /// Answers a question by words, by meaning where there is a model, and by
    /// relations. `without` says what is not there, and why.
    pub fn search(
        &self,
        question: &Find,
        model: Option<&dyn Embedder>,
        mix: Mix,
        now_ms: u64,
        mut without: Vec<String>,
    ) -> Result<FindReply> {
        let graph = self.graph();
        let asked = match model.map(|model| self.ask(model, &question.text)) {
            None => None,
            Some(Ok(asked)) => Some(asked),
            // What is down must not keep anybody from what is here.
            Some(Err(error)) => {
                without.push(format!("meaning: {error}"));
                None
            }
        };
        let meaning = asked.as_ref().map(|asked| asked as &dyn Meaning);
        let sources = Sources { catalog: &self.catalog, graph, meaning, without };
        self.catalog.still(|| search::search(&sources, question, mix, now_ms))
    }

    fn ask(&self, model: &dyn Embedder, text: &str) -> Result<Asked<'_>> {
        let flat = self.vectors(model)?;
        if flat.vectors() == 0 {
            return Ok(Asked { index: self, flat, vector: Vec::new() });
        }
        let vector = model.embed(&[text])?.into_iter().next().unwrap_or_default();
        Ok(Asked { index: self, flat, vector })
    }
}

/// A question as a vector, and the vectors that it is compared with. No vector
/// where there is nothing to compare with.
struct Asked<'a> {
    index: &'a Index,
    flat: Flat,
    vector: Vec<f32>,
}

impl Meaning for Asked<'_> {
    fn nearest(&self, limit: usize, passes: &dyn Fn(i64) -> bool) -> Result<Vec<(i64, f64)>> {
        if self.flat.vectors() == 0 {
            return Ok(Vec::new());
        }
        if let Some(server) = &self.index.nearness {
            return self.by_server(server.as_ref(), limit, passes);
        }
        let near = self.flat.nearest(&self.vector, limit, &|key| passes(key as i64))?;
        Ok(near.into_iter().map(|(key, cosine)| (key as i64, f64::from(cosine))).collect())
    }

    fn of(&self, nums: &[i64]) -> Result<Vec<(i64, f64)>> {
        if self.flat.vectors() == 0 {
            return Ok(Vec::new());
        }
        let keys: Vec<u64> = nums.iter().map(|num| num.unsigned_abs()).collect();
        let of = self.flat.of(&self.vector, &keys)?;
        Ok(of.into_iter().map(|(key, cosine)| (key as i64, f64::from(cosine))).collect())
    }
}

impl Asked<'_> {
    fn by_server(
        &self,
        server: &dyn VectorStore,
        limit: usize,
        passes: &dyn Fn(i64) -> bool,
    ) -> Result<Vec<(i64, f64)>> {
        let number = |key: &str| search::number(&self.index.catalog, key).ok().flatten();
        let near = server.nearest(&self.vector, limit, &|key| number(key).is_some_and(passes))?;
        let near =
            near.into_iter().filter_map(|(key, cosine)| Some((number(&key)?, f64::from(cosine))));
        Ok(near.collect())
    }
}

impl Index {
    /// What a server of vectors is sent of a record.
    pub fn vectors_of(&self, model: &dyn Embedder, num: u64) -> Result<Vec<Vec<f32>>> {
        Ok(self.vectors(model)?.vectors_of(num)?)
    }
}

/// What is embedded of a record: its text in pieces, each under its title.
fn pieces(title: &str, about: &str, body: &str) -> Vec<String> {
    let text = if about.is_empty() { body.to_owned() } else { format!("{about}\n\n{body}") };
    let mut pieces = chunks(&text);
    if pieces.is_empty() {
        pieces.push(String::new());
    }
    pieces.iter().map(|piece| format!("{title}\n{piece}")).collect()
}

impl From<VectorsError> for IndexError {
    fn from(error: VectorsError) -> IndexError {
        IndexError::Vectors(error)
    }
}
