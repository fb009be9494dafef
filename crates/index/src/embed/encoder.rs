//! The layers of BERT: attention and a wide product, each with its sum and
//! norm.
//!
//! Several texts go through the wide products as the rows of one matrix,
//! without padding between them; only attention looks at one text at a time.

use super::EmbedError;
use super::config::Config;
use super::math::{LayerNorm, gelu, softmax};
use super::safetensors::Tensors;
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, s};
use std::ops::Range;

/// A product with a matrix, and a sum.
struct Linear {
    /// A row for each output, as in the file.
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Linear {
    /// Products of the same input under several names, as one.
    fn open(
        tensors: &Tensors,
        names: &[String],
        outputs: usize,
        inputs: usize,
    ) -> Result<Linear, EmbedError> {
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        for name in names {
            tensors.read_into(&format!("{name}.weight"), &[outputs, inputs], &mut weight)?;
            tensors.read_into(&format!("{name}.bias"), &[outputs], &mut bias)?;
        }
        Ok(Linear { weight, bias })
    }

    fn apply(&self, rows: &[f32]) -> Vec<f32> {
        let (outputs, inputs) = (self.bias.len(), self.weight.len() / self.bias.len());
        let count = rows.len() / inputs;
        let mut out = self.bias.repeat(count);
        let weight = view(&self.weight, outputs, inputs);
        let into = &mut view_mut(&mut out, count, outputs);
        general_mat_mul(1.0, &view(rows, count, inputs), &weight.t(), 1.0, into);
        out
    }
}

fn view(values: &[f32], rows: usize, columns: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((rows, columns), values).expect("sizes were checked on loading")
}

fn view_mut(values: &mut [f32], rows: usize, columns: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((rows, columns), values).expect("sizes were checked on loading")
}

pub(super) fn norm(
    tensors: &Tensors,
    name: &str,
    config: &Config,
) -> Result<LayerNorm, EmbedError> {
    // Models that were converted from TensorFlow have the older names.
    let old = tensors.has(&format!("{name}.gamma"));
    let (weight, bias) = if old { ("gamma", "beta") } else { ("weight", "bias") };
    Ok(LayerNorm {
        weight: tensors.read(&format!("{name}.{weight}"), &[config.hidden])?,
        bias: tensors.read(&format!("{name}.{bias}"), &[config.hidden])?,
        epsilon: config.epsilon,
    })
}

/// One layer.
pub(super) struct Layer {
    /// Query, key and value of all heads.
    asked: Linear,
    attended: Linear,
    attended_norm: LayerNorm,
    inner: Linear,
    outer: Linear,
    outer_norm: LayerNorm,
    heads: usize,
}

impl Layer {
    pub(super) fn open(
        tensors: &Tensors,
        name: &str,
        config: &Config,
    ) -> Result<Layer, EmbedError> {
        let &Config { hidden, inner, .. } = config;
        let at = |part: &str| format!("{name}.{part}");
        let asked = ["query", "key", "value"].map(|part| at(&format!("attention.self.{part}")));
        Ok(Layer {
            asked: Linear::open(tensors, &asked, hidden, hidden)?,
            attended: Linear::open(tensors, &[at("attention.output.dense")], hidden, hidden)?,
            attended_norm: norm(tensors, &at("attention.output.LayerNorm"), config)?,
            inner: Linear::open(tensors, &[at("intermediate.dense")], inner, hidden)?,
            outer: Linear::open(tensors, &[at("output.dense")], hidden, inner)?,
            outer_norm: norm(tensors, &at("output.LayerNorm"), config)?,
            heads: config.heads,
        })
    }

    /// Changes the rows of several texts, of which each has its range.
    pub(super) fn apply(&self, rows: &mut [f32], texts: &[Range<usize>]) {
        let mixed = self.attend(&self.asked.apply(rows), texts);
        add(rows, &self.attended.apply(&mixed));
        self.attended_norm.apply(rows);
        let mut wide = self.inner.apply(rows);
        gelu(&mut wide);
        add(rows, &self.outer.apply(&wide));
        self.outer_norm.apply(rows);
    }

    fn attend(&self, asked: &[f32], texts: &[Range<usize>]) -> Vec<f32> {
        let hidden = self.outer.bias.len();
        let head = hidden / self.heads;
        let count = asked.len() / (3 * hidden);
        let asked = view(asked, count, 3 * hidden);
        let mut out = vec![0.0; count * hidden];
        let mut mixed = view_mut(&mut out, count, hidden);
        let mut scores = Vec::new();
        for text in texts {
            let length = text.len();
            scores.resize(length * length, 0.0);
            for from in (0..hidden).step_by(head) {
                let part = |at: usize| asked.slice(s![text.clone(), at + from..at + from + head]);
                let (query, key, value) = (part(0), part(hidden), part(2 * hidden));
                let scale = 1.0 / (head as f32).sqrt();
                let into = &mut view_mut(&mut scores, length, length);
                general_mat_mul(scale, &query, &key.t(), 0.0, into);
                softmax(&mut scores, length);
                let into = &mut mixed.slice_mut(s![text.clone(), from..from + head]);
                general_mat_mul(1.0, &view(&scores, length, length), &value, 0.0, into);
            }
        }
        out
    }
}

fn add(rows: &mut [f32], more: &[f32]) {
    rows.iter_mut().zip(more).for_each(|(value, more)| *value += more);
}
