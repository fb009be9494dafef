//! A model of a few hundred numbers, written by the test, and its forward pass
//! as the paper has it: one number at a time, in doubles.

use crate::dice::Dice;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub const HIDDEN: usize = 8;
const INNER: usize = 12;
const HEADS: usize = 2;
const LAYERS: usize = 2;
const POSITIONS: usize = 10;
pub const VOCABULARY: [&str; 9] =
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "one", "two", "##s", "three", "!"];

type Tensor = (Vec<usize>, Vec<f64>);

pub struct Tiny {
    pub tensors: BTreeMap<String, Tensor>,
}

impl Tiny {
    pub fn new(seed: u64) -> Tiny {
        let mut tiny = Tiny { tensors: BTreeMap::new() };
        let mut dice = Dice::new(seed);
        let mut add = |name: &str, shape: &[usize]| {
            // Halves of every kind hold such numbers exactly.
            let mut number = || (dice.below(255) as f64 - 127.0) / 128.0;
            let values = (0..shape.iter().product()).map(|_| number()).collect();
            tiny.tensors.insert(name.to_owned(), (shape.to_vec(), values));
        };
        add("embeddings.word_embeddings.weight", &[VOCABULARY.len(), HIDDEN]);
        add("embeddings.position_embeddings.weight", &[POSITIONS, HIDDEN]);
        add("embeddings.token_type_embeddings.weight", &[2, HIDDEN]);
        let mut both = |name: &str, outputs: usize, inputs: usize| {
            let weight: &[usize] = if inputs == 0 { &[outputs] } else { &[outputs, inputs] };
            add(&format!("{name}.weight"), weight);
            add(&format!("{name}.bias"), &[outputs]);
        };
        both("embeddings.LayerNorm", HIDDEN, 0);
        for layer in 0..LAYERS {
            let at = |part: &str| format!("encoder.layer.{layer}.{part}");
            for part in ["self.query", "self.key", "self.value", "output.dense"] {
                both(&at(&format!("attention.{part}")), HIDDEN, HIDDEN);
            }
            both(&at("attention.output.LayerNorm"), HIDDEN, 0);
            both(&at("intermediate.dense"), INNER, HIDDEN);
            both(&at("output.dense"), HIDDEN, INNER);
            both(&at("output.LayerNorm"), HIDDEN, 0);
        }
        tiny
    }

    pub fn config() -> Value {
        json!({
            "model_type": "bert", "hidden_act": "gelu", "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": INNER,
            "vocab_size": VOCABULARY.len(), "max_position_embeddings": POSITIONS, "type_vocab_size": 2,
        })
    }

    /// The file of tensors, with numbers of a kind.
    pub fn weights(&self, kind: &str) -> Vec<u8> {
        let (mut head, mut data) = (Map::new(), Vec::new());
        for (name, (shape, values)) in &self.tensors {
            let start = data.len();
            for value in values {
                let bits = (*value as f32).to_bits();
                match kind {
                    "F32" => data.extend(bits.to_le_bytes()),
                    "BF16" => data.extend(((bits >> 16) as u16).to_le_bytes()),
                    _ => data.extend(half(*value as f32).to_le_bytes()),
                }
            }
            let range = [start, data.len()];
            head.insert(
                name.clone(),
                json!({"dtype": kind, "shape": shape, "data_offsets": range}),
            );
        }
        file(&Value::Object(head), &data)
    }

