//! Texts as vectors: what means alike lies close together.
//!
//! Without a model there are no vectors, and search says so: vectors made from
//! letters find less than words do, so none are made that way. A model is a
//! directory that was [`add`]ed and is run in this process, or an endpoint that
//! somebody else runs (`http`, with the feature of that name).

mod add;
mod bert;
mod chunk;
mod config;
mod encoder;
mod files;
#[cfg(feature = "http")]
pub mod http;
mod math;
#[cfg(test)]
mod reference;
mod safetensors;
mod wheel;
mod wordpiece;
mod words;

pub use add::{Added, add, open};
pub use chunk::{PIECES_MAX, chunks};

use std::path::{Path, PathBuf};

/// Turns texts into vectors that can be compared.
pub trait Embedder: Send + Sync {
    /// Names the model and its exact weights. Vectors under two names are
    /// never compared with each other.
    fn name(&self) -> &str;

    /// How many numbers a vector has.
    fn dimensions(&self) -> usize;

    /// A vector of length one for each text, in the order of the texts. Texts
    /// may be many and of any length; what a model does not look at is not read.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;
}

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The files of a model are not what they should be.
    #[error("the model in {place} cannot be used: {why}")]
    Model {
        /// Where it lies.
        place: String,
        /// What is wrong with it.
        why: String,
    },
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
    /// An endpoint does not answer with vectors.
    #[error("{endpoint} gives no vectors: {why}")]
    Endpoint {
        /// Its address, without what a key could hide in.
        endpoint: String,
        /// The status of its last answer, if there was one.
        status: Option<u16>,
        /// What it said, or what is wrong with what it said.
        why: String,
    },
}

impl EmbedError {
    pub(crate) fn model(place: impl ToString, why: impl ToString) -> EmbedError {
        EmbedError::Model { place: place.to_string(), why: why.to_string() }
    }

    pub(crate) fn io(verb: &'static str, path: &Path, source: std::io::Error) -> EmbedError {
        EmbedError::Io { verb, path: path.to_owned(), source }
    }
}
