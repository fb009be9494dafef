//! Words as numbers of pieces that a model knows.
//!
//! A vocabulary is the lines of `vocab.txt`, or the same in `tokenizer.json`,
//! of which exactly BERT's kind is understood: anything else would give other
//! numbers than the model was trained with, and is refused.

use super::EmbedError;
use super::files::{self, VOCABULARY_BYTES_MAX};
use super::words::{Reading, WORD_CHARS_MAX, words};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// Between the marks of a beginning and an end.
const SPECIAL: [&str; 5] = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"];

/// Turns texts into numbers of pieces.
#[derive(Debug)]
pub(super) struct WordPiece {
    ids: HashMap<Box<str>, u32>,
    /// The longest piece, in bytes.
    longest: usize,
    reading: Reading,
    unknown: u32,
    first: u32,
    last: u32,
    /// Marks that are meant as such wherever they stand, as in the reference.
    special: Vec<(String, u32)>,
}

impl WordPiece {
    /// The vocabulary in a directory.
    pub(super) fn open(dir: &Path) -> Result<WordPiece, EmbedError> {
        let path = dir.join("vocab.txt");
        if !path.exists() {
            let path = dir.join("tokenizer.json");
            let json = files::json(&path, VOCABULARY_BYTES_MAX)?;
            return from_json(&json).map_err(|why| EmbedError::model(path.display(), why));
        }
        let text = files::text(&path, VOCABULARY_BYTES_MAX)?;
        let config = dir.join("tokenizer_config.json");
        let config = if config.exists() { files::small_json(&config)? } else { Value::Null };
        let lines = text.lines().zip(0..).map(|(line, id)| (line.into(), id)).collect();
        WordPiece::new(lines, reading_of_config(&config))
            .map_err(|why| EmbedError::model(path.display(), why))
    }

    fn new(ids: HashMap<Box<str>, u32>, reading: Reading) -> Result<WordPiece, String> {
        let id = |name: &str| {
            let found = ids.get(name).copied();
            found.ok_or_else(|| format!("the vocabulary has no {name}"))
        };
        let (unknown, first, last) = (id("[UNK]")?, id("[CLS]")?, id("[SEP]")?);
        let special =
            SPECIAL.iter().filter_map(|name| Some(((*name).to_owned(), *ids.get(*name)?)));
        let special = special.collect();
        let longest = ids.keys().map(|piece| piece.len()).max().unwrap_or(0);
        Ok(WordPiece { ids, longest, reading, unknown, first, last, special })
    }

    /// The largest number that can come out.
    pub(super) fn largest(&self) -> u32 {
        self.ids.values().copied().max().unwrap_or(0)
    }

    /// The pieces of a text between the marks of its beginning and its end, at
    /// most `max` with them.
    pub(super) fn encode(&self, text: &str, max: usize) -> Vec<u32> {
        let mut out = vec![self.first];
        let room = max - 1;
        let mut rest = text;
        while out.len() < room {
            let Some((start, end, id)) = self.next_special(rest) else {
                self.add_words(rest, room, &mut out);
                break;
            };
            self.add_words(&rest[..start], room, &mut out);
            out.push(id);
            rest = &rest[end..];
        }
        out.truncate(room);
        out.push(self.last);
        out
    }

    fn next_special(&self, text: &str) -> Option<(usize, usize, u32)> {
        text.char_indices().find_map(|(at, _)| {
            let here = &text.as_bytes()[at..];
            let (name, id) =
                self.special.iter().find(|(name, _)| here.starts_with(name.as_bytes()))?;
            Some((at, at + name.len(), *id))
        })
    }

    fn add_words(&self, text: &str, room: usize, out: &mut Vec<u32>) {
        words(text, self.reading, |word| {
            self.add_pieces(word, out);
            out.len() < room
        });
    }

    /// The longest known pieces from the left, or "unknown" for the whole word.
    fn add_pieces(&self, word: &str, out: &mut Vec<u32>) {
        let before = out.len();
        let mut rest = if word.chars().count() > WORD_CHARS_MAX { None } else { Some(word) };
        while let Some(left) = rest.filter(|left| !left.is_empty()) {
            let found = self.longest_piece(left, out.len() > before);
            rest = found.map(|(length, id)| {
                out.push(id);
                &left[length..]
            });
        }
        if rest.is_none() {
            out.truncate(before);
            out.push(self.unknown);
        }
    }