    pub fn write(&self, dir: &Path, kind: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("model.safetensors"), self.weights(kind)).unwrap();
        fs::write(dir.join("config.json"), Tiny::config().to_string()).unwrap();
        fs::write(dir.join("vocab.txt"), VOCABULARY.join("\n") + "\n").unwrap();
    }

    fn at(&self, name: &str, row: usize) -> &[f64] {
        let (shape, values) = &self.tensors[name];
        let width = if shape.len() == 2 { shape[1] } else { shape[0] };
        &values[row * width..][..width]
    }

    fn linear(&self, name: &str, input: &[f64]) -> Vec<f64> {
        let bias = self.at(&format!("{name}.bias"), 0);
        let weight = |row| self.at(&format!("{name}.weight"), row);
        bias.iter().enumerate().map(|(row, bias)| bias + dot(weight(row), input)).collect()
    }

    fn norm(&self, name: &str, input: &[f64]) -> Vec<f64> {
        let (count, weight) = (input.len() as f64, self.at(&format!("{name}.weight"), 0));
        let mean = input.iter().sum::<f64>() / count;
        let deviation =
            (input.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / count + 1e-12).sqrt();
        let bias = self.at(&format!("{name}.bias"), 0);
        (0..input.len()).map(|at| (input[at] - mean) / deviation * weight[at] + bias[at]).collect()
    }

    fn attend(&self, name: &str, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let part = |part: &str| -> Vec<Vec<f64>> {
            rows.iter().map(|row| self.linear(&format!("{name}.{part}"), row)).collect()
        };
        let (query, key, value) = (part("query"), part("key"), part("value"));
        let width = HIDDEN / HEADS;
        let mix = |at: usize, column: usize| {
            let head = column / width * width..(column / width + 1) * width;
            let score = |other: &Vec<f64>| {
                (dot(&query[at][head.clone()], &other[head.clone()]) / (width as f64).sqrt()).exp()
            };
            let scores: Vec<f64> = key.iter().map(score).collect();
            let mixed = scores.iter().zip(&value).map(|(score, value)| score * value[column]);
            mixed.sum::<f64>() / scores.iter().sum::<f64>()
        };
        (0..rows.len()).map(|at| (0..HIDDEN).map(|column| mix(at, column)).collect()).collect()
    }

    /// What the model gives for pieces, by the book.
    pub fn embed(&self, ids: &[usize]) -> Vec<f32> {
        let start = |(position, id): (usize, &usize)| {
            let word = self.at("embeddings.word_embeddings.weight", *id);
            let place = self.at("embeddings.position_embeddings.weight", position);
            let kind = self.at("embeddings.token_type_embeddings.weight", 0);
            self.norm("embeddings.LayerNorm", &add(&add(word, place), kind))
        };
        let mut rows: Vec<_> = ids.iter().enumerate().map(start).collect();
        for layer in 0..LAYERS {
            let at = |part: &str| format!("encoder.layer.{layer}.{part}");
            let mixed = self.attend(&at("attention.self"), &rows);
            for (row, mixed) in rows.iter_mut().zip(&mixed) {
                let mixed = self.linear(&at("attention.output.dense"), mixed);
                *row = self.norm(&at("attention.output.LayerNorm"), &add(row, &mixed));
                let wide = self.linear(&at("intermediate.dense"), row);
                let wide: Vec<_> = wide.into_iter().map(gelu).collect();
                let narrow = self.linear(&at("output.dense"), &wide);
                *row = self.norm(&at("output.LayerNorm"), &add(row, &narrow));
            }
        }
        let sum = rows.iter().skip(1).fold(rows[0].clone(), |sum, row| add(&sum, row));
        let length = dot(&sum, &sum).sqrt();
        sum.iter().map(|value| (value / length) as f32).collect()
    }
}

pub fn file(head: &Value, data: &[u8]) -> Vec<u8> {
    let head = head.to_string();
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend(head.as_bytes());
    file.extend(data);
    file
}

/// Only for numbers that 16 bits hold exactly.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 255) as i32 - 112;
    let sign = (bits >> 16 & 0x8000) as u16;
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16 }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

fn add(left: &[f64], right: &[f64]) -> Vec<f64> {
    left.iter().zip(right).map(|(left, right)| left + right).collect()
}

fn gelu(x: f64) -> f64 {
    let z = x / std::f64::consts::SQRT_2;
    let (mut term, mut sum) = (z, z);
    for n in 1..300 {
        term *= -z * z / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    x * 0.5 * (1.0 + sum * std::f64::consts::FRAC_2_SQRT_PI)
}
