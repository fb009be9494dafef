//! A sentence model of BERT's kind, run in this process.
//!
//! What a question needs is read when the model is opened, the table of words
//! row by row when a word occurs: it is half of the file, and a question has
//! ten words. The same text gives the same vector, whatever it is asked with.

use super::config::{Config, Pooling};
use super::encoder::{Layer, norm};
use super::math::{LayerNorm, normalize};
use super::safetensors::{Tensor, Tensors};
use super::wordpiece::WordPiece;
use super::{EmbedError, Embedder};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Pieces that go through the layers as one matrix; more would leave the cache.
const BATCH_PIECES_MAX: usize = 512;

/// With fewer, reading the weights takes longer than using them.
const BATCH_PIECES_MIN: usize = 64;

/// More threads than this wait for memory.
const THREADS_MAX: usize = 8;

/// An opened model.
pub(super) struct Bert {
    name: String,
    config: Config,
    words: WordPiece,
    tensors: Tensors,
    table: Tensor,
    positions: Vec<f32>,
    /// What is added to each piece of a first (and only) sentence.
    kind: Vec<f32>,
    norm: LayerNorm,
    layers: Vec<Layer>,
}

impl Bert {
    /// Opens the model in a directory under a name that the caller knows.
    pub(super) fn open(dir: &Path, name: String) -> Result<Bert, EmbedError> {
        let config = Config::open(dir)?;
        let tensors = Tensors::open(&dir.join("model.safetensors"))?;
        // Half of the time goes into the vocabulary, half into the layers.
        let (words, layers) = thread::scope(|scope| {
            let words = scope.spawn(|| WordPiece::open(dir));
            let layers = layers(&tensors, &config);
            (words.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), layers)
        });
        let (words, layers) = (words?, layers?);
        let at = |part: &str| format!("{}embeddings.{part}", prefix(&tensors));
        let table = tensors.get(&at("word_embeddings.weight"))?.clone();
        check_table(dir, &config, &words, &table)?;
        let Config { hidden, positions, kinds, .. } = config;
        let mut kind = tensors.read(&at("token_type_embeddings.weight"), &[kinds, hidden])?;
        kind.truncate(hidden);
        Ok(Bert {
            positions: tensors.read(&at("position_embeddings.weight"), &[positions, hidden])?,
            norm: norm(&tensors, &at("LayerNorm"), &config)?,
            name,
            config,
            words,
            table,
            kind,
            layers,
            tensors,
        })
    }

    /// The sum of word, position and kind for each piece.
    fn look_up(&self, ids: &[u32], rows: &mut Vec<f32>) -> Result<(), EmbedError> {
        let hidden = self.config.hidden;
        let start = rows.len();
        for (position, id) in ids.iter().enumerate() {
            let at = rows.len();
            self.tensors.row(&self.table, u64::from(*id), rows)?;
            let fixed = &self.positions[position * hidden..][..hidden];
            for ((value, fixed), kind) in rows[at..].iter_mut().zip(fixed).zip(&self.kind) {
                *value += fixed + kind;
            }
        }
        self.norm.apply(&mut rows[start..]);
        Ok(())
    }

    fn embed_batch(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let (mut rows, mut ranges, mut at) = (Vec::new(), Vec::new(), 0);
        for ids in texts {
            self.look_up(ids, &mut rows)?;
            ranges.push(at..at + ids.len());
            at += ids.len();
        }
        for layer in &self.layers {
            layer.apply(&mut rows, &ranges);
        }
        ranges.iter().map(|range| self.pool(&rows, range)).collect()
    }

    fn pool(&self, rows: &[f32], range: &Range<usize>) -> Result<Vec<f32>, EmbedError> {
        let hidden = self.config.hidden;
        let rows = &rows[range.start * hidden..range.end * hidden];
        let mut vector = vec![0.0; hidden];
        let used = match self.config.pooling {
            Pooling::Mean => rows,
            Pooling::First => &rows[..hidden],
        };
        for row in used.chunks_exact(hidden) {
            vector.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        normalize(&mut vector);
        match vector.iter().all(|value| value.is_finite()) {
            true => Ok(vector),
            false => Err(EmbedError::model(&self.name, "it gives something else than numbers")),
        }
    }
}

impl Embedder for Bert {
    fn name(&self) -> &str {
        &self.name
    }

    fn dimensions(&self) -> usize {
        self.config.hidden
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let encode = |text: &&str| self.words.encode(text, self.config.pieces_max);
        let ids: Vec<_> = texts.iter().map(encode).collect();
        let threads = thread::available_parallelism().map_or(1, |count| count.get());
        let batches = batches(&ids, threads);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some(range) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                done.push((range.start, self.embed_batch(&ids[range.clone()])?));
            }
            Ok(done)
        };
        let mut done = in_threads(threads.min(THREADS_MAX).min(batches.len()), &work)?;
        done.sort_unstable_by_key(|(start, _)| *start);
        Ok(done.into_iter().flat_map(|(_, vectors)| vectors).collect())
    }
}

type Done = Vec<(usize, Vec<Vec<f32>>)>;

fn in_threads(
    count: usize,
    work: &(impl Fn() -> Result<Done, EmbedError> + Sync),
) -> Result<Done, EmbedError> {
    thread::scope(|scope| {
        let others: Vec<_> = (1..count).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            let more = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done = done.and_then(|done| Ok([done, more?].concat()));
        }
        done
    })
}

/// Texts one after another that go through the layers together, so few that
/// no thread is without.
fn batches(texts: &[Vec<u32>], threads: usize) -> Vec<Range<usize>> {
    let all: usize = texts.iter().map(Vec::len).sum();
    let most = (all / threads).clamp(BATCH_PIECES_MIN, BATCH_PIECES_MAX);
    let (mut batches, mut start, mut pieces) = (Vec::new(), 0, 0);
    for (at, ids) in texts.iter().enumerate() {
        if at > start && pieces + ids.len() > most {
            batches.push(start..at);
            (start, pieces) = (at, 0);
        }
        pieces += ids.len();
    }
    if start < texts.len() {
        batches.push(start..texts.len());
    }
    batches
}

fn prefix(tensors: &Tensors) -> &'static str {
    // A model that was trained for something else keeps its encoder under a name.
    if tensors.has("bert.embeddings.word_embeddings.weight") { "bert." } else { "" }
}

fn layers(tensors: &Tensors, config: &Config) -> Result<Vec<Layer>, EmbedError> {
    let prefix = prefix(tensors);
    let names = (0..config.layers).map(|number| format!("{prefix}encoder.layer.{number}"));
    names.map(|name| Layer::open(tensors, &name, config)).collect()
}

/// Each piece must have a row, of the width of everything else.
fn check_table(
    dir: &Path,
    config: &Config,
    words: &WordPiece,
    table: &Tensor,
) -> Result<(), EmbedError> {
    let &Config { vocabulary, hidden, .. } = config;
    let fault = |why: String| Err(EmbedError::model(dir.display(), why));
    let largest = words.largest() as usize;
    if table.shape() != [vocabulary as u64, hidden as u64] {
        let shape = table.shape();
        return fault(format!("its table of words has the shape {shape:?}"));
    }
    match largest < vocabulary {
        true => Ok(()),
        false => fault(format!("its vocabulary goes to {largest}, its table to {vocabulary}")),
    }
}
