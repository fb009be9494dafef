//! JSON Schema, and the bounds that hold for any JSON from outside.
//!
//! Schemas are compiled once, when a tool is registered; nothing is ever
//! fetched for one. Patterns are matched in linear time, so that no input can
//! make a check take long. What breaks a schema is told by the place in the
//! value (a JSON pointer) and the rule, never by the value itself.

use fractal_model::{Code, Error, Result, format_bytes};
use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;
use std::io;

/// Objects and lists within each other.
const DEPTH_MAX: usize = 64;

/// Bytes of a schema, as JSON.
const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// Violations that are told.
const TOLD_MAX: usize = 5;

/// Bytes of one violation's text.
const TEXT_BYTES_MAX: usize = 300;

/// A schema, ready to check.
#[derive(Debug)]
pub struct Schema(Validator);

impl Schema {
    /// Compiles a schema; `what` names it in the error.
    pub fn new(schema: &Value, what: &str) -> Result<Schema> {
        bounded(schema, SCHEMA_BYTES_MAX, what)?;
        let built = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
            .with_pattern_options(PatternOptions::regex())
            .build(schema);
        built.map(Schema).map_err(|error| {
            let (at, rule) = (pointer(error.instance_path().as_str()), error.kind().keyword());
            let why = cut(&error.masked().to_string());
            Error::invalid(format!("{what} is no JSON Schema: {at}: {why} (rule `{rule}`)"))
                .hint("write it in JSON Schema 2020-12, without references to other places")
        })
    }

    /// What a value breaks, in words; empty when it is as it should be.
    pub fn violations(&self, value: &Value) -> Vec<String> {
        let mut told: Vec<String> =
            self.0.iter_errors(value).take(TOLD_MAX + 1).map(|error| violation(&error)).collect();
        if told.len() > TOLD_MAX {
            told.truncate(TOLD_MAX);
            told.push("and more".to_owned());
        }
        told
    }
}

/// `/count: it is not of type "integer" (rule `type`)`.
fn violation(error: &ValidationError<'_>) -> String {
    let at = error.instance_path().as_str();
    let place = match error.kind() {
        // These two speak of a field, and stand at what holds it.
        ValidationErrorKind::Required { property } => {
            format!("{at}/{}", property.as_str().unwrap_or_default())
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            format!("{at}/{}", unexpected.first().map_or("", String::as_str))
        }
        _ => pointer(at),
    };
    let why = error.masked_with("it").to_string();
    format!(
        "{}: {} (rule `{}`)",
        cut(&place.escape_debug().to_string()),
        cut(&why),
        error.kind().keyword()
    )
}

/// The root has an empty pointer, which nobody would see.
fn pointer(at: &str) -> String {
    if at.is_empty() { "the whole".to_owned() } else { at.to_owned() }
}

fn cut(text: &str) -> String {
    match text.char_indices().map(|(at, _)| at).find(|at| *at >= TEXT_BYTES_MAX) {
        Some(at) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Refuses a value that is too large or nests too deep.
pub fn bounded(value: &Value, bytes_max: usize, what: &str) -> Result<()> {
    if depth(value) > DEPTH_MAX {
        let why = format!("{what} nests deeper than {DEPTH_MAX} levels");
        return Err(Error::new(Code::Limit, why).hint("make it flatter"));
    }
    let size = size_bytes(value);
    if size <= bytes_max {
        return Ok(());
    }
    let (size, most) = (format_bytes(size as u64), format_bytes(bytes_max as u64));
    Err(Error::new(Code::Limit, format!("{what} has {size}, {most} are allowed"))
        .hint("pass large data as files in the sandbox, and name them"))
}

/// Bytes that a value takes as JSON.
pub fn size_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value with text for keys can always be written.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Levels of objects and lists, without recursion: the value is not trusted.
fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 0)];
    while let Some((value, level)) = open.pop() {
        deepest = deepest.max(level);
        match value {
            Value::Array(list) => open.extend(list.iter().map(|inner| (inner, level + 1))),
            Value::Object(map) => open.extend(map.values().map(|inner| (inner, level + 1))),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn violations_name_place_rule_and_expectation() {
        let schema = json!({
            "type": "object",
            "properties": {
                "count": { "type": "integer", "minimum": 1 },
                "names": { "type": "array", "items": { "type": "string", "pattern": "^[a-z]+$" } },
            },
            "required": ["count"],
            "additionalProperties": false,
        });
        let schema = Schema::new(&schema, "the schema").expect("it is one");
        let check = |value: Value, words: &[&str]| {
            let told = schema.violations(&value);
            assert_eq!(told.len(), words.len(), "{told:?}");
            for (told, word) in told.iter().zip(words) {
                assert!(told.contains(word), "{told} has no {word}");
            }
        };
        check(json!({ "count": 2, "names": ["a"] }), &[]);
        check(
            json!({ "count": "secret" }),
            &["/count: it is not of type \"integer\" (rule `type`)"],
        );
        check(json!({}), &["/count: \"count\" is a required property (rule `required`)"]);
        check(
            json!({ "count": 0 }),
            &["/count: it is less than the minimum of 1 (rule `minimum`)"],
        );
        check(json!({ "count": 1, "names": ["a", "B"] }), &["/names/1"]);
        check(json!({ "count": 1, "cuont": 1 }), &["/cuont"]);
        check(json!(3), &["the whole: "]);
        let told = schema.violations(&json!({ "count": 1, "names": [1, 2, 3, 4, 5, 6, 7] }));
        assert_eq!((told.len(), told[5].as_str()), (6, "and more"));
    }

    #[test]
    fn broken_and_remote_schemas_are_refused() {
        for bad in [
            json!({ "type": "nothing" }),
            json!({ "properties": 3 }),
            json!({ "$ref": "https://example.org/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "pattern": "(" }),
            json!({ "description": "x".repeat(SCHEMA_BYTES_MAX) }),
        ] {
            let text = bad.to_string();
            assert!(Schema::new(&bad, "it").is_err(), "{}", &text[..text.len().min(80)]);
        }
        let local = json!({ "$defs": { "a": { "type": "string" } }, "$ref": "#/$defs/a" });
        assert!(Schema::new(&local, "it").is_ok());
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let nested = (0..DEPTH_MAX + 1).fold(json!(1), |inner, _| json!([inner]));
        let error = bounded(&nested, 1 << 20, "the input").expect_err("too deep");
        assert!(error.code == Code::Limit && error.message.contains("64 levels"), "{error}");
        assert_eq!(size_bytes(&json!({ "a": [1, "b"] })), 13);
        let error = bounded(&json!("x".repeat(2000)), 1024, "the input").expect_err("too large");
        assert!(error.message.contains("1 KiB") || error.message.contains("1.0"), "{error}");
    }
}