    fn longest_piece(&self, text: &str, goes_on: bool) -> Option<(usize, u32)> {
        let prefix = if goes_on { "##" } else { "" };
        let piece = format!("{prefix}{text}");
        let ends = text.char_indices().map(|(at, letter)| at + letter.len_utf8()).rev();
        ends.filter(|end| prefix.len() + end <= self.longest).find_map(|end| {
            let id = self.ids.get(&piece[..prefix.len() + end])?;
            Some((end, *id))
        })
    }
}

fn reading_of_config(config: &Value) -> Reading {
    let flag = |name: &str| config.get(name).and_then(Value::as_bool);
    let lower = flag("do_lower_case").unwrap_or(true);
    Reading {
        lower,
        plain: flag("strip_accents").unwrap_or(lower),
        cjk: flag("tokenize_chinese_chars").unwrap_or(true),
    }
}

/// The same vocabulary in the form of a newer library.
pub(super) fn from_json(json: &Value) -> Result<WordPiece, String> {
    let text = |path: &str| json.pointer(path).and_then(Value::as_str).unwrap_or("nothing");
    for (path, expect) in [
        ("/model/type", "WordPiece"),
        ("/normalizer/type", "BertNormalizer"),
        ("/pre_tokenizer/type", "BertPreTokenizer"),
        ("/model/continuing_subword_prefix", "##"),
        ("/model/unk_token", "[UNK]"),
    ] {
        if text(path) != expect {
            return Err(format!("{path} is {}; only {expect} is understood", text(path)));
        }
    }
    let flag = |name: &str| json.pointer("/normalizer").and_then(|at| at.get(name)?.as_bool());
    let lower = flag("lowercase").unwrap_or(true);
    let plain = flag("strip_accents").unwrap_or(lower);
    let reading = Reading { lower, plain, cjk: flag("handle_chinese_chars").unwrap_or(true) };
    let vocabulary = json.pointer("/model/vocab").and_then(Value::as_object);
    let vocabulary = vocabulary.ok_or("it has no vocabulary")?;
    let ids = vocabulary.iter().map(|(piece, id)| {
        let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
        Some((piece.as_str().into(), id?))
    });
    let ids = ids.collect::<Option<_>>().ok_or("a piece of its vocabulary has no number")?;
    WordPiece::new(ids, reading)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn small() -> WordPiece {
        let pieces =
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "##a", "the", "!", "é"];
        let ids = pieces.iter().zip(0..).map(|(piece, id)| ((*piece).into(), id)).collect();
        WordPiece::new(ids, Reading { lower: true, plain: false, cjk: true }).unwrap()
    }

    #[test]
    fn words_are_cut_into_the_longest_known_pieces() {
        for (text, expect) in [
            ("", vec![2, 3]),
            ("unaffable", vec![2, 4, 5, 6, 3]),
            ("The UNA!", vec![2, 8, 4, 7, 9, 3]),
            ("unaffablex the", vec![2, 1, 8, 3]),
            ("é è", vec![2, 10, 1, 3]),
            ("the [SEP] un[PAD]", vec![2, 8, 3, 4, 0, 3]),
            ("[sep]", vec![2, 1, 1, 1, 3]),
            (&"u".repeat(101), vec![2, 1, 3]),
        ] {
            assert_eq!(small().encode(text, 16), expect, "{text:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut_and_still_ends_with_its_mark() {
        let ids = small().encode(&"the ".repeat(50), 8);
        assert_eq!(ids, [2, 8, 8, 8, 8, 8, 8, 3]);
        assert_eq!(small().encode("unaffable", 4), [2, 4, 5, 3]);
        assert_eq!(small().encode(&"[SEP]".repeat(50), 4), [2, 3, 3, 3]);
    }

    #[test]
    fn other_kinds_of_tokenizers_are_refused() {
        let json = serde_json::json!({"model": {"type": "BPE"}});
        let why = from_json(&json).unwrap_err();
        assert_eq!(why, "/model/type is BPE; only WordPiece is understood");
    }
}
