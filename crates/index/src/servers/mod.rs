//! Servers that answer what the embedded index answers too, kept in step from it.
//!
//! A server is a copy and never asked what is true: it is sent every change of
//! the index in the order of the changes, and how far it was brought is noted
//! both there and here. So whoever is killed at any moment goes on where it
//! was, a batch that comes twice changes nothing, and a server that was emptied
//! or replaced by an older self is noticed. Several indexes share a server:
//! each has a place there, and sees and clears nothing else.
//!
//! What a server is made of is behind a feature each: `neo4j`, `qdrant`.

mod feed;
mod follow;
#[cfg(feature = "neo4j")]
pub mod neo4j;
#[cfg(feature = "qdrant")]
pub mod qdrant;
mod verify;
#[cfg(any(feature = "neo4j", feature = "qdrant"))]
mod wait;

pub use follow::{Followed, Pace};
pub use verify::Verified;

use crate::{GraphStore, Index, Progress, Result};
use fractal_model::GraphEdge;

/// A server that can be kept in step.
pub trait Follower {
    /// Names the server, the place on it and what is kept there; without what a
    /// password could hide in. Under this name it is known to the index.
    fn name(&self) -> String;

    /// Which changes it is to be told of.
    fn wants(&self) -> Feed;

    /// Makes what it needs before anything can be sent; again is no matter.
    fn begin(&self) -> Result<()>;

    /// How far it was brought, by its own account; none where nothing is, or
    /// where the records are gone that it should have.
    fn mark(&self) -> Result<Option<Mark>>;

    /// Takes over a batch and then notes the mark: at once where the server can
    /// do that, and in this order where not. A batch that was taken before
    /// changes nothing.
    fn take(&self, batch: &Batch, mark: &Mark) -> Result<()>;

    /// Removes all that is in its place, the mark first.
    fn clear(&self) -> Result<()>;

    /// How many records it has.
    fn count(&self) -> Result<u64>;

    /// Which of these records it does not have.
    fn missing(&self, keys: &[String]) -> Result<Vec<String>>;

    /// What it knows of relations, to be compared; none where it keeps none.
    fn graph(&self) -> Option<&dyn GraphStore> {
        None
    }
}

/// Which changes a server is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// Of records and their relations.
    Records,
    /// Of records that have vectors, when either is new.
    Vectors,
}

/// How far a server was brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Made anew each time when a server is filled from nothing.
    pub epoch: String,
    /// The last change that it has.
    pub rev: u64,
}

/// A record that is new or changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Its number in the index, under which it has vectors.
    pub num: u64,
    /// What it goes by.
    pub key: String,
    /// What kind of record it is.
    pub kind: String,
    /// Its title.
    pub title: String,
    /// Its state, where it says one.
    pub status: String,
    /// How it ended, where it says so.
    pub outcome: String,
    /// The root that it lies below.
    pub root: String,
    /// Where it lies below the root.
    pub path: String,
    /// When it came to be.
    pub at_ms: Option<u64>,
}

/// Changes that are sent together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Records that are new or changed. All relations that they had go.
    pub records: Vec<Changed>,
    /// The relations that these records have now, with each other, with things
    /// and with records that were sent before. Those with records that are
    /// still to come come with them.
    pub edges: Vec<GraphEdge>,
    /// Of these relations, the ends that are things.
    pub things: Vec<String>,
    /// Records that are gone.
    pub gone: Vec<String>,
    /// The last change of them.
    pub upto: u64,
}

impl Index {
    /// Sends a server what changed since it was last sent something, as long as
    /// the pace allows. If another process is at it, nothing is done.
    pub fn follow(
        &self,
        server: &dyn Follower,
        pace: Pace,
        progress: Progress<'_>,
    ) -> Result<Followed> {
        follow::follow(&self.catalog, server, pace, progress)
    }

    /// How many changes a server has not been sent yet. It is not asked.
    pub fn lag(&self, server: &dyn Follower) -> Result<u64> {
        follow::lag(&self.catalog, server)
    }

    /// Empties a server's place; what follows begins from nothing.
    pub fn unfollow(&self, server: &dyn Follower) -> Result<()> {
        follow::unfollow(&self.catalog, server)
    }

    /// Compares a server with the index: how much there is, and some records
    /// and their relations, taken evenly from all.
    pub fn verify_server(&self, server: &dyn Follower) -> Result<Verified> {
        verify::verify(&self.catalog, server)
    }
}
