//! Questions and what answers them.
//!
//! Three things say how well a record fits: its words (BM25), its meaning (the
//! nearest vectors, where there is a model), and what it stands in relation to.
//! Their scores are brought between 0 and 1 and mixed; what people confirmed
//! counts more and what no longer holds counts less. The same records and the
//! same question give the same answer, to the last digit, however the index
//! came to be.

mod find;
mod fuse;
mod words;

pub(crate) use find::{Meaning, Sources, number, search};

/// The most that anybody reads.
pub const LIMIT_MAX: u32 = 1000;
/// As many as fit a screen.
pub(crate) const LIMIT: u32 = 10;

/// How much each kind of evidence counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// What words count, from 0 to 1; meaning counts the rest.
    pub text: f64,
    /// What a relation to a good answer counts, on top.
    pub graph: f64,
}

/// Chosen by half of the questions in `bench/quality` and reported with the other
/// (`bench/results/find.md`). Fused ranks found less, a share of its own for questions
/// that look like names nothing that could be measured.
impl Default for Mix {
    fn default() -> Mix {
        Mix { text: 0.2, graph: 0.15 }
    }
}
