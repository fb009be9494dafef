//! Vectors on disk, and the nearest of them by an exact scan.
//!
//! A [`Flat`] store is a cache: it may be deleted at any time, and what is
//! damaged is reported and made anew. It knows keys, which are numbers of the
//! caller's, and the vectors of the pieces of each; it does not know texts or
//! models beyond a name. What it answers is what comparing with every vector
//! would answer, as of the moment when it was opened or refreshed; no process
//! sees half of a change of another one.

mod entry;
mod manifest;
mod row;
mod rows;
mod search;
mod state;
mod write;

use entry::Entry;
use state::State;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// How many vectors a key may have.
pub const VECTORS_PER_KEY_MAX: usize = 4096;

/// Says which records are near a vector, by what they go by, in place of the
/// vectors on this disk: a server that is kept in step with them.
pub trait VectorStore: Send + Sync {
    /// The nearest first and equals by key, each with its cosine; only those
    /// that the filter lets through.
    fn nearest(
        &self,
        vector: &[f32],
        limit: usize,
        passes: &dyn Fn(&str) -> bool,
    ) -> crate::Result<Vec<(String, f32)>>;
}

/// Vectors of one model under keys.
pub struct Flat {
    state: State,
}

impl Flat {
    /// Opens what is in a directory; where nothing is, nothing is created, and
    /// the store is without a model until [`Flat::clear`].
    pub fn open(dir: &Path) -> Result<Flat, VectorsError> {
        Ok(Flat { state: State::load(dir)? })
    }

    /// An empty store for a model, whatever was in the directory before: also
    /// what to do after [`VectorsError::Damaged`].
    pub fn create(dir: &Path, model: &str, dimensions: usize) -> Result<Flat, VectorsError> {
        if dimensions == 0 || dimensions > state::DIMENSIONS_MAX {
            return Err(VectorsError::Size { expected: state::DIMENSIONS_MAX, found: dimensions });
        }
        let alone = write::lock(dir)?;
        Ok(Flat { state: write::create(dir, model, dimensions, &alone)? })
    }

    /// Throws all vectors away and begins with another model, or the same.
    pub fn clear(&mut self, model: &str, dimensions: usize) -> Result<(), VectorsError> {
        *self = Flat::create(&self.state.dir, model, dimensions)?;
        Ok(())
    }

    /// The name of the model; empty where none was chosen.
    pub fn model(&self) -> &str {
        &self.state.manifest.model
    }

    /// How many numbers each vector has; none where no model was chosen.
    pub fn dimensions(&self) -> usize {
        self.state.manifest.dimensions
    }

