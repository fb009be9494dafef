//! Vectors on a Qdrant server.
//!
//! Each model has a collection of its own, since vectors of two models are
//! never compared; in it every piece of a record is a point, whose id follows
//! from place, key and number of the piece, so that sending it again replaces
//! it. Questions are answered exactly, as the embedded vectors answer them.

mod nearest;
mod points;
mod write;

use super::wait::{ANSWER_MAX, CONNECT_MAX, Waiting};
use super::{Batch, Feed, Follower, Mark};
use crate::{IndexError, Result};
use qdrant_client::{Qdrant as Client, QdrantError};
use sha2::{Digest, Sha256};
use std::fmt;
use tonic::Code;

/// Where vectors are kept.
#[derive(Clone)]
pub struct Settings {
    /// `http://host:6334`, or `https` for TLS.
    pub url: String,
    /// Shown nowhere; none for a server that asks for none.
    pub api_key: Option<String>,
    /// Whose records these are, among those of others on the same server. Two
    /// indexes that name the same place throw each other out in turn.
    pub place: String,
    /// The name of the model, as its embedder says it.
    pub model: String,
    /// How many numbers its vectors have.
    pub dimensions: usize,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &shown(&self.url))
            .field("place", &self.place)
            .field("model", &self.model)
            .field("dimensions", &self.dimensions)
            .finish_non_exhaustive()
    }
}

/// Vectors of one model and one place on a server.
pub struct Qdrant {
    client: Client,
    waiting: Waiting,
    settings: Settings,
    collection: String,
}

impl fmt::Debug for Qdrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Qdrant").field(&self.settings).finish()
    }
}

/// Gives the vectors of a record by its number in the index.
pub type VectorsOf<'a> = dyn Fn(u64) -> Result<Vec<Vec<f32>>> + 'a;

/// A server together with where its vectors come from: what can be kept in
/// step.
pub struct Fed<'a> {
    server: &'a Qdrant,
    vectors: &'a VectorsOf<'a>,
}

impl Qdrant {
    /// Takes the settings; the server is not asked anything yet.
    pub fn new(settings: Settings) -> Result<Qdrant> {
        let collection = collection(&settings.model, settings.dimensions);
        let failed = |why: String| IndexError::Server { name: name(&settings, &collection), why };
        let client = Client::from_url(&settings.url)
            .api_key(settings.api_key.clone())
            .timeout(ANSWER_MAX)
            .connect_timeout(CONNECT_MAX)
            // It would print what it finds.
            .skip_compatibility_check()
            .build()
            .map_err(|error| failed(why(&error)))?;
        let waiting = Waiting::new().map_err(|error| failed(error.to_string()))?;
        Ok(Qdrant { client, waiting, settings, collection })
    }

    /// With the vectors that it is to be sent.
    pub fn fed<'a>(&'a self, vectors: &'a VectorsOf<'a>) -> Fed<'a> {
        Fed { server: self, vectors }
    }

    /// The collection that the vectors are in.
    pub fn collection(&self) -> &str {
        &self.collection
    }

    /// Waits for an answer of the server.
    fn wait<T: Send>(
        &self,
        work: impl Future<Output = std::result::Result<T, QdrantError>> + Send,
    ) -> Result<T> {
        self.try_wait(work)?.map_err(|error| self.failed(why(&error)))
    }

    /// The same, for those who know what to do about an error.
    fn try_wait<T: Send>(
        &self,
        work: impl Future<Output = std::result::Result<T, QdrantError>> + Send,
    ) -> Result<std::result::Result<T, QdrantError>> {
        let answer = self.waiting.on(async { tokio::time::timeout(ANSWER_MAX, work).await });
        answer.map_err(|_| self.failed(format!("no answer within {} s", ANSWER_MAX.as_secs())))
    }

    fn failed(&self, why: String) -> IndexError {
        IndexError::Server { name: name(&self.settings, &self.collection), why }
    }
}

fn name(settings: &Settings, collection: &str) -> String {
    format!("qdrant {}/{collection} {}", shown(&settings.url), settings.place)
}

/// An address without a name, a password or a key in it.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}://{host}")
}

fn code(error: &QdrantError) -> Option<Code> {
    match error {
        QdrantError::ResponseError { status } => Some(status.code()),
        QdrantError::ResourceExhaustedError { status, .. } => Some(status.code()),
        _ => None,
    }
}

/// What it said, without what was sent along, where keys may be.
fn why(error: &QdrantError) -> String {
    match error {
        QdrantError::ResponseError { status }
        | QdrantError::ResourceExhaustedError { status, .. } => {
            match status.message().starts_with("Failed to connect") {
                true => "it cannot be reached".to_owned(),
                false => format!("{:?}: {}", status.code(), status.message()),
            }
        }
        QdrantError::InvalidUri(_) => "its address is none".to_owned(),
        other => other.to_string(),
    }
}

/// A collection for a model: a name that every server takes, and that no other
/// model has.
fn collection(model: &str, dimensions: usize) -> String {
    let safe = model.chars().map(|letter| match letter.is_ascii_alphanumeric() {
        true => letter.to_ascii_lowercase(),
        false => '-',
    });
    let safe: String = safe.take(40).collect();
    let digest: String =
        Sha256::digest(model).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("fractal-{safe}-{digest}-{dimensions}")
}

impl Follower for Fed<'_> {
    fn name(&self) -> String {
        name(&self.server.settings, &self.server.collection)
    }

    fn wants(&self) -> Feed {
        Feed::Vectors
    }

    fn begin(&self) -> Result<()> {
        self.server.make_collection()
    }

    fn mark(&self) -> Result<Option<Mark>> {
        self.server.read_mark()
    }

    fn take(&self, batch: &Batch, mark: &Mark) -> Result<()> {
        let mut records = Vec::with_capacity(batch.records.len());
        for record in &batch.records {
            records.push((record.key.as_str(), (self.vectors)(record.num)?));
        }
        self.server.write(records, &batch.gone, mark)
    }

    fn clear(&self) -> Result<()> {
        self.server.clear_place()
    }

    fn count(&self) -> Result<u64> {
        self.server.count_records()
    }

    fn missing(&self, keys: &[String]) -> Result<Vec<String>> {
        self.server.missing_of(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_have_safe_names_of_their_own() {
        let names = ["all-MiniLM-L6-v2", "all_MiniLM_L6_v2", "../..", "模型", ""];
        let made: Vec<String> = names.iter().map(|name| collection(name, 384)).collect();
        for name in &made {
            assert!(
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
                "{name}"
            );
            assert_eq!(made.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
        assert!(made[0].starts_with("fractal-all-minilm-l6-v2-") && made[0].ends_with("-384"));
    }

    #[test]
    fn addresses_are_shown_without_logins() {
        assert_eq!(shown("https://me:secret@host:6334/?api_key=x"), "https://host:6334");
    }
}
