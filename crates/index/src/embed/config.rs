//! What a directory says about the model in it.
//!
//! Everything that changes the numbers is read or refused: a model that is run
//! with another activation or another pooling gives vectors that look right
//! and find nothing.

use super::EmbedError;
use super::files::small_json;
use serde_json::Value;
use std::path::Path;

/// The sizes of a BERT encoder and how its outputs become one vector.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Config {
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) inner: usize,
    pub(super) vocabulary: usize,
    pub(super) positions: usize,
    pub(super) kinds: usize,
    pub(super) epsilon: f32,
    /// Pieces that are looked at of a text.
    pub(super) pieces_max: usize,
    pub(super) pooling: Pooling,
}

/// How the vectors of all pieces become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pooling {
    Mean,
    First,
}

/// What a text is cut to where the model does not say.
const PIECES: u64 = 256;

impl Config {
    /// Reads `config.json` and what sentence-transformers put beside it.
    pub(super) fn open(dir: &Path) -> Result<Config, EmbedError> {
        let json = small_json(&dir.join("config.json"))?;
        let optional = |name: &str| match dir.join(name) {
            path if path.exists() => small_json(&path),
            _ => Ok(Value::Null),
        };
        let (sentences, pooling) =
            (optional("sentence_bert_config.json")?, optional("1_Pooling/config.json")?);
        let modules = optional("modules.json")?;
        let read = || {
            check_modules(&modules)?;
            read(&json, &sentences, &pooling)
        };
        read().map_err(|why: String| EmbedError::model(dir.display(), why))
    }
}

fn read(json: &Value, sentences: &Value, pooling: &Value) -> Result<Config, String> {
    check_fixed(json)?;
    let size = |name: &str, max: u64| match json.get(name).and_then(Value::as_u64) {
        Some(size) if (1..=max).contains(&size) => Ok(size as usize),
        Some(size) => Err(format!("{name} is {size}, not from 1 to {max}")),
        None => Err(format!("config.json has no {name}")),
    };
    let positions = size("max_position_embeddings", 65_536)?;
    let pieces = sentences.get("max_seq_length").and_then(Value::as_u64).unwrap_or(PIECES);
    let config = Config {
        hidden: size("hidden_size", 8192)?,
        layers: size("num_hidden_layers", 96)?,
        heads: size("num_attention_heads", 256)?,
        inner: size("intermediate_size", 65_536)?,
        vocabulary: size("vocab_size", 2_000_000)?,
        kinds: size("type_vocab_size", 64)?,
        epsilon: json.get("layer_norm_eps").and_then(Value::as_f64).unwrap_or(1e-12) as f32,
        pieces_max: positions.min(pieces.min(8192) as usize),
        positions,
        pooling: pooling_of(pooling)?,
    };
    if !config.hidden.is_multiple_of(config.heads) {
        let Config { hidden, heads, .. } = config;
        return Err(format!("{hidden} numbers cannot be shared by {heads} heads"));
    }
    match config.pieces_max < 3 {
        true => Err("it looks at less than one piece of a text".to_owned()),
        false => Ok(config),
    }
}

/// Settings that this encoder has in one way only.
fn check_fixed(json: &Value) -> Result<(), String> {
    for (name, expect) in
        [("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")]
    {
        match json.get(name) {
            None | Some(Value::Null) => {}
            Some(found) if found == expect => {}
            Some(found) => return Err(format!("{name} is {found}; only {expect} is supported")),
        }
    }
    match json.get("is_decoder").and_then(Value::as_bool) {
        Some(true) => Err("it is a decoder; only encoders are supported".to_owned()),
        _ => Ok(()),
    }
}

fn check_modules(modules: &Value) -> Result<(), String> {
    for module in modules.as_array().into_iter().flatten() {
        let kind = module.get("type").and_then(Value::as_str).unwrap_or("nothing");
        let name = kind.rsplit('.').next().unwrap_or(kind);
        if !["Transformer", "Pooling", "Normalize"].contains(&name) {
            return Err(format!("its module {kind} is not supported"));
        }
        let path = module.get("path").and_then(Value::as_str).unwrap_or_default();
        if name == "Pooling" && path != "1_Pooling" {
            return Err(format!("its pooling is described in {path:?}, not in 1_Pooling"));
        }
    }
    Ok(())
}

fn pooling_of(json: &Value) -> Result<Pooling, String> {
    let Some(settings) = json.as_object() else { return Ok(Pooling::Mean) };
    let is_on = |(name, on): (&String, &Value)| {
        (name.starts_with("pooling_mode_") && on == &Value::Bool(true)).then(|| name.clone())
    };
    let on: Vec<String> = settings.iter().filter_map(is_on).collect();
    match on.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] | ["pooling_mode_mean_tokens"] => Ok(Pooling::Mean),
        ["pooling_mode_cls_token"] => Ok(Pooling::First),
        other => Err(format!("{} is not supported, only mean or first", other.join(" and "))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use serde_json::json;

    fn good() -> Value {
        json!({
            "model_type": "bert", "hidden_act": "gelu", "hidden_size": 8,
            "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
            "vocab_size": 10, "max_position_embeddings": 512, "type_vocab_size": 2,
        })
    }

    #[test]
    fn texts_are_cut_at_what_model_and_positions_allow() {
        for (sentences, expect) in [
            (Value::Null, 256),
            (json!({"max_seq_length": 128}), 128),
            (json!({"max_seq_length": null}), 256),
            (json!({"max_seq_length": 9999}), 512),
        ] {
            let config = read(&good(), &sentences, &Value::Null).unwrap();
            assert_eq!((config.pieces_max, config.pooling), (expect, Pooling::Mean));
        }
    }

    #[test]
    fn what_would_change_the_numbers_is_refused() {
        for (name, value, expect) in [
            ("model_type", json!("roberta"), "model_type is \"roberta\"; only bert is supported"),
            ("hidden_act", json!("relu"), "hidden_act is \"relu\"; only gelu is supported"),
            ("is_decoder", json!(true), "it is a decoder; only encoders are supported"),
            ("hidden_size", json!(0), "hidden_size is 0, not from 1 to 8192"),
            ("hidden_size", json!(9), "9 numbers cannot be shared by 2 heads"),
            ("hidden_size", json!(-1), "config.json has no hidden_size"),
            (
                "vocab_size",
                json!(u64::MAX),
                "vocab_size is 18446744073709551615, not from 1 to 2000000",
            ),
        ] {
            let mut json = good();
            json[name] = value;
            assert_eq!(read(&json, &Value::Null, &Value::Null).unwrap_err(), expect);
        }
        let pooling = json!({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true});
        assert!(pooling_of(&pooling).is_err());
        let dense = json!([{"type": "sentence_transformers.models.Dense"}]);
        assert!(check_modules(&dense).unwrap_err().contains("Dense"));
    }
}