    /// All keys, in order.
    pub fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.state.live.iter().map(|entry| entry.key).collect();
        keys.sort_unstable();
        keys
    }

    /// How many vectors there are, of all keys together.
    pub fn vectors(&self) -> usize {
        self.state.live_rows()
    }

    /// Takes in what other processes wrote; costs little where nothing changed.
    pub fn refresh(&mut self) -> Result<(), VectorsError> {
        self.state.refresh()
    }

    /// Replaces the vectors of some keys, all at once. A key without vectors is
    /// removed. Vectors are brought to length one.
    pub fn put(&mut self, batch: &[(u64, Vec<Vec<f32>>)]) -> Result<(), VectorsError> {
        let mut units = write::Batch::new();
        for (key, vectors) in batch {
            if vectors.len() > VECTORS_PER_KEY_MAX {
                return Err(VectorsError::Many { key: *key, found: vectors.len() });
            }
            let unit = |vector: &Vec<f32>| self.unit(vector, Some(*key));
            units.push((*key, vectors.iter().map(unit).collect::<Result<_, _>>()?));
        }
        self.change(units)
    }

    /// Removes keys; those that are not there are passed over.
    pub fn remove(&mut self, keys: &[u64]) -> Result<(), VectorsError> {
        self.change(keys.iter().map(|key| (*key, Vec::new())).collect())
    }

    /// The keys nearest to a vector, the nearest first and equals by key, each
    /// with the cosine of the angle to the best of its vectors. Only keys that
    /// the filter lets through, which is asked about few of them.
    pub fn nearest(
        &self,
        vector: &[f32],
        limit: usize,
        filter: &dyn Fn(u64) -> bool,
    ) -> Result<Vec<(u64, f32)>, VectorsError> {
        if self.dimensions() == 0 {
            return Ok(Vec::new());
        }
        search::nearest(&self.state, &self.unit(vector, None)?, limit, filter)
    }

    /// The same for these keys only, in any order and without those that are not
    /// there.
    pub fn of(&self, vector: &[f32], keys: &[u64]) -> Result<Vec<(u64, f32)>, VectorsError> {
        if self.dimensions() == 0 || keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        search::of(&self.state, &self.unit(vector, None)?, &keys)
    }

    fn change(&mut self, mut batch: write::Batch) -> Result<(), VectorsError> {
        if self.dimensions() == 0 {
            return Err(VectorsError::Unset);
        }
        let alone = write::lock(&self.state.dir)?;
        let expected = (self.model().to_owned(), self.dimensions());
        self.state.refresh()?;
        if (self.model(), self.dimensions()) != (expected.0.as_str(), expected.1) {
            return Err(VectorsError::Model {
                expected: expected.0,
                found: self.model().to_owned(),
            });
        }
        let known: HashSet<u64> = self.state.live.iter().map(|entry| entry.key).collect();
        let last: HashMap<u64, usize> =
            batch.iter().zip(0..).map(|((key, _), at)| (*key, at)).collect();
        let mut at = 0..;
        // The last word on a key counts, and none is needed on what is not there.
        batch.retain(|(key, vectors)| {
            last.get(key) == at.next().as_ref() && (known.contains(key) || !vectors.is_empty())
        });
        if batch.is_empty() {
            return Ok(());
        }
        write::append(&mut self.state, &batch, &alone)?;
        write::compact(&mut self.state, &alone)
    }

    fn unit(&self, vector: &[f32], key: Option<u64>) -> Result<Vec<f32>, VectorsError> {
        let (expected, found) = (self.dimensions(), vector.len());
        match found == expected || expected == 0 {
            true => row::unit(vector).ok_or(VectorsError::Number { key }),
            false => Err(VectorsError::Size { expected, found }),
        }
    }
}

/// Why vectors are not kept or not found.
#[derive(Debug, thiserror::Error)]
pub enum VectorsError {
    /// A file or directory could not be read or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The files are not what was written; [`Flat::create`] begins anew.
    #[error("the vectors in {} are damaged: {why}", dir.display())]
    Damaged {
        /// Where they lie.
        dir: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A vector of another model, most likely.
    #[error("a vector has {found} numbers, not {expected}")]
    Size {
        /// What the store has.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// A vector that points nowhere.
    #[error("a vector{} has no direction: its numbers are zero or none", of(key))]
    Number {
        /// Whose it is; a question's has no key.
        key: Option<u64>,
    },
    /// Too many vectors for one key.
    #[error("key {key} has {found} vectors, more than {VECTORS_PER_KEY_MAX}")]
    Many {
        /// Whose they are.
        key: u64,
        /// How many.
        found: usize,
    },
    /// Somebody else threw the vectors away meanwhile.
    #[error("the vectors are now those of {found:?}, not those of {expected:?}")]
    Model {
        /// What the store had when it was opened.
        expected: String,
        /// What it has now.
        found: String,
    },
    /// No model was chosen.
    #[error("no model was chosen for these vectors")]
    Unset,
    /// No more rows can be numbered.
    #[error("there are more vectors than can be numbered")]
    Full,
    /// Somebody else writes and does not come to an end.
    #[error("the vectors are being written by another process for more than {seconds} s")]
    Busy {
        /// How long was waited.
        seconds: u64,
    },
}

impl VectorsError {
    fn io(verb: &'static str, path: &Path, source: std::io::Error) -> VectorsError {
        VectorsError::Io { verb, path: path.to_owned(), source }
    }

    fn damaged(dir: &Path, why: &str) -> VectorsError {
        VectorsError::Damaged { dir: dir.to_owned(), why: why.to_owned() }
    }
}

fn of(key: &Option<u64>) -> String {
    key.map(|key| format!(" of key {key}")).unwrap_or_default()
}
